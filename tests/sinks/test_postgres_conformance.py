"""The Postgres sink passes the whole suite, whatever it does with rows, through the driver and by executors."""

from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from tests.sinks.memory_harness import with_column
from tests.sinks.postgres_harness import PostgresHarness
from tests.sinks.variants import lengthy_claims_are_slow

from onceonly.protocol import Batch
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.conformance import NotTested, SinkConformance
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres


class TestAppendThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("driver"), via="driver")


@pytest.mark.slow
class TestAppendByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("executors"), via="executors")


@lengthy_claims_are_slow
class TestUpsertThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("upsert_driver"), key="id", via="driver")


@pytest.mark.slow
class TestUpsertByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("upsert_executors"), key="id", via="executors")


def _insert(cursor: psycopg.Cursor[Any], staged: Any, epoch: int, *, into: str) -> None:
    target = sql.Identifier(into)
    create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id bigint PRIMARY KEY, step bigint, note text)")
    cursor.execute(create.format(target))
    cursor.execute(sql.SQL("INSERT INTO {} SELECT * FROM {}").format(target, staged))


class AppliedHarness(PostgresHarness):
    """The rows are brought by a function of the user's."""

    def connect(self) -> PostgresSink:
        return PostgresSink(self._dsn, self._table, apply=partial(_insert, into=self._table), **self._options)

    def set_back(self, epoch: int) -> int:
        raise NotTested("What a function of the user's has written, the sink does not know.")

    def values(self) -> list[Any]:
        raise NotTested("The user's function decides what becomes of a value.")


@lengthy_claims_are_slow
class TestApplyThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return AppliedHarness(postgres.database("apply_driver"), via="driver")


@pytest.mark.slow
class TestApplyByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return AppliedHarness(postgres.database("apply_executors"), via="executors")


class DeletingHarness(PostgresHarness):
    """Every row says that it stays."""

    def batch(self, table: pa.Table, **how: bool) -> Batch:
        return super().batch(with_column(table, "gone"), **how)


@pytest.mark.slow
class TestUpsertWithADeleteColumn(SinkConformance):
    @pytest.fixture(params=["driver", "executors"])
    def harness(self, postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> PostgresHarness:
        dsn = postgres.database("upsert_delete")
        return DeletingHarness(dsn, key="id", sequence="step", delete="gone", via=request.param)


class NarrowHarness(PostgresHarness):
    """The table lacks a column of the rows, and any epoch may be the first to add it."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(dsn, **{"schema": "add_columns", **options})
        self._makes()

    def _makes(self) -> None:
        self._runs("CREATE TABLE {} (id bigint, step bigint, _epoch bigint)")

    def set_back(self, epoch: int) -> int:
        at = super().set_back(epoch)
        self._makes()
        return at

    def intrude(self, table: pa.Table) -> None:
        # Who adds rows by hand has added the column for them.
        self._runs("ALTER TABLE {} ADD COLUMN IF NOT EXISTS note text")
        super().intrude(table)

    def rows(self) -> list[dict[str, Any]]:
        with closing(psycopg.connect(self._dsn, row_factory=dict_row)) as connection:
            query = sql.SQL("SELECT id, step, to_jsonb(t) ->> 'note' AS note FROM {} t")
            return connection.execute(query.format(sql.Identifier(self._table))).fetchall()


@pytest.mark.slow
class TestAddingAColumn(SinkConformance):
    @pytest.fixture(params=["driver", "executors"])
    def harness(self, postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> PostgresHarness:
        return NarrowHarness(postgres.database("add_columns"), via=request.param)
