"""What ``queries adopt`` is about to do, put together before anybody says yes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from onceonly.cli import records
from onceonly.cli.output import say, talk
from onceonly.cli.places import Place
from onceonly.errors import refuse
from onceonly.resolve import adopt, nothing_to_adopt, refused_start, target
from onceonly.sources import describe
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.slices import SourceOffsets


class Overlap(StrEnum):
    """What can be done about an overlap."""

    ACCEPT_DUPLICATES = "accept-duplicates"


_AFTER = {
    "keep-recomputed-state": "rows of committed epochs stay as they were written. Spark's windows and seen keys come "
    "from the batch as it was run again: later results build on rows that the sinks never got, and may not agree with "
    "those that they hold. Holds for replays until the next new epoch",
}
"""What is true afterwards, where the name of the option does not say it all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An adoption before it happens.

    Attributes:
        kind: what the operator accepts.
        start: where the next batch starts; ``None``: where the batch started that was refused last.
        reason: for the record.
        pairs: the plan in words.
    """

    kind: str
    start: SourceOffsets | None
    reason: str
    pairs: tuple[tuple[str, object], ...]


def only_kind(chosen: Mapping[str, bool]) -> str:
    """The one thing that is accepted.

    Raises:
        ConfigurationError: E110, none or several were given.
    """
    kinds = [kind for kind, given in chosen.items() if given]
    if len(kinds) == 1:
        return kinds[0]
    raise refuse(
        "E110",
        problem="queries adopt takes exactly one thing to accept"
        + (f", not {len(kinds)}: {', '.join(kinds)}." if kinds else "."),
        cause="each adoption is one decision, by name",
        next="give one of --accept-loss, --overlap accept-duplicates, --accept-state-loss, --continue, "
        "--accept-change, --keep-recomputed-state, --start OFFSETS, --from-checkpoint PATH",
    )


def plan(place: Place, kind: str, start: str | None, reason: str) -> Plan:
    """Say what an adoption would do.

    Raises:
        OnceOnlyError: E110, no epoch to start from, or ``start`` is not offsets.
    """
    ledger, refused = place.certain_ledger, refused_start(place.certain_ledger, place.pipeline)
    known = records.newest(place, 1)
    last = known[-1].epoch if known else None
    if last is None and refused is None:
        raise nothing_to_adopt(place.pipeline)
    sources = last.slice.end.sources if last else refused.sources if refused else ()
    said = None if start is None else parse_start(start, sources)
    pairs = (
        ("pipeline", place.pipeline),
        ("accepts", f"{kind}: {reason}" if reason else kind),
        ("sinks", ", ".join(f"{sink.id} ({sink.address})" for sink in place.sinks)),
        ("ledger", ledger.address),
        ("stands", f"epoch {last.number}, at {describe(last.slice.end)}" if last else "where no marker says any more"),
        ("moves to", describe(said) if said else _by_itself(kind, last, refused)),
        ("does", "writes an epoch without rows into every sink; every running driver of the pipeline is fenced out"),
        ("after", _AFTER.get(kind)),
    )
    return Plan(kind, said, reason, pairs)


def _by_itself(kind: str, last: Epoch | None, refused: SourceOffsets | None) -> str:
    moved = target(kind, last, refused)
    if moved is None or (last is not None and moved == last.slice.end):
        return f"{describe(moved) if moved else 'nowhere'} (it stays there)"
    return f"{describe(moved)} (the batch starts there that was refused last)"


def parse_start(text: str, sources: tuple[str, ...]) -> SourceOffsets:
    """Understand ``--start``: one offset for a pipeline with one source, else ``{source id: offset}``.

    Raises:
        ConfigurationError: E110, not JSON, or other sources than ``sources``.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _not_offsets(text, sources) from error
    if isinstance(value, dict) and set(value) == set(sources):
        return SourceOffsets.of({source: _offset(value[source]) for source in sources})
    if len(sources) == 1 and isinstance(value, dict | int):
        return SourceOffsets.of({sources[0]: _offset(value)})
    raise _not_offsets(text, sources)


def _offset(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _not_offsets(text: str, sources: tuple[str, ...]) -> Exception:
    return refuse(
        "E110",
        problem=f"--start {text!r} is not the offsets of this pipeline.",
        cause=f"its sources are: {', '.join(sources)}",
        next="give JSON as printed by: onceonly checkpoint offsets --query NAME",
    )


def carry_out(place: Place, plan: Plan) -> None:
    """Adopt.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    epoch = adopt(place.sinks, place.certain_ledger, place.pipeline, plan.kind, start=plan.start, reason=plan.reason)
    say(f"epoch {epoch.number} adopted: {describe(epoch.slice.start)} to {describe(epoch.slice.end)}")
    talk("Now restart the query.")
