"""What ``exactly_once()`` is called with: what cannot mean anything is refused by name, before a query starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from onceonly.engine import LOSSY
from onceonly.errors import refuse
from onceonly.facts import Adopt, Overlap
from onceonly.protocol import Sink
from onceonly.stagefiles import directory
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.slices import SourceOffsets, canonical

_OVERLAPS: dict[str, Overlap] = {"stop": "stop", "trim": "trim"}


def overlap(wanted: str) -> Overlap:
    """What to do with rows of recorded epochs.

    Raises:
        ConfigurationError: E110, no such way.
    """
    chosen = _OVERLAPS.get(wanted)
    if chosen is None:
        raise _meaningless("overlap", wanted, '"stop" or "trim"')
    return chosen


def check_before(before: object) -> None:
    """Refuse what cannot be called with a batch.

    Raises:
        ConfigurationError: E110.
    """
    if before is not None and (not callable(before) or isinstance(before, type)):
        raise _meaningless("before", before, "a function from DataFrame to DataFrame")


def check_name(name: str | None) -> None:
    """Refuse a name that nobody can type.

    Raises:
        ConfigurationError: E110.
    """
    if name is not None and not name.strip():
        raise _meaningless("name", name, "a name that is not blank")


def check_lossy(kind: str | None) -> None:
    """Refuse a kind of source that keeps its rows, or that there is none of.

    Raises:
        ConfigurationError: E110.
    """
    if kind is not None and kind not in LOSSY.values():
        raise _meaningless("lossy_source", kind, " or ".join(f'"{known}"' for known in LOSSY.values()))


def check_ledger(ledger: object) -> None:
    """Refuse what is neither the place of a ledger nor a ledger; a class is none.

    Raises:
        ConfigurationError: E110.
    """
    if ledger is None or isinstance(ledger, str | os.PathLike):
        return
    if isinstance(ledger, type) or not isinstance(ledger, Ledger):
        raise _meaningless("ledger", ledger, "a URL, the path of a SQLite file, or a Ledger that was made")


def staging_place(staging: str | os.PathLike[str] | None) -> str | None:
    """Where epochs are staged, as text.

    Raises:
        ConfigurationError: E114, files cannot lie there, or not be read from here.
    """
    if staging is None:
        return None
    place = os.fspath(staging)
    directory(place)  # what cannot be reached from here is refused before the query starts
    return place


def adopted(adopt: str | Mapping[str, Any] | None) -> Adopt:
    """Where a target stands that already holds rows.

    Raises:
        ConfigurationError: E110, neither ``"here"`` nor offsets.
    """
    if adopt is None:
        return None
    if adopt == "here":
        return "here"
    if not isinstance(adopt, Mapping):
        raise _meaningless("adopt", adopt, '"here", or the offsets that the target already contains')
    texts = {source: value if isinstance(value, str) else canonical(value) for source, value in adopt.items()}
    return SourceOffsets.of(texts)


def check_sinks(sinks: tuple[Sink, ...]) -> None:
    """Refuse what does not form an epoch.

    Raises:
        ConfigurationError: E102, no sink, not a sink, or two with one id.
    """
    example = "pass a sink, e.g. exactly_once(PostgresSink(dsn, table='orders'))"
    if not sinks:
        raise refuse("E102", problem="there is none", next=example)
    for sink in sinks:
        if isinstance(sink, type):
            problem = f"the class {sink.__name__} was given, and a sink made with it is wanted"
            raise refuse("E102", problem=problem, next=example)
        if not isinstance(sink, Sink):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
            problem = f"{type(sink).__name__!r} is not a sink"
            raise refuse("E102", problem=problem, next=example)
    ids = [sink.id for sink in sinks]
    if twins := {id_ for id_ in ids if ids.count(id_) > 1}:
        problem = f"two of them have the id {min(twins)!r}"
        raise refuse("E102", problem=problem, next="tell them apart: PostgresSink(..., id='orders-eu')")


def check_one_by_one(sinks: tuple[Sink, ...], overlap: Overlap, staging: str | None) -> None:
    """Refuse what a sink without a transaction cannot carry.

    Args:
        sinks: all of the call.
        overlap: what was chosen.
        staging: where epochs are staged; ``None`` where that was not asked for.

    Raises:
        ConfigurationError: E128.
    """
    for sink in sinks:
        if not sink.capabilities.transactional:
            for problem, way in _too_much(sink, sinks, overlap, staging):
                raise refuse("E128", sink=sink.id, problem=problem, next=way)


def _too_much(sink: Sink, sinks: tuple[Sink, ...], overlap: Overlap, staging: str | None) -> Iterator[tuple[str, str]]:
    """Each thing that was asked of a sink without a transaction and hangs on one, with the way out."""
    others = ", ".join(other.id for other in sinks if other is not sink)
    if sink.capabilities.append_only:
        yield (
            "it only adds rows, so a replay would add them again",
            "give its rows a key: a row that is put again then replaces itself",
        )
    if sink.capabilities.carries_ledger:
        yield "it would carry the ledger's record in a transaction", "have the sink declare carries_ledger=False"
    if others:
        way = "give it a query of its own, with its own checkpoint and name: exactly_once(sink)"
        yield f"it stands beside {others}, which may then hold what it holds in part", way
    if staging is not None:
        yield "staging= was given, and parts of a staged epoch would stand for the whole", "leave staging= out"
    if overlap == "trim":
        what = 'overlap="trim" was given, and rows may stand there that no epoch holds'
        yield what, 'leave overlap="trim" out: rows that come again are put again under their keys'


def _meaningless(argument: str, value: object, wanted: str) -> Exception:
    return refuse(
        "E110",
        problem=f"exactly_once({argument}={value!r}) is not understood.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}, or leave {argument}= out",
    )
