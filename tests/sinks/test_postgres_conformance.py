"""The Postgres sink passes the whole suite, whatever it does with rows, through the driver and by executors."""

import itertools
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.rows import dict_row, scalar_row
from tests.sinks.memory_harness import with_column

from onceonly.lab.postgres import EmbeddedPostgres
from onceonly.protocol import Batch
from onceonly_sinks.conformance import SinkConformance, SinkHarness
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

_numbers = itertools.count(1)


class PostgresHarness(SinkHarness):
    """One table, under a name of its own, in a shared database."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self._dsn = dsn
        self._table = f"target_{next(_numbers)}"
        self._options = options

    def connect(self) -> PostgresSink:
        return PostgresSink(self._dsn, self._table, **self._options)

    def rows(self) -> list[dict[str, Any]]:
        with closing(psycopg.connect(self._dsn, row_factory=dict_row)) as connection:
            if not self._exists(connection, self._table):
                return []
            query = sql.SQL("SELECT id, step, note FROM {}").format(sql.Identifier(self._table))
            return connection.execute(query).fetchall()

    def maintain(self) -> None:
        with closing(psycopg.connect(self._dsn, autocommit=True)) as connection:
            connection.execute("SET lock_timeout = '20s'")
            for table in (self._table, "onceonly.head", "onceonly.epoch"):
                if self._exists(connection, table):
                    name = sql.Identifier(*table.split("."))
                    connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(name))
            connection.execute("CHECKPOINT")

    @staticmethod
    def _exists(connection: psycopg.Connection[Any], table: str) -> bool:
        cursor = psycopg.Cursor(connection, row_factory=scalar_row)
        return bool(cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone())


class TestAppendThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("driver"), via="driver")


@pytest.mark.slow
class TestAppendByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PostgresHarness(postgres.database("executors"), via="executors")


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
        return super().batch(with_column(table, "gone", False), **how)


@pytest.mark.slow
class TestUpsertWithADeleteColumn(SinkConformance):
    @pytest.fixture(params=["driver", "executors"])
    def harness(self, postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> PostgresHarness:
        dsn = postgres.database("upsert_delete")
        return DeletingHarness(dsn, key="id", sequence="step", delete="gone", via=request.param)


class NarrowHarness(PostgresHarness):
    """The table lacks a column of the rows, and any epoch may be the first to add it."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(dsn, schema="add_columns", **options)
        with psycopg.connect(dsn) as connection:
            create = sql.SQL("CREATE TABLE {} (id bigint, step bigint, _epoch bigint)")
            connection.execute(create.format(sql.Identifier(self._table)))

    def rows(self) -> list[dict[str, Any]]:
        with closing(psycopg.connect(self._dsn, row_factory=dict_row)) as connection:
            query = sql.SQL("SELECT id, step, to_jsonb(t) ->> 'note' AS note FROM {} t")
            return connection.execute(query.format(sql.Identifier(self._table))).fetchall()


@pytest.mark.slow
class TestAddingAColumn(SinkConformance):
    @pytest.fixture(params=["driver", "executors"])
    def harness(self, postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> PostgresHarness:
        return NarrowHarness(postgres.database("add_columns"), via=request.param)
