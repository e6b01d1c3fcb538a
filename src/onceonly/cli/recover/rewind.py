"""``onceonly recover rewind``: level a restored sink, or cut a pipeline back."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceonly.audit.rules_records import unread
from onceonly.cli.change import Change, carry_out, span
from onceonly.cli.checkpoint import opened
from onceonly.cli.checkpoint import plan_rebuild as plan_checkpoint
from onceonly.cli.connect import Connection, connect, ids_and_addresses, reads_topics
from onceonly.cli.options import LedgerOption, NameArgument, NamedSinkOption, YesOption
from onceonly.cli.output import plural, say, talk
from onceonly.cli.user_code import StateOption, TransformOption, WithOption, function, spark_session
from onceonly.errors import CheckpointError, refuse
from onceonly.errors.options import misused
from onceonly.machine.rewind import BringUp, CutBack, Origin, OriginKind, RewindRequest, Step
from onceonly.protocol import Batch
from onceonly.replay import rewind
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.spark import rebuild
from onceonly_checkpoints.spark.replay_plan import StateFrom
from onceonly_checkpoints.storage import FileStore, open_storage

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Code:
    """The query's own code, by which its source is read again.

    Attributes:
        job: ``function(spark)`` that returns the query, not started.
        before: its ``transform=``; ``None`` for none.
        state: where a query with state gets it from.
    """

    job: Callable[..., Any]
    before: Callable[[DataFrame], DataFrame] | None
    state: StateFrom

    @classmethod
    def of(cls, job: str | None, transform: str | None, state: StateFrom) -> Code | None:
        """As it was typed; ``None`` where no function was named (E110: one of them is no function)."""
        made = function("--transform", transform) if transform else None
        return cls(function("--with", job), made, state) if job else None


@dataclass(frozen=True, slots=True)
class RewindPreview:
    """A rewind before it happens.

    Attributes:
        checkpoint: of the query, where the pipeline is cut back; empty where it is not known.
        hindered: why the checkpoint is not cut back by this command; empty where it is.
        code: what the source is read by; ``None`` where it is not read.
    """

    of: rewind.Pipeline
    request: RewindRequest
    planned: rewind.RewindPlan
    checkpoint: str = ""
    hindered: str = ""
    fences: bool = True
    code: Code | None = None

    @property
    def pairs(self) -> Iterator[tuple[str, object]]:
        """The plan in words."""
        of, decision = self.of, self.planned.direction
        yield "pipeline", of.name
        yield "sinks", ", ".join(f"{sink.id} ({sink.address})" for sink in of.sinks)
        yield "ledger", of.ledger.address
        for sink, epoch in self.planned.reset_epochs.items():
            rows = f"the rows of epoch {epoch}" if epoch else "no row"
            yield sink, f"holds {rows}, and is reset: its markers of later epochs no longer count"
        if isinstance(decision, CutBack):
            yield from self._cut(decision)
        else:
            yield from self._brought(decision)

    def _cut(self, decision: CutBack) -> Iterator[tuple[str, object]]:
        yield "stands", f"every sink at epoch {decision.to}"
        epochs = [self.planned.epochs[number] for number in decision.removed_epochs]
        gone, rows = rewind.undone(self.of, self.planned), sum(epoch.digest.rows for epoch in epochs)
        reread_rows = rows - sum(epoch.digest.rows for epoch in unread(epochs))
        tally = f"{len(epochs)} epochs, {rows} rows" if epochs else "no epoch"
        everything = "their rows" if epochs else f"all rows behind epoch {decision.to}"
        read = f"{reread_rows} of these rows" if gone else everything
        yield "sets aside", f"{tally} of the ledger; Spark reads {read} again from the source"
        for what in gone:
            yield "undoes", what
        if self.hindered:
            path = shlex.quote(self.checkpoint) if self.checkpoint else "PATH"
            rebuild = "onceonly recover rebuild-checkpoint " + f"{path} {self.of.where.query} --at {decision.to}"
            yield "checkpoint", f"not reset here: {self.hindered}; after this: {rebuild}"
        else:
            yield "checkpoint", f"reset to epoch {decision.to}: {self.checkpoint}"
        if lost := sorted(number for number in self.planned.lacking if number > decision.to):
            yield "loses", "; ".join(f"epoch {number}: {self.planned.lacking[number]}" for number in lost)
        for what in self.planned.unasked:
            yield "not asked", what
        if self.fences:
            yield "does", "fences every running driver out; takes no rows out of a sink"
        else:
            yield "does", "nothing to sinks, which cannot all be found from here: stop every driver first"
        yield "after", f"the rows get epochs from {decision.to + 1} on; other values, if the plan is not deterministic"

    def _brought(self, decision: BringUp) -> Iterator[tuple[str, object]]:
        for sink in self.request.sinks:
            steps = [step for step in decision.steps if step.sink == sink]
            if not steps:
                yield sink, f"is at epoch {decision.newest} already; the ledger takes its receipts"
                continue
            rows = sum(step.epoch.digest_in(sink).rows for step in steps)
            origins = Counter(step.origin.text for step in steps)
            breakdown = ", ".join(f"{count} from {origin}" for origin, count in origins.items())
            yield sink, f"gets epochs {steps[0].epoch.number}..{decision.newest}, {rows} rows: {breakdown}"
            if floats := sorted({name for step in steps for name in step.epoch.digest_in(sink).left_out}):
                yield "not proven", f"{', '.join(floats)}: left out of the digest"
        yield (
            "does",
            "fences every running driver out; writes each epoch as it was committed, if its digest is the same",
        )
        yield "after", "start the query; nothing of it is read again"


def parse_request(to: int, sinks: Sequence[str], origin: str | None, lost: str | None) -> RewindRequest:
    """What was typed (E110: no such origin, or not a range of epochs)."""
    return RewindRequest(to, tuple(dict.fromkeys(sinks)), _origin(origin), span(lost) if lost is not None else None)


def _origin(text: str | None) -> Origin | None:
    if text is None:
        return None
    kind, _, sink = text.partition(":")
    if kind in (OriginKind.STAGED, OriginKind.SOURCE) and not sink:
        return Origin(OriginKind(kind))
    if kind == OriginKind.SINK and sink:
        return Origin(OriginKind.SINK, sink)
    raise misused(
        f"Rows cannot come --from {text!r}.",
        "they come from the bytes that were staged, from another sink of the pipeline, or from the source",
        "--from stage, --from sink:ID with an id that status prints, --from source; or leave it out",
    )


def plan(connection: Connection, request: RewindRequest, code: Code | None = None) -> RewindPreview:
    """Say what a rewind would do.

    Raises E110, E230 to E232: it cannot be done as it was typed; the message says how; E235: state is gone.
    """
    ledger = connection.certain_ledger
    where = CommandContext(connection.pipeline, f" --ledger {shlex.quote(ledger.address)}")
    of = rewind.Pipeline(connection.pipeline, connection.sinks, ledger, where, checkpoint=partial(_opened, connection))
    if request.origin == Origin(OriginKind.SOURCE) and code is None:
        raise misused(
            "Rows --from source need the query's own code.",
            "its source is read again by a function that returns the query, not started",
            "name it: --with jobs.orders:stream, and --transform if the query has one",
        )
    has_all_sinks = _all_found(connection)
    planned = rewind.plan(of, request, code=code is not None) if has_all_sinks else _by_the_ledger(of, request)
    if not isinstance(planned.direction, CutBack):
        return RewindPreview(of, request, planned, code=code)
    fences, path = _all_found(connection), _checkpoint(connection, planned.epochs.get(planned.direction.to))
    if not path:
        return RewindPreview(of, request, planned, "", "no epoch names its path", fences)
    try:
        with opened(path) as storage:
            plan_checkpoint(connection, storage, planned.direction.to, None)
            _demand_state(of, storage, planned)
    except CheckpointError as error:
        if error.code == "E604":  # nothing else could cut it back either, and the ledger alone is not to be
            remedy = f"{error.details['next']}{rewind.instead(of, planned)}"
            why = {"reason": error.details["reason"], "cause": error.details["cause"]}
            raise refuse("E604", pipeline=connection.pipeline, next=remedy, **why) from error
        return RewindPreview(of, request, planned, path, error.what, fences)
    return RewindPreview(of, request, planned, path, fences=fences)


def _all_found(connection: Connection) -> bool:
    recorded_sinks = connection.entry.sinks if connection.entry else ()
    return bool(connection.sinks) and len(connection.sinks) >= len(recorded_sinks)


def _by_the_ledger(of: rewind.Pipeline, request: RewindRequest) -> rewind.RewindPlan:
    """What is left to do where sinks are not to be found from here: the checkpoint alone, if it alone is ahead.

    Raises E110: the ledger is ahead as well, so that they are needed; E230: the source lacks rows.
    """
    records = of.ledger.epochs(of.name, request.to)
    if not records or records[-1].epoch.number != request.to:
        raise misused(
            f'Not every sink of "{of.name}" can be found, and their epochs must be read.',
            "a sink of your own without from_address(), one in the memory of another process, or a moved place",
            "name each by an address that leads to it: --sink KIND:TARGET",
        )
    return rewind.plan_unseen(of, request, records)


def _checkpoint(connection: Connection, epoch: Epoch | None) -> str:
    """Where the checkpoint lies that an epoch came from; empty where nobody knows."""
    lineage = epoch.resume_point.lineage if epoch else None
    return lineage.checkpoint if lineage else connection.entry.checkpoint if connection.entry else ""


def _opened(connection: Connection, epoch: Epoch) -> FileStore | None:
    path = _checkpoint(connection, epoch)
    return open_storage(path) if path else None


def _demand_state(of: rewind.Pipeline, storage: FileStore, planned: rewind.RewindPlan) -> None:
    """Refuse to cut back to an epoch whose state Spark has let go: the query would die of it, or begin empty (E235)."""
    epoch = planned.epochs[planned.direction.to] if isinstance(planned.direction, CutBack) else None
    lineage = epoch.resume_point.lineage if epoch else None
    if epoch is None or lineage is None or rebuild.keeps_state(storage, lineage.batch_id + 1) is not False:
        return
    remedy = f"restore a newer backup of the sinks{rewind.instead(of, planned)}"
    reason = f"{storage.url} holds no version {lineage.batch_id + 1} of it"
    raise refuse("E235", pipeline=of.name, first=epoch.number + 1, reason=reason, next=remedy)


def _run(connection: Connection, plan: RewindPreview) -> None:
    """Do it. Given again after a crash, it goes on."""
    decision = plan.planned.direction
    if isinstance(decision, CutBack):
        done = rewind.cut_back(plan.of, plan.planned) if plan.fences else None
        for line in done.messages if done else ():
            say(line)
        if plan.checkpoint and not plan.hindered:
            with opened(plan.checkpoint) as storage:
                files = plan_checkpoint(connection, storage, decision.to, None)
                written = rebuild.apply(files, storage, replacing=True)
            count = plural(len(written), "file")
            say(f"checkpoint reset to epoch {decision.to}: {count} written to {plan.checkpoint}")
    else:
        reads = plan.planned.reads
        topics = OriginKind.SOURCE in reads and reads_topics(plan.of.ledger.address, connection.pipeline, None)
        with spark_session("recover rewind", kafka=topics) if reads else nullcontext() as spark:
            give = _by_spark(connection, plan, spark) if spark is not None else _from_nowhere
            done = rewind.bring_up(plan.of, plan.planned, plan.request, give)
        for line in done.messages:
            say(line)
    fenced = f"generation {done.generation} is installed; " if done else ""
    talk(f"{fenced}now start the query")


def _by_spark(connection: Connection, plan: RewindPreview, spark: SparkSession) -> rewind.Give:
    from onceonly.replay import rerun_request
    from onceonly.replay.read_back import rows_of
    from onceonly.replay.spark_replay import Replay

    code, ledger = plan.code, plan.of.ledger
    if code is None:
        return rows_of(connection.sinks, spark)
    epoch_records = ledger.epochs(connection.pipeline)
    replay = Replay(
        spark, code.job, epoch_records, rerun_request.checkpoint(epoch_records, None), ledger.address, code.before
    )
    return rows_of(connection.sinks, spark, replay, code.state)


def _from_nowhere(steps: Sequence[Step], _: Callable[[Step, Batch], None]) -> None:
    raise AssertionError(f"{steps[0]} has no origin that is read by Spark")


def command(
    name: NameArgument,
    *,
    to: Annotated[int, typer.Option("--to", min=0, metavar="N", help="The epoch at which the sinks are.")],
    sink: NamedSinkOption = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="stage|sink:ID|source",
            help="Where rows come from. Default: the first source that proves them.",
        ),
    ] = None,
    with_: WithOption = None,
    transform: TransformOption = None,
    state: StateOption = StateFrom.COPIED,
    accept_loss: Annotated[
        str | None,
        typer.Option("--accept-loss", metavar="A..B", help="Rows of these epochs that the source lacks may be lost."),
    ] = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Bring a restored sink the epochs that it lacks, or reset a pipeline to the epoch of all its sinks.

    Takes no rows out of a sink, stops every driver that is running, and may be given again after a crash. With --sink
    the sink gets the epochs that it lacks, as they were committed: from staged bytes, from another sink, or, --with the
    query's own code, from its source. Without it, ledger and checkpoint are reset to that epoch, so that Spark reads
    the later rows again.
    """
    code = Code.of(with_, transform, state)
    named, addresses = ids_and_addresses(name, sink or (), ledger)
    with connect(ledger, name, addresses, forgiving=not named) as connection:
        preview = plan(connection, parse_request(to, named, origin, accept_loss), code)
        carry_out(Change(tuple(preview.pairs), partial(_run, connection, preview)), yes=yes)
