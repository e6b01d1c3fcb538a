"""The servers of tests that need an address only: the environment's, else containers, else the embedded ones."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from urllib.parse import unquote, urlsplit

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql

VARIABLES: Mapping[str, str] = {"Postgres": "ONCEONLY_TEST_POSTGRES", "Kafka": "ONCEONLY_TEST_KAFKA"}
"""What names a server of somebody else's: a URL, ``host:port``, or the word ``embedded``."""

EMBEDDED = "embedded"
_PATIENCE_S = 30.0


class Origin(StrEnum):
    """Where a server comes from."""

    ENVIRONMENT = "environment"
    CONTAINER = "container"
    EMBEDDED = "embedded"


@dataclass(frozen=True)
class Choice:
    """The decision for one kind of server, and why it fell so.

    Attributes:
        origin: where it comes from.
        why: the reason, for the header of the run; never an address, which may hold a password.
        address: what the environment says; empty for the other two origins.
    """

    origin: Origin
    why: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.origin} ({self.why})"


def choose(variable: str, environment: Mapping[str, str], no_engine: Callable[[], str | None]) -> Choice:
    """Decide where a server comes from.

    Args:
        variable: name of the environment variable that comes first.
        environment: all of them.
        no_engine: why no container can be started, ``None`` where one can; asked only if it matters.
    """
    said = environment.get(variable, "")
    if said == EMBEDDED:
        return Choice(Origin.EMBEDDED, f"{variable} says so")
    if said:
        return Choice(Origin.ENVIRONMENT, variable, said)
    reason = no_engine()
    if reason is None:
        return Choice(Origin.CONTAINER, f"an engine answers; {variable}={EMBEDDED} does without")
    return Choice(Origin.EMBEDDED, reason)


class PostgresAddress:
    """A Postgres of which tests know the address; each takes databases of its own.

    The password leaves the address for ``PGPASSWORD`` while the server is used: what a user does whose addresses are
    written to ledgers and printed in commands.

    Args:
        url: of a database from which others may be created.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._password = unquote(parts.password or "")
        login = f"{parts.username}@" if parts.username else ""
        self._parts = parts._replace(netloc=f"{login}{parts.netloc.rpartition('@')[2]}")
        # A server that outlives the run holds what earlier runs made.
        self._run = secrets.token_hex(4)
        self._made: list[str] = []

    @property
    def url(self) -> str:
        """The address without its password."""
        return self._parts.geturl()

    def database(self, name: str) -> str:
        """Make a database of this run, and return its URL. The same name gives the same database."""
        full = f"{name}_{self._run}"
        if full not in self._made:
            self._says(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(full)))
            self._made.append(full)
        return self._parts._replace(path=f"/{full}").geturl()

    def drop_databases(self) -> None:
        """Remove what :meth:`database` made, whoever is still connected."""
        while self._made:
            self._says(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self._made.pop())))

    @contextmanager
    def login(self) -> Generator[None]:
        """Have libpq find the password, in this process and in those it starts."""
        before = os.environ.get("PGPASSWORD")
        if self._password:
            os.environ["PGPASSWORD"] = self._password
        try:
            yield
        finally:
            if before is None:
                os.environ.pop("PGPASSWORD", None)
            else:
                os.environ["PGPASSWORD"] = before

    def _says(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


class KafkaAddress:
    """A Kafka of which tests know the address; each takes topics of its own.

    Args:
        servers: value of ``bootstrap.servers``.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._run = secrets.token_hex(4)
        self._numbers = count(1)
        self._made: list[str] = []

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic, another one with each call, wait until it has leaders, and return its full name."""
        full, admin = f"{name}-{self._run}-{next(self._numbers)}", self._admin()
        admin.create_topics([NewTopic(full, partitions, 1, config=dict(config or {}))])[full].result(_PATIENCE_S)
        self._made.append(full)
        _await_leaders(admin, full)
        return full

    def drop_topics(self) -> None:
        """Remove what :meth:`topic` made."""
        admin = self._admin()
        for removed in admin.delete_topics(self._made).values() if self._made else ():
            removed.result(_PATIENCE_S)
        self._made.clear()

    def _admin(self) -> AdminClient:
        # To be held by a name until the answer is there: without one, the client ends, and its requests with it.
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})


def _await_leaders(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        partitions = admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        if partitions and all(partition.leader >= 0 for partition in partitions.values()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} has no leaders")
        time.sleep(0.02)


@contextmanager
def postgres_at(url: str, *, outlives_us: bool = False) -> Generator[PostgresAddress]:
    """Use a server, and leave nothing on it if it is there after us."""
    address = PostgresAddress(url)
    with address.login():
        yield address
        if outlives_us:
            address.drop_databases()


@contextmanager
def kafka_at(servers: str, *, outlives_us: bool = False) -> Generator[KafkaAddress]:
    """Use a broker, and leave none of our topics on it if it is there after us."""
    address = KafkaAddress(servers)
    yield address
    if outlives_us:
        address.drop_topics()
