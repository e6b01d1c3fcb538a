"""The two real destinations, what tests say to them, and what the reference sink and a ledger hold."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
from deltalake import DeltaTable
from psycopg import sql

from onceonly_checkpoints.ledger import EventKind, Ledger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink


class PostgresTarget:
    """A table ``orders`` in a database of its own."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def sink(self, **options: Any) -> PostgresSink:
        return PostgresSink(self.dsn, table="orders", **options)

    def says(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def ids(self) -> list[int]:
        return [row[0] for row in self.says("select id from orders order by id")]

    def vanish(self) -> None:
        self.says("drop table orders")


class Backup:
    """A copy of a database as it is now, to be put back in its place.

    Args:
        url: of the database.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = parts._replace(path="/postgres").geturl()
        self._name, self._copy = parts.path[1:], f"{parts.path[1:]}_backup"
        self._say("CREATE DATABASE {} TEMPLATE {}", self._copy, self._name)

    def put_back(self) -> None:
        """Have the database be what it was; whoever is connected to it is thrown out."""
        self._say("DROP DATABASE {} WITH (FORCE)", self._name)
        self._say("ALTER DATABASE {} RENAME TO {}", self._copy, self._name)

    def _say(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


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
        return sorted(row[0] for row in self.rows("id"))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        found = self.table.to_pyarrow_table(columns=list(columns))
        return list(zip(*(found[column].to_pylist() for column in columns), strict=True))

    def vanish(self) -> None:
        import shutil

        shutil.rmtree(self.path)


def ids(sink: MemorySink) -> list[int]:
    """The ids that a reference sink holds, in order, each as often as it holds it."""
    return sorted(row["id"] for row in sink.rows())


def events(ledger: Ledger, kind: EventKind) -> list[str]:
    """The reasons of one kind of event in the ledger of pipeline ``orders``."""
    return [event.reason for event in ledger.events("orders") if event.kind is kind]
