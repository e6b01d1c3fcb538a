"""The two real destinations, with the few sentences that tests say to them."""

from __future__ import annotations

from typing import Any

import psycopg
from deltalake import DeltaTable

from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink


class PostgresTarget:
    """A table ``orders`` in a database of its own."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def sink(self, **options: Any) -> PostgresSink:
        return PostgresSink(self.dsn, table="orders", **options)

    def says(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def ids(self) -> list[int]:
        return [row[0] for row in self.says("select id from orders order by id")]

    def vanish(self) -> None:
        self.says("drop table orders")


class DeltaTarget:
    """A table in a directory of its own."""

    def __init__(self, path: str) -> None:
        self.path = path

    def sink(self, **options: Any) -> DeltaSink:
        return DeltaSink(self.path, **options)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def ids(self) -> list[int]:
        return sorted(self.table.to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def vanish(self) -> None:
        import shutil

        shutil.rmtree(self.path)
