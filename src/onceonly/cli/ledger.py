"""``ledger prune``, ``recover rebuild-ledger``, ``datasets``, ``lineage resend``: the index of epochs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from onceonly.audit.sink_history import ranges
from onceonly.cli.change import Change, carry_out
from onceonly.cli.connect import Connection, connect, ledger_address, open_ledger
from onceonly.cli.options import (
    LedgerOption,
    OnlyArgument,
    OutputOption,
    QueryOption,
    SinkOption,
    YesOption,
    epoch_range,
    one_name,
)
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, plural, say
from onceonly.cli.records import history, merged
from onceonly.errors import refuse
from onceonly.errors.options import misused
from onceonly.machine.overlap import compares_all
from onceonly.reading import points
from onceonly.reading.points import DatasetWriter
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord, Marker, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Pipeline
from onceonly_checkpoints.model import shorten_list

# ---- What ``ledger prune`` is about to do, and what is lost with it.


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """A shortening before it happens.

    Attributes:
        before: epochs below this one are forgotten; 0 where there is nothing to forget.
    """

    before: int
    pairs: tuple[tuple[str, object], ...]


def plan_prune(connection: Connection, keep: int) -> PrunePlan:
    """Read ledger and sinks. Writes nothing. Raises E110: the file lists of all epochs are still needed."""
    numbers = tuple(record.epoch.number for record in connection.certain_ledger.epochs(connection.pipeline))
    pins = connection.certain_ledger.pins(connection.pipeline)
    pinned = (
        [("pinned", f"epoch {pins[0].epoch}, which {pins[0].owner} reads: it stays, and all after it")] if pins else []
    )
    going = tuple(number for number in numbers[:-keep] if not pins or number < pins[0].epoch)
    if not going:
        holds = ("holds", plural(len(numbers), "epoch"))
        return PrunePlan(0, (("ledger", connection.certain_ledger.address), holds, *pinned, ("forgets", "nothing")))
    newest = connection.certain_ledger.head(connection.pipeline)
    if newest and compares_all(newest.epoch):
        raise misused(
            f'The query of "{connection.pipeline}" still compares its batches with the files of all epochs.',
            f"epoch {newest.epoch.number} is of a checkpoint that began with files which epochs before it hold",
            'restart the query with recovery=Recovery(overlap="trim") once its checkpoint has handed out all of '
            "them, then prune",
        )
    before = going[-1] + 1
    pairs: list[tuple[str, object]] = [
        ("ledger", connection.certain_ledger.address),
        ("forgets", f"epochs {ranges(going)}: phase times, input files, receipts"),
        ("keeps", f"epochs {ranges(numbers[len(going) :])}"),
        *pinned,
    ]
    for sink in connection.sinks:
        sink.open(connection.pipeline)
        oldest = next((marker.epoch.number for marker, _ in sink.history()), 0)
        unproven = tuple(number for number in going if number < oldest)
        if unproven:
            pairs.append(
                (sink.id, f"its markers begin at epoch {oldest}: nothing will prove epochs {ranges(unproven)}")
            )
    if any(record.files for record in connection.certain_ledger.epochs(connection.pipeline, going[0], going[0])):
        pairs.append(("file source", 'a batch that overlaps can no longer be trimmed (overlap="trim"), but is refused'))
    return PrunePlan(before, tuple(pairs))


def _prune(connection: Connection, plan: PrunePlan) -> None:
    """Forget, and note that it was done. Without anything to forget, do nothing."""
    if not plan.before:
        return
    connection.certain_ledger.prune(connection.pipeline, plan.before)
    generation = connection.entry.generation if connection.entry else 0
    reason = f"epochs below {plan.before} were forgotten to save room"
    connection.certain_ledger.note(Event(connection.pipeline, EventKind.PRUNED, reason, plan.before, generation))
    say(f"ledger of {connection.pipeline} begins at epoch {plan.before}")


def prune(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    keep_epochs: Annotated[
        int, typer.Option("--keep-epochs", metavar="N", min=1, help="Keep this many of the newest epochs.")
    ],
    yes: YesOption = False,
) -> None:
    """Forget old epochs of one pipeline. The sinks are not touched; events stay.

    You lose what only the ledger knows of these epochs: phase times, input files, and the proof of epochs whose markers
    a sink no longer remembers. The plan says how many these are.
    """
    with connect(ledger, one_name(context, name, query)) as connection:
        plan = plan_prune(connection, keep_epochs)
        carry_out(Change(plan.pairs, partial(_prune, connection, plan)), yes=yes or not plan.before)


# ---- ``onceonly recover rebuild-ledger``: read markers back into the ledger.


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """A rebuild before it happens.

    Attributes:
        first: records from this epoch on are forgotten.
        records: what is written in their place, oldest first.
    """

    first: int
    records: tuple[EpochRecord, ...]
    pairs: tuple[tuple[str, object], ...]

    @property
    def newest(self) -> int:
        """The newest epoch after the rebuild."""
        return self.records[-1].epoch.number


def plan_rebuild(connection: Connection, address: str) -> RebuildPlan:
    """Read every sink and compare with the ledger. Writes nothing, and creates no ledger.

    Raises E110: no sink or no marker, E210: markers that contradict each other; what a sink raises.
    """
    if not connection.sinks:
        raise misused(
            "The sinks to read from are not known.",
            f'the ledger does not know pipeline "{connection.pipeline}"',
            "name them: --sink KIND:TARGET",
        )
    held = [pair for sink in connection.sinks for pair in history(sink, connection.pipeline)]
    agree(connection.pipeline, held)
    if not held:
        raise misused(
            f'No sink holds a marker of "{connection.pipeline}".',
            "the name or the addresses are wrong, or nothing was written yet",
            f"onceonly audit --query {shlex.quote(connection.pipeline)} --sink KIND:TARGET",
        )
    recorded = tuple(connection.ledger.epochs(connection.pipeline)) if connection.ledger else ()
    return _compare(connection, address, recorded, held)


def agree(pipeline: str, held: Iterable[tuple[Marker, Receipt]]) -> None:
    """Demand that every marker is sound and that sinks hold the same chain for an epoch (E210)."""
    chains: dict[int, str] = {}
    for marker, _ in held:
        epoch = marker.epoch
        if not chain.sound(epoch) or chains.setdefault(epoch.number, epoch.chain) != epoch.chain:
            raise refuse("E210", epoch=epoch.number, sink=marker.sink, pipeline=pipeline)


def _compare(
    connection: Connection, address: str, recorded: tuple[EpochRecord, ...], held: list[tuple[Marker, Receipt]]
) -> RebuildPlan:
    first = min(marker.epoch.number for marker, _ in held)
    last = max(marker.epoch.number for marker, _ in held)
    mine = [record for record in recorded if first <= record.epoch.number <= last]
    named = {marker.epoch.number for marker, _ in held}
    records = tuple(record for record in merged(connection.pipeline, mine, held) if record.epoch.number in named)
    recorded_chains = {record.epoch.chain for record in recorded}
    unchanged = tuple(record.epoch.number for record in records if record.epoch.chain in recorded_chains)
    new = tuple(record.epoch.number for record in records if record.epoch.chain not in recorded_chains)
    chains = {record.epoch.chain for record in records}
    gone = tuple(
        record.epoch.number for record in recorded if record.epoch.number >= first and record.epoch.chain not in chains
    )
    pairs = (
        ("pipeline", connection.pipeline),
        ("ledger", address),
        ("read from", ", ".join(sink.address for sink in connection.sinks)),
        ("kept", _words(unchanged)),
        ("added from markers", _words(new)),
        ("forgotten", _words(gone)),
    )
    return RebuildPlan(first, records, pairs)


def _words(numbers: tuple[int, ...]) -> str:
    return f"epochs {ranges(numbers)}" if numbers else "nothing"


def _rebuild(connection: Connection, plan: RebuildPlan) -> None:
    """Forget and record. Interrupted in between, it can be run again: the sinks are not touched."""
    ledger = connection.certain_ledger
    if connection.entry is None:
        ledger.enter(_entry(connection, plan.records[-1]))
    ledger.discard(connection.pipeline, plan.first)
    for record in plan.records:
        ledger.record(record)
    reason = f"epochs {plan.first} to {plan.newest} read back from {', '.join(sink.id for sink in connection.sinks)}"
    generation = plan.records[-1].fence.generation
    ledger.note(Event(connection.pipeline, EventKind.REBUILT, reason, plan.newest, generation))


def _entry(connection: Connection, newest: EpochRecord) -> Pipeline:
    lineage = newest.epoch.lineage
    return Pipeline(
        name=connection.pipeline,
        sinks=tuple((sink.id, sink.address) for sink in connection.sinks),
        query_id=lineage.query_id if lineage else "",
        checkpoint=lineage.checkpoint if lineage else "",
        generation=newest.fence.generation,
        opened_ms=0,
    )


def rebuild(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Rebuild a pipeline's part of the ledger from the markers in its sinks.

    Records that agree with a marker keep their files and phase times; epochs that the sinks no longer remember stay.
    """
    with connect(ledger, one_name(context, name, query), sink) as connection:
        plan = plan_rebuild(connection, ledger_address(ledger, connection))

    def run() -> None:
        with connect(ledger, connection.pipeline, sink, create=True) as created:
            _rebuild(created, plan)
        say(f"ledger of {connection.pipeline} rebuilt up to epoch {plan.newest}")

    carry_out(Change(plan.pairs, run), yes=yes)


# ---- ``onceonly datasets``.


def datasets(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="Address of a target, or id of a sink that writes to it.")
    ] = None,
    *,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the targets of all pipelines of a ledger. With a target, show its writers and their columns.

    Reads the ledger alone. Several writers of one target share it.
    """
    with closing(open_ledger(ledger)) as opened:
        known, address = points.datasets(opened), opened.address
    shown = [each for each in known if target in {None, each.target, *(writer.sink for writer in each.writers)}]
    if target is not None and not shown:
        raise misused(
            f'The ledger has no target "{target}".',
            f"it has: {', '.join(dataset.target for dataset in known) or 'none'}",
            f"onceonly datasets --ledger {shlex.quote(address)}",
        )
    if output is Output.JSON:
        emit_json({"datasets": [dataset.to_json() for dataset in shown]})
    elif target is None:
        heads = ("target", "pipeline", "sink", "epochs", "complete until", "columns")
        emit_table(heads, (_dataset_row(dataset.target, writer) for dataset in shown for writer in dataset.writers))
    else:
        for dataset in shown:
            for writer in dataset.writers:
                _show_writer(dataset.target, writer)


def _epochs_of(writer: DatasetWriter) -> str:
    return f"{writer.first}..{writer.newest}" if writer.first else "-"


def _dataset_row(target: str, writer: DatasetWriter) -> tuple[object, ...]:
    names = shorten_list([name for name, _, _ in writer.columns])
    return target, writer.pipeline, writer.sink, _epochs_of(writer), writer.complete_until or "-", names or "-"


def _show_writer(target: str, writer: DatasetWriter) -> None:
    emit_pairs(
        [
            ("target", target),
            ("pipeline", writer.pipeline),
            ("sink", writer.sink),
            ("output", writer.output or None),
            ("epochs", _epochs_of(writer)),
            ("complete until", writer.complete_until),
            ("same rows in", ", ".join(writer.same_rows) or None),
        ]
    )
    rows = ((name, kind, "yes" if nullable else "no") for name, kind, nullable in writer.columns)
    emit_table(("column", "type", "null"), rows)
    say()


# ---- ``onceonly lineage resend``.


def resend(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", envvar="OPENLINEAGE_URL", metavar="PLACE", help="URL, file, or transport settings as JSON."
        ),
    ],
    epochs: Annotated[
        str | None, typer.Option("--epochs", metavar="A..B", help="Default: every epoch not noted as sent.")
    ] = None,
    query: QueryOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Send the OpenLineage events of recorded epochs again, with the same run ids.

    It stops at the first event that the receiver does not take. Epochs that the receiver has answered for are noted.
    """
    from onceonly.lineage import LedgerEvents, OpenLineage

    receiver = OpenLineage(to)
    with connect(ledger, one_name(context, name, query)) as connection:
        unsent = LedgerEvents(connection.certain_ledger, connection.pipeline, None, {})
        sent = unsent.resend(receiver, to, epoch_range(epochs) if epochs else None)
    numbers = f": {ranges(tuple(sent))}" if sent else ""
    say(f"{connection.pipeline}: sent {plural(len(sent), 'epoch')}{numbers}")
