"""Checks of destinations: whether they answer, and what in them breaks the promise."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly.audit.facts import reason_of
from onceonly.doctor import UNOBSERVED, Check, Observed, State
from onceonly.doctor.server import judge_server, read_server
from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import Examinable, Sink
from onceonly.registry import sink_from_address
from onceonly_checkpoints.ledger import LedgerUnavailable

NOBODY = "onceonly-doctor"
"""A name that no pipeline has: opening creates nothing, so nothing remembers it."""


def destination(
    address: str, pipeline: str = NOBODY, observed: Observed = UNOBSERVED, ledger: str | None = None
) -> Iterator[Check]:
    """Everything about one address; a plain Postgres DSN is checked as a server.

    Args:
        address: of a sink, or a DSN.
        pipeline: the pipeline that writes there.
        observed: what its past epochs took.
        ledger: where the ledger lies; a sink in its database logs in as it does.
    """
    if address.startswith(("postgres://", "postgresql://")):
        yield from server(mask(address), address, observed)
        return
    try:
        sink = sink_from_address(address, ledger)
    except (OnceOnlyError, OSError) as error:
        yield _silent(address, error)
        return
    yield from of_sink(sink, pipeline, observed)


def of_sink(sink: Sink, pipeline: str = NOBODY, observed: Observed = UNOBSERVED) -> Iterator[Check]:
    """Everything about one sink, which is opened and closed; what it refuses ends it.

    Args:
        sink: not open.
        pipeline: the pipeline that writes there.
        observed: what its past epochs took.
    """
    try:
        yield from _sink(sink, pipeline, observed)
    except (OnceOnlyError, OSError) as error:
        yield _silent(sink.address, error)
    finally:
        sink.close()


def _silent(address: str, error: Exception) -> Check:
    remedy = error.remedy if isinstance(error, OnceOnlyError) else ""
    code = error.code if isinstance(error, OnceOnlyError) else ""
    return Check(mask(address), State.PROBLEM, reason_of(error), remedy, code)


def _sink(sink: Sink, pipeline: str, observed: Observed) -> Iterator[Check]:
    sink.open(pipeline)
    yield Check(sink.address, State.OK, f"answers; an epoch is committed by: {sink.capabilities.committer}")
    if sink.ledger_url:
        yield from server(sink.address, sink.ledger_url, observed)
    if isinstance(sink, Examinable):
        yield from sink.examine(observed)
    else:
        said = f"{type(sink).__name__} has no examine(): no more than its opening was checked"
        yield Check(sink.address, State.HINT, said)


def server(name: str, url: str, observed: Observed = UNOBSERVED) -> Iterator[Check]:
    """A Postgres server: reachable, and none of the settings that lose or forbid commits."""
    try:
        found = read_server(url)
    except (LedgerUnavailable, ValueError) as error:
        remedy = "check host, port, database, role and password (PGPASSWORD, ~/.pgpass)"
        yield Check(name, State.PROBLEM, reason_of(error), remedy)
        return
    yield Check(name, State.OK, f"Postgres {found.settings['server_version']} answers")
    yield from judge_server(name, found, observed)
