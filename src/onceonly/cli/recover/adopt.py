"""Plan and print ``queries adopt`` before confirmation."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onceonly.cli import epochs as records
from onceonly.cli import options
from onceonly.cli.checkpoint import plain
from onceonly.cli.connect import Connection
from onceonly.cli.output import say, talk
from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine import acceptance, precheck
from onceonly.machine.acceptance import KINDS, Stop
from onceonly.machine.source_order import describe
from onceonly.protocol import Sink, Witness
from onceonly.runtime import remedies
from onceonly.runtime.operator import adopt, another_range, not_applicable, nothing_to_adopt, refuse_moving, target
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints.epoch import Receipt, receipts_of
from onceonly_checkpoints.model import Adoption, AdoptionKind, SourceOffsets, canonical

_AFTER = {
    AdoptionKind.KEEP_RECOMPUTED_STATE: "rows of committed epochs stay as they were written. Spark's windows and seen "
    "keys come from the batch as it was run again: later results build on rows that the sinks never got, and may not "
    "agree with those that they hold. Holds for replays until the next new epoch",
}
"""What is true afterwards, where the name of the option does not say it all."""

_RANGE = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True, slots=True)
class AdoptionPlan(options.ChangePlan):
    """An adoption before it happens.

    Attributes:
        start: where the next batch starts; ``None``: as what is accepted says it.
    """

    start: SourceOffsets | None

    @property
    def bound(self) -> Mapping[str, str]:
        """Options of the command that say less than the plan does, with what the command that carries it out says."""
        goes_on = self.accepted.offsets if self.accepted.kind is AdoptionKind.CONTINUE else None
        if goes_on is None:
            return {}
        ends = {source: _typed(text) for source, text in goes_on.start.entries}
        return {"--continue": f"--continue={canonical(ends)}"}


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed.

    Attributes:
        kind: the one thing that is accepted.
        value: what stands behind its option; empty for none.
        named: values of ``--sink``: ids, with ``@VERSION`` where a version is meant.
        reason: for the record.
        may_repeat: epochs of which it is not known whether they come again; empty for none.
    """

    kind: AdoptionKind
    value: str
    named: tuple[str, ...]
    reason: str
    may_repeat: str = ""


def only_kind(chosen: Sequence[AdoptionKind]) -> AdoptionKind:
    """The one thing that is accepted.

    Raises:
        ConfigurationError: E110, none or several were given.
    """
    if len(chosen) == 1:
        return chosen[0]
    raise refuse(
        "E110",
        problem="queries adopt takes exactly one thing to accept"
        + (f", not {len(chosen)}: {', '.join(chosen)}." if chosen else "."),
        cause="each adoption is one decision, by name",
        next="give one of --accept-loss A..B, --accept-duplicates A..B, --accept-state-loss, --continue, "
        "--accept-change --sink ID@VERSION, --same-data --sink ID, --keep-recomputed-state N, --start OFFSETS, "
        "--from-checkpoint PATH",
    )


def plan(place: Connection, typed: Typed) -> AdoptionPlan:
    """Say what an adoption would do.

    Raises:
        OnceOnlyError: E110, it does not name exactly what stops the pipeline, or that is not known.
    """
    ledger = place.certain_ledger
    stop = remedies.last(ledger, place.pipeline)
    known = records.newest_epochs(place, 1)
    last = known[-1].epoch if known else None
    if last is None and (stop is None or stop.start is None):
        raise nothing_to_adopt(place.pipeline)
    stop = stop or _seen(place)
    refuse_moving(place.pipeline, ledger, typed.kind, last)
    stands = last.written.end if last else None
    sources = last.written.end.sources if last else stop.start.sources if stop and stop.start else ()
    start = parse_start(typed.value, sources) if typed.kind is AdoptionKind.START else None
    accepted = options.decided(typed.kind, typed.reason) if start else _named(place, typed, stop, stands)
    if accepted.kind is AdoptionKind.ACCEPT_LOSS and accepted.last:
        spoken_of = records.read(place, accepted.first, accepted.last)
        rows = remedies.rows_of(spoken_of, accepted.first, accepted.last, accepted.sinks)
        accepted = replace(accepted, rows=rows or 0)
    moves = start or target(accepted, last, stop)
    pairs = (
        ("pipeline", place.pipeline),
        ("accepts", f"{accepted.words}; {KINDS[typed.kind].words}"),
        ("sinks", place.sinks_in_words),
        ("ledger", ledger.address),
        (
            "stands",
            f"epoch {last.number}, at {describe(last.written.end)}" if last else "where no marker says any more",
        ),
        ("moves to", _spelled(moves, stands, said=start is not None)),
        ("does", "writes an epoch without rows into every sink; every running driver of the pipeline is fenced out"),
        ("not known", _doubt(place, accepted)),
        ("after", _AFTER.get(typed.kind)),
    )
    return AdoptionPlan(accepted, pairs, start)


def _doubt(place: Connection, accepted: Adoption) -> str | None:
    if accepted.kind is not AdoptionKind.CONTINUE or not accepted.first:
        return None
    first, last = accepted.first, accepted.last
    told = remedies.tally(place.certain_ledger.epochs(place.pipeline, first, last), first, last)
    return f"whether the batch repeats epochs {first} to {last} ({told}): if it does, their rows are there twice"


def _spelled(moves: SourceOffsets | None, stands: SourceOffsets | None, *, said: bool) -> str:
    if moves is None or moves == stands:
        return f"{describe(moves) if moves else 'nowhere'} (it stays there)"
    return describe(moves) if said else f"{describe(moves)} (the batch starts there that was refused last)"


def _named(place: Connection, typed: Typed, stop: Stop | None, end: SourceOffsets | None) -> Adoption:
    """What was typed, if it names exactly what stops the pipeline."""
    wanted = acceptance.applicable(typed.kind, stop, end)
    if wanted is None:
        raise not_applicable(place.pipeline, typed.kind)
    given = _given(typed)
    if len(place.sinks) == 1 and not given.sinks and not wanted.versions:
        given = replace(given, sinks=wanted.sinks)
    if not acceptance.same(given, wanted):
        raise _incomplete(place, typed, wanted)
    if typed.kind is AdoptionKind.CONTINUE and typed.value and wanted.offsets:
        shown = wanted.offsets.start
        if parse_start(typed.value, shown.sources, "--continue") != shown:
            raise another_range(place.pipeline, typed.kind)
    return acceptance.complete(given, wanted)


def _given(typed: Typed) -> Adoption:
    pairs = [(name, "", "") for name in typed.named]
    if KINDS[typed.kind].version:
        pairs = [name.rpartition("@") if "@" in name else (name, "", "") for name in typed.named]
    sinks, versions = tuple(name for name, _, _ in pairs), tuple(version for _, _, version in pairs)
    # Behind --continue stand offsets, which may be digits.
    epochs = typed.value if KINDS[typed.kind].epochs else typed.may_repeat
    range_ = _RANGE.fullmatch(epochs)
    one = epochs if epochs.isdigit() else "0"
    first, last = (int(range_[1]), int(range_[2])) if range_ else (int(one), int(one))
    return options.decided(
        typed.kind, typed.reason, sinks=sinks, first=first, last=last, versions=versions if any(versions) else ()
    )


def _incomplete(place: Connection, typed: Typed, wanted: Adoption) -> OnceOnlyError:
    where = CommandContext(place.pipeline, f" --ledger {shlex.quote(place.certain_ledger.address)}")
    what = "is to name what it accepts" if not typed.value and not typed.named else "names something else"
    return refuse(
        "E110",
        problem=f"--{typed.kind} {what}: {wanted.words} stops the pipeline.",
        cause="an acceptance covers what it names, and nothing else",
        next=where.adopt(wanted),
    )


def _seen(place: Connection) -> Stop | None:
    """Where nothing was refused since the last epoch: what would be, by the rules of an opening."""
    head = place.certain_ledger.head(place.pipeline)
    receipts = receipts_of(head)
    told = [_told(sink, place.pipeline, receipts.get(sink.id)) for sink in place.sinks]
    found = precheck.opening_refusal(place.pipeline, told, head)
    return found.stop if found else None


def _told(sink: Sink, pipeline: str, receipt: Receipt | None) -> precheck.PeekedSink:
    history = tuple(records.history(sink, pipeline))
    since = receipt or (history[-1][1] if history else None)
    events = tuple(sink.disturbances(since)) if since and isinstance(sink, Witness) else ()
    return precheck.PeekedSink(sink.id, history, events)


def parse_start(text: str, sources: tuple[str, ...], option: str = "--start") -> SourceOffsets:
    """Understand what stands behind an option: one offset for a pipeline with one source, else ``{source id: offset}``.

    Raises:
        ConfigurationError: E110, not JSON, or other sources than ``sources``.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _not_offsets(text, sources, option) from error
    if isinstance(value, dict) and set(value) == set(sources):
        return SourceOffsets.of({source: _offset(value[source]) for source in sources})
    if len(sources) == 1 and isinstance(value, dict | int):
        return SourceOffsets.of({sources[0]: _offset(value)})
    raise _not_offsets(text, sources, option)


def _typed(text: str | None) -> Any:
    """An offset as :func:`parse_start` reads it back: JSON that is a text itself stays as it is spelled."""
    value = plain(text)
    return text if isinstance(value, str) else value


def _offset(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _not_offsets(text: str, sources: tuple[str, ...], option: str) -> Exception:
    return refuse(
        "E110",
        problem=f"{option} {text!r} is not the offsets of this pipeline.",
        cause=f"its sources are: {', '.join(sources)}",
        next="give JSON as printed by: onceonly checkpoint offsets --query NAME",
    )


def carry_out(place: Connection, plan: AdoptionPlan) -> None:
    """Adopt.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    epoch = adopt(place.sinks, place.certain_ledger, place.pipeline, plan.accepted, start=plan.start)
    if epoch is None:
        say("nothing had to be accepted: every sink holds what it should")
    else:
        say(f"epoch {epoch.number} adopted: {describe(epoch.written.start)} to {describe(epoch.written.end)}")
    talk("Now restart the query.")
