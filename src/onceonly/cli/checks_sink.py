"""Checks of destinations: whether they answer, and settings that break the promise."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from onceonly.audit.facts import reason_of
from onceonly.cli.checks import Check, State
from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import Sink
from onceonly.registry import sink_from_address
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.ledgerplace import place_of, unavailable

_PIPELINE = "onceonly-doctor"
"""A name that no pipeline has: opening creates nothing, so nothing remembers it."""

_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "transaction_read_only")

RETENTION = "delta.setTransactionRetentionDuration"


def destination(address: str) -> Iterator[Check]:
    """Everything about one address; a plain Postgres DSN is checked as a server."""
    if address.startswith(("postgres://", "postgresql://")):
        yield from server(mask(address), address)
        return
    try:
        sink = sink_from_address(address)
        sink.open(_PIPELINE)
    except (OnceOnlyError, OSError) as error:
        remedy = error.remedy if isinstance(error, OnceOnlyError) else ""
        yield Check(mask(address), State.PROBLEM, reason_of(error), remedy)
        return
    try:
        yield Check(sink.address, State.OK, f"answers; {sink.capabilities.committer}")
        yield from _inside(sink)
    finally:
        sink.close()


def _inside(sink: Sink) -> Iterator[Check]:
    if sink.ledger_url:
        yield from server(sink.address, sink.ledger_url)
    if sink.address.startswith("delta:"):
        yield from delta_table(sink)


def server(name: str, url: str) -> Iterator[Check]:
    """A Postgres server: reachable, and none of the settings that lose commits."""
    try:
        found = _settings(url)
    except (LedgerUnavailable, ValueError) as error:
        yield Check(
            name, State.PROBLEM, reason_of(error), "check host, port, role and password (PGPASSWORD, ~/.pgpass)"
        )
        return
    yield Check(name, State.OK, f"Postgres {found['server_version']} answers")
    yield from judge_settings(name, found)


def _settings(url: str) -> dict[str, str]:
    place = place_of(url)
    engine = place.engine()
    try:
        with engine.connect() as connection:
            return {setting: str(connection.exec_driver_sql(f"SHOW {setting}").scalar()) for setting in _SETTINGS}
    except SQLAlchemyError as error:
        raise unavailable(place, error) from error
    finally:
        engine.dispose()


def judge_settings(name: str, found: Mapping[str, str]) -> Iterator[Check]:
    """Settings under which a confirmed commit can vanish."""
    if found.get("fsync") == "off":
        said = "fsync is off: a crash of the machine loses commits, or the whole database"
        yield Check(name, State.PROBLEM, said, "set fsync = on in postgresql.conf and reload")
    if found.get("full_page_writes") == "off":
        said = "full_page_writes is off: a crash can leave torn pages"
        yield Check(name, State.PROBLEM, said, "set full_page_writes = on in postgresql.conf and reload")
    if found.get("synchronous_commit") == "off":
        said = "synchronous_commit is off: a confirmed commit can vanish in a crash"
        yield Check(name, State.PROBLEM, said, "set synchronous_commit = on for the server, the database or the role")
    if found.get("transaction_read_only") == "on":
        said = "the database takes no writes (a standby, or default_transaction_read_only)"
        yield Check(name, State.PROBLEM, said, "point the sink at the primary")


def delta_table(sink: Sink) -> Iterator[Check]:
    """A Delta table's own settings, where it exists already."""
    try:
        deltalake: Any = importlib.import_module("deltalake")
    except ModuleNotFoundError:
        yield Check(sink.address, State.HINT, "deltalake is not installed", "pip install 'onceonly[delta]'")
        return
    path = table_path(sink.address)
    if not deltalake.DeltaTable.is_deltatable(path):
        yield Check(sink.address, State.HINT, f"{path} is no Delta table yet; the first epoch creates it")
        return
    table = deltalake.DeltaTable(path)
    yield Check(sink.address, State.OK, f"readable at version {table.version()}")
    yield from judge_properties(sink.address, table.metadata().configuration)


def table_path(address: str) -> str:
    """The table that a Delta sink's address names."""
    return address.removeprefix("delta:").partition("#")[0]


def judge_properties(name: str, properties: Mapping[str, str]) -> Iterator[Check]:
    """Properties under which markers are forgotten."""
    kept = properties.get(RETENTION)
    if kept is not None:
        remedy = f"ALTER TABLE ... UNSET TBLPROPERTIES ('{RETENTION}')"
        yield Check(name, State.PROBLEM, f"forgets markers after {kept} ({RETENTION})", remedy)
