"""The Postgres sink passes the whole suite: appending and upserting, through the driver and by executors."""

import itertools
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row, scalar_row

from onceonly.lab.postgres import EmbeddedPostgres
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
