"""``onceonly ledger``: rebuild, prune and export the index."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from onceonly.audit.sink_history import ranges
from onceonly.cli.connect import Connection, ledger_address, no_ledger, open_ledger, place
from onceonly.cli.epochs import history, merged
from onceonly.cli.options import LedgerOption, QueryOption, SinkOption, YesOption, confirmed
from onceonly.cli.output import SCHEMA_VERSION, emit_pairs, plural, say
from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.overlap import compares_all
from onceonly.protocol import Sink
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord, Marker, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Ledger, Pipeline

# ---- What ``ledger prune`` is about to do, and what is lost with it.


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """A shortening before it happens.

    Attributes:
        before: epochs below this one are forgotten; 0 where there is nothing to forget.
        pairs: the plan in words.
    """

    before: int
    pairs: tuple[tuple[str, object], ...]


def plan_prune(place: Connection, keep: int) -> PrunePlan:
    """Read ledger and sinks. Writes nothing.

    Raises:
        ConfigurationError: E110, the file lists of all epochs are still needed.
    """
    numbers = tuple(record.epoch.number for record in place.certain_ledger.epochs(place.pipeline))
    pins = place.certain_ledger.pins(place.pipeline)
    pinned = (
        [("pinned", f"epoch {pins[0].epoch}, which {pins[0].owner} reads: it stays, and all after it")] if pins else []
    )
    going = tuple(number for number in numbers[:-keep] if not pins or number < pins[0].epoch)
    if not going:
        holds = ("holds", plural(len(numbers), "epoch"))
        return PrunePlan(0, (("ledger", place.certain_ledger.address), holds, *pinned, _NOTHING))
    newest = place.certain_ledger.head(place.pipeline)
    if newest and compares_all(newest.epoch):
        raise _still_compared(place.pipeline, newest.epoch.number)
    before = going[-1] + 1
    pairs: list[tuple[str, object]] = [
        ("ledger", place.certain_ledger.address),
        ("forgets", f"epochs {ranges(going)}: phase times, input files, receipts"),
        ("keeps", f"epochs {ranges(numbers[len(going) :])}"),
        *pinned,
    ]
    for sink in place.sinks:
        oldest = _oldest(sink, place.pipeline)
        unproven = tuple(number for number in going if number < oldest)
        if unproven:
            pairs.append(
                (sink.id, f"its markers begin at epoch {oldest}: nothing will prove epochs {ranges(unproven)}")
            )
    if any(record.files for record in place.certain_ledger.epochs(place.pipeline, going[0], going[0])):
        pairs.append(("file source", 'a batch that overlaps can no longer be trimmed (overlap="trim"), but is refused'))
    return PrunePlan(before, tuple(pairs))


def _still_compared(pipeline: str, newest: int) -> OnceOnlyError:
    return refuse(
        "E110",
        problem=f'The query of "{pipeline}" still compares its batches with the files of all epochs.',
        cause=f"epoch {newest} is of a checkpoint that began with files which epochs before it hold",
        next='restart the query with overlap="trim" once its checkpoint has handed out all of them, then prune',
    )


_NOTHING = ("forgets", "nothing")


def _oldest(sink: Sink, pipeline: str) -> int:
    sink.open(pipeline)
    return next((marker.epoch.number for marker, _ in sink.history()), 0)


def carry_out_prune(place: Connection, plan: PrunePlan) -> None:
    """Forget, and note that it was done."""
    place.certain_ledger.prune(place.pipeline, plan.before)
    generation = place.entry.generation if place.entry else 0
    reason = f"epochs below {plan.before} were forgotten to save room"
    place.certain_ledger.note(Event(place.pipeline, EventKind.PRUNED, reason, plan.before, generation))


# ---- Writes a ledger out as JSON lines, each of which stands alone.

_AT_ONCE = 500


def export_lines(ledger: Ledger, query: str | None) -> None:
    """Print one pipeline, or all.

    Raises:
        ConfigurationError: E110, the ledger does not know the pipeline.
    """
    known = ledger.pipelines()
    chosen = [entry for entry in known if query in (None, entry.name)]
    if query is not None and not chosen:
        raise refuse(
            "E110",
            problem=f'The ledger does not know a pipeline "{query}".',
            cause=f"it knows: {', '.join(entry.name for entry in known) or 'none'}",
            next="onceonly queries list",
        )
    for line in lines(ledger, chosen):
        print(json.dumps(line, ensure_ascii=False))


def lines(ledger: Ledger, chosen: list[Pipeline]) -> Iterator[dict[str, Any]]:
    """What is written, one line each; epochs are read a few hundred at a time."""
    yield {"kind": "ledger", "schema_version": SCHEMA_VERSION, "address": ledger.address}
    for entry in chosen:
        yield {"kind": "pipeline", **asdict(entry), "sinks": dict(entry.sinks)}
        for first in range(1, entry.epoch + 1, _AT_ONCE):
            for record in ledger.epochs(entry.name, first, first + _AT_ONCE - 1):
                yield {"kind": "epoch", **_epoch(record)}
        for event in ledger.events(entry.name, limit=2**31):
            yield {**asdict(event), "kind": "event", "what": str(event.kind)}


def _epoch(record: EpochRecord) -> dict[str, Any]:
    return {
        "pipeline": record.pipeline,
        "fence": record.fence.to_json(),
        "epoch": record.epoch.to_json(),
        "receipts": [receipt.to_json() for receipt in record.receipts],
        "files": [file.to_json() for file in record.files],
        "phases": dict(record.phases),
        "recorded_ms": record.recorded_ms,
    }


# ---- What ``ledger rebuild`` is about to do: which records go, which come, and that the sinks agree on them.


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """A rebuild before it happens.

    Attributes:
        first: records from this epoch on are forgotten.
        records: what is written in their place, oldest first.
        pairs: the plan in words.
    """

    first: int
    records: tuple[EpochRecord, ...]
    pairs: tuple[tuple[str, object], ...]

    @property
    def newest(self) -> int:
        """The newest epoch after the rebuild."""
        return self.records[-1].epoch.number


def plan_rebuild(place: Connection, address: str) -> RebuildPlan:
    """Read every sink and compare with the ledger. Writes nothing, and creates no ledger.

    Args:
        place: the pipeline; its ledger may not be there yet.
        address: where the ledger lies or will lie.

    Raises:
        OnceOnlyError: E110 no sink or no marker, E210 markers that contradict each other; what a sink raises.
    """
    if not place.sinks:
        raise refuse(
            "E110",
            problem="The sinks to read from are not known.",
            cause=f'the ledger does not know pipeline "{place.pipeline}"',
            next="name them: --sink KIND:TARGET",
        )
    held = [pair for sink in place.sinks for pair in history(sink, place.pipeline)]
    agree(place.pipeline, held)
    if not held:
        raise refuse(
            "E110",
            problem=f'No sink holds a marker of "{place.pipeline}".',
            cause="the name or the addresses are wrong, or nothing was written yet",
            next=f"onceonly audit --query {shlex.quote(place.pipeline)} --sink KIND:TARGET",
        )
    recorded = tuple(place.ledger.epochs(place.pipeline)) if place.ledger else ()
    return _compare(place, address, recorded, held)


def agree(pipeline: str, held: Iterable[tuple[Marker, Receipt]]) -> None:
    """Demand that every marker is sound and that sinks hold the same chain for an epoch.

    Raises:
        IdentityError: E210.
    """
    chains: dict[int, str] = {}
    for marker, _ in held:
        epoch = marker.epoch
        if not chain.sound(epoch) or chains.setdefault(epoch.number, epoch.chain) != epoch.chain:
            raise refuse("E210", epoch=epoch.number, sink=marker.sink, pipeline=pipeline)


def _compare(
    place: Connection, address: str, recorded: tuple[EpochRecord, ...], held: list[tuple[Marker, Receipt]]
) -> RebuildPlan:
    first = min(marker.epoch.number for marker, _ in held)
    last = max(marker.epoch.number for marker, _ in held)
    mine = [record for record in recorded if first <= record.epoch.number <= last]
    named = {marker.epoch.number for marker, _ in held}
    records = tuple(one for one in merged(place.pipeline, mine, held) if one.epoch.number in named)
    known = {record.epoch.chain for record in recorded}
    kept = tuple(one.epoch.number for one in records if one.epoch.chain in known)
    new = tuple(one.epoch.number for one in records if one.epoch.chain not in known)
    chains = {one.epoch.chain for one in records}
    gone = tuple(one.epoch.number for one in recorded if one.epoch.number >= first and one.epoch.chain not in chains)
    pairs = (
        ("pipeline", place.pipeline),
        ("ledger", address),
        ("read from", ", ".join(sink.address for sink in place.sinks)),
        ("kept", _words(kept)),
        ("added from markers", _words(new)),
        ("forgotten", _words(gone)),
    )
    return RebuildPlan(first, records, pairs)


def _words(numbers: tuple[int, ...]) -> str:
    return f"epochs {ranges(numbers)}" if numbers else "nothing"


def carry_out_rebuild(place: Connection, plan: RebuildPlan) -> None:
    """Forget and record. Interrupted in between it can simply be run again: the sinks are not touched.

    Raises:
        LedgerUnavailable: the ledger cannot be written.
    """
    ledger = place.certain_ledger
    if place.entry is None:
        ledger.enter(_entry(place, plan.records[-1]))
    ledger.discard(place.pipeline, plan.first)
    for record in plan.records:
        ledger.record(record)
    reason = f"epochs {plan.first} to {plan.newest} read back from {', '.join(sink.id for sink in place.sinks)}"
    generation = plan.records[-1].fence.generation
    ledger.note(Event(place.pipeline, EventKind.REBUILT, reason, plan.newest, generation))


def _entry(place: Connection, newest: EpochRecord) -> Pipeline:
    lineage = newest.epoch.lineage
    return Pipeline(
        name=place.pipeline,
        sinks=tuple((sink.id, sink.address) for sink in place.sinks),
        query_id=lineage.query_id if lineage else "",
        checkpoint=lineage.checkpoint if lineage else "",
        generation=newest.fence.generation,
        opened_ms=0,
    )


# ---- The commands.

app = typer.Typer(no_args_is_help=True, help="The ledger, an index of what the sinks hold: rebuild, prune, export.")


@app.callback()
def group() -> None:
    """The ledger: an index, never an authority."""


@app.command()
def rebuild(
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Rebuild a pipeline's part of the ledger from the markers in its sinks.

    Records that agree with a marker keep their files and phase times; epochs that the sinks no longer remember stay.
    """
    with place(ledger, query, sink) as here:
        plan = plan_rebuild(here, ledger_address(ledger, here))
    emit_pairs(plan.pairs)
    if confirmed(yes):
        with place(ledger, here.pipeline, sink, create=True) as here:
            carry_out_rebuild(here, plan)
            say(f"ledger of {here.pipeline} rebuilt up to epoch {plan.newest}")


@app.command()
def prune(
    *,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    keep_epochs: Annotated[
        int, typer.Option("--keep-epochs", metavar="N", min=1, help="Keep this many of the newest epochs.")
    ],
    yes: YesOption = False,
) -> None:
    """Forget old epochs of one pipeline. The sinks are not touched; events stay.

    What only the ledger knows of these epochs is lost: phase times, input files, and the proof of epochs whose markers
    a sink no longer remembers. The plan says how many these are.
    """
    with place(ledger, query) as here:
        plan = plan_prune(here, keep_epochs)
        emit_pairs(plan.pairs)
        if plan.before and confirmed(yes):
            carry_out_prune(here, plan)
            say(f"ledger of {here.pipeline} begins at epoch {plan.before}")


@app.command()
def export(query: QueryOption = None, ledger: LedgerOption = None) -> None:
    """Write the ledger to stdout, one JSON object a line: pipelines, then of each its epochs and events."""
    if ledger is None:
        raise no_ledger()
    opened = open_ledger(ledger)
    try:
        export_lines(opened, query)
    finally:
        opened.close()
