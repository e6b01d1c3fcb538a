"""A Postgres server, as a sink or a ledger needs it: its settings and its clock, read and judged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from onceonly.doctor.check import Check, State, spot
from onceonly.doctor.observed import Observed, spell
from onceonly.doctor.rules import Clock, enough_ms, judge_clock, too_short
from onceonly_checkpoints.ledgerplace import place_of, unavailable

_SETTINGS = """
SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN (
    'server_version', 'fsync', 'synchronous_commit', 'synchronous_standby_names', 'full_page_writes',
    'transaction_read_only', 'statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
"""

_TIMEOUTS = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server as a session with the user's own parameters finds it.

    Attributes:
        settings: by name; times in milliseconds, 0 for none.
        clock: against this machine's.
    """

    settings: Mapping[str, str]
    clock: Clock


def read_server(url: str) -> ServerFacts:
    """Ask a server.

    Raises:
        LedgerUnavailable: it does not answer.
        ValueError: not an address.
    """
    place = place_of(url)
    engine = place.engine()
    try:
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(_SETTINGS)
            return ServerFacts({str(name): str(setting) for name, setting in rows}, _clock(connection))
    except SQLAlchemyError as error:
        raise unavailable(place, error) from error
    finally:
        engine.dispose()


def _clock(connection: Connection) -> Clock:
    asked = time.time()
    theirs = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one()
    answered = time.time()
    return Clock(float(theirs) - (asked + answered) / 2, (answered - asked) / 2)


def judge_server(name: str, facts: ServerFacts, observed: Observed) -> Iterator[Check]:
    """Everything that is wrong with a server."""
    yield from judge_settings(name, facts.settings)
    yield from judge_timeouts(name, facts.settings, observed)
    yield from judge_clock(name, facts.clock)


def judge_settings(name: str, found: Mapping[str, str]) -> Iterator[Check]:
    """D201 to D205: settings under which a confirmed commit can vanish, or none can be made."""
    for setting, code in (("fsync", "D201"), ("full_page_writes", "D202"), ("synchronous_commit", "D203")):
        if found.get(setting) == "off":
            yield spot(code, name)
    commit, standbys = found.get("synchronous_commit", ""), found.get("synchronous_standby_names", "")
    if standbys and commit in ("local", "remote_write"):
        yield spot("D204", name, State.HINT, found=commit, standbys=standbys)
    if found.get("transaction_read_only") == "on":
        yield spot("D205", name)


def judge_timeouts(name: str, found: Mapping[str, str], observed: Observed) -> Iterator[Check]:
    """D206, D214: limits of the server that past epochs came near to, or that nothing is known about yet."""
    for setting in _TIMEOUTS:
        limit = int(found.get(setting, "0")) / 1000
        if limit and not observed.epochs:
            yield spot("D214", name, State.HINT, setting=setting, limit=spell(limit))
        elif limit and (state := too_short(limit, observed)):
            longest, enough = spell(observed.longest_open_s), enough_ms(observed)
            yield spot("D206", name, state, setting=setting, limit=spell(limit), longest=longest, enough_ms=enough)
