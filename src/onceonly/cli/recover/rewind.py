"""Plan ``queries rewind`` before confirmation, then run it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.cli import checkpoint
from onceonly.cli.connect import Connection, reads_topics
from onceonly.cli.options import span
from onceonly.cli.output import plural, say, talk
from onceonly.cli.spark_session import spark_session
from onceonly.cli.user_code import function
from onceonly.errors import CheckpointError, refuse
from onceonly.machine.rewind import BringUp, CutBack, Origin, OriginKind, RewindRequest, Step
from onceonly.machine.undone_epochs import unread
from onceonly.protocol import Batch
from onceonly.replay import rewind
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.spark import rebuild
from onceonly_checkpoints.spark.rebuild import FileToWrite
from onceonly_checkpoints.spark.replay_plan import StateFrom
from onceonly_checkpoints.storage import FileStore, open_storage

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Code:
    """The query's own code, by which its source is read again.

    Attributes:
        job: ``function(spark)`` that returns the query, not started.
        before: its ``before=``; ``None`` for none.
        state: where a query with state gets it from.
    """

    job: Callable[..., Any]
    before: Callable[[DataFrame], DataFrame] | None
    state: StateFrom

    @classmethod
    def of(cls, job: str | None, before: str | None, state: StateFrom) -> Code | None:
        """As it was typed; ``None`` where no function was named.

        Raises:
            ConfigurationError: E110, one of them is no function.
        """
        made = function("--before", before) if before else None
        return cls(function("--with", job), made, state) if job else None


@dataclass(frozen=True, slots=True)
class RewindPreview:
    """A rewind before it happens.

    Attributes:
        of: what it works on.
        asked: what was typed.
        planned: what it does to ledger and sinks.
        checkpoint: of the query, where the pipeline is cut back; empty where it is not known.
        hindered: why the checkpoint is not cut back by this command; empty where it is.
        fences: whether the sinks are there to fence drivers out.
        code: what the source is read by; ``None`` where it is not read.
    """

    of: rewind.Pipeline
    asked: RewindRequest
    planned: rewind.RewindPlan
    checkpoint: str = ""
    hindered: str = ""
    fences: bool = True
    code: Code | None = None

    @property
    def pairs(self) -> Iterator[tuple[str, object]]:
        """The plan in words."""
        of, way = self.of, self.planned.way
        yield "pipeline", of.name
        yield "sinks", ", ".join(f"{sink.id} ({sink.address})" for sink in of.sinks)
        yield "ledger", of.ledger.address
        for sink, epoch in self.planned.standing.items():
            rows = f"the rows of epoch {epoch}" if epoch else "no row"
            yield sink, f"holds {rows}, and is put there: what its markers tell of later epochs counts no more"
        if isinstance(way, CutBack):
            yield from self._cut(way)
        else:
            yield from self._brought(way)

    def _cut(self, way: CutBack) -> Iterator[tuple[str, object]]:
        yield "stands", f"every sink at epoch {way.to}"
        epochs = [self.planned.epochs[number] for number in way.beyond]
        gone, rows = rewind.undone(self.of, self.planned), sum(epoch.digest.rows for epoch in epochs)
        again = rows - sum(epoch.digest.rows for epoch in unread(epochs))
        told = f"{len(epochs)} epochs, {rows} rows" if epochs else "no epoch"
        read = f"{again} of these rows" if gone else "their rows"
        yield "sets aside", f"{told} of the ledger; Spark reads {read} again from the source"
        for what in gone:
            yield "undoes", what
        if self.hindered:
            yield "checkpoint", f"not cut back here: {self.hindered}; after this: {self._rebuild(way)}"
        else:
            yield "checkpoint", f"cut back to epoch {way.to}: {self.checkpoint}"
        if lost := sorted(number for number in self.planned.lacking if number > way.to):
            yield "loses", "; ".join(f"epoch {number}: {self.planned.lacking[number]}" for number in lost)
        for what in self.planned.unasked:
            yield "not asked", what
        if self.fences:
            yield "does", "fences every running driver out; takes no rows out of a sink"
        else:
            yield "does", "nothing to sinks, which cannot all be found from here: stop every driver first"
        yield "after", "readers see the rows under new epoch numbers; of a plan that is not deterministic, other values"

    def _rebuild(self, way: CutBack) -> str:
        path = shlex.quote(self.checkpoint) if self.checkpoint else "PATH"
        return "onceonly checkpoint rebuild " + f"{path} {self.of.where.query} --at {way.to}"

    def _brought(self, way: BringUp) -> Iterator[tuple[str, object]]:
        for sink in self.asked.sinks:
            steps = [step for step in way.steps if step.sink == sink]
            if not steps:
                yield sink, f"stands at epoch {way.newest} already; the ledger takes its receipts"
                continue
            rows = sum(step.epoch.digest_in(sink).rows for step in steps)
            origins = Counter(step.origin.text for step in steps)
            told = ", ".join(f"{count} from {origin}" for origin, count in origins.items())
            yield sink, f"gets epochs {steps[0].epoch.number}..{way.newest}, {rows} rows: {told}"
            if floats := sorted({name for step in steps for name in step.epoch.digest_in(sink).left_out}):
                yield "not proven", f"{', '.join(floats)}: left out of the digest"
        yield (
            "does",
            "fences every running driver out; writes each epoch as it was committed, if its digest is the same",
        )
        yield "after", "start the query; nothing of it is read again"


def asked(to: int, sinks: Sequence[str], origin: str | None, lost: str | None) -> RewindRequest:
    """What was typed.

    Raises:
        ConfigurationError: E110, no such origin, or not a range of epochs.
    """
    return RewindRequest(to, tuple(dict.fromkeys(sinks)), _origin(origin), span(lost) if lost is not None else None)


def _origin(text: str | None) -> Origin | None:
    if text is None:
        return None
    kind, _, sink = text.partition(":")
    if kind in (OriginKind.STAGED, OriginKind.SOURCE) and not sink:
        return Origin(OriginKind(kind))
    if kind == OriginKind.SINK and sink:
        return Origin(OriginKind.SINK, sink)
    raise refuse(
        "E110",
        problem=f"Rows cannot come --from {text!r}.",
        cause="they come from the bytes that were staged, from another sink of the pipeline, or from the source",
        next="--from stage, --from sink:ID with an id that queries show prints, --from source; or leave it out",
    )


def plan(place: Connection, wanted: RewindRequest, code: Code | None = None) -> RewindPreview:
    """Say what a rewind would do.

    Raises:
        OnceOnlyError: E110, E230 to E232: it cannot be done as it was typed; the message says how; E235 state is gone.
    """
    ledger = place.certain_ledger
    where = CommandContext(place.pipeline, f" --ledger {shlex.quote(ledger.address)}")
    of = rewind.Pipeline(place.pipeline, place.sinks, ledger, where, checkpoint=partial(_opened, place))
    if wanted.origin == Origin(OriginKind.SOURCE) and code is None:
        raise refuse(
            "E110",
            problem="Rows --from source need the query's own code.",
            cause="its source is read again by a function that returns the query, not started",
            next="name it: --with jobs.orders:stream, and --before where the query has one",
        )
    found = _all_found(place)
    planned = rewind.plan(of, wanted, code=code is not None) if found else _by_the_ledger(of, wanted)
    if not isinstance(planned.way, CutBack):
        return RewindPreview(of, wanted, planned, code=code)
    fences, path = _all_found(place), _checkpoint(place, planned.epochs.get(planned.way.to))
    if not path:
        return RewindPreview(of, wanted, planned, "", "no epoch says where it lies", fences)
    try:
        with checkpoint.opened(path) as storage:
            _files(place, storage, planned.way.to)
            _demand_state(of, storage, planned)
    except CheckpointError as error:
        if error.code == "E604":  # nothing else could cut it back either, and the ledger alone is not to be
            way = f"{error.details['next']}{rewind.instead(of, planned)}"
            why = {"reason": error.details["reason"], "cause": error.details["cause"]}
            raise refuse("E604", pipeline=place.pipeline, next=way, **why) from error
        return RewindPreview(of, wanted, planned, path, error.what, fences)
    return RewindPreview(of, wanted, planned, path, fences=fences)


def _all_found(place: Connection) -> bool:
    known = place.entry.sinks if place.entry else ()
    return bool(place.sinks) and len(place.sinks) >= len(known)


def _by_the_ledger(of: rewind.Pipeline, wanted: RewindRequest) -> rewind.RewindPlan:
    """What is left to do where sinks are not to be found from here: the checkpoint alone, if it alone is ahead.

    Raises:
        OnceOnlyError: E110, the ledger is ahead as well, so that they are needed; E230 the source lacks rows.
    """
    records = of.ledger.epochs(of.name, wanted.to)
    if not records or records[-1].epoch.number != wanted.to:
        raise refuse(
            "E110",
            problem=f'Not every sink of "{of.name}" can be found, and where they stand must be asked.',
            cause="a sink of your own without from_address(), one in the memory of another process, or a moved place",
            next="name each by an address that leads to it: --sink KIND:TARGET",
        )
    return rewind.plan_unseen(of, wanted, records)


def _checkpoint(place: Connection, stood: Epoch | None) -> str:
    """Where the checkpoint lies that an epoch came from; empty where nobody knows."""
    lineage = stood.standing.lineage if stood else None
    return lineage.checkpoint if lineage else place.entry.checkpoint if place.entry else ""


def _opened(place: Connection, stood: Epoch) -> FileStore | None:
    path = _checkpoint(place, stood)
    return open_storage(path) if path else None


def _demand_state(of: rewind.Pipeline, storage: FileStore, planned: rewind.RewindPlan) -> None:
    """Refuse to cut back to an epoch whose state Spark has let go: the query would die of it, or begin empty.

    Raises:
        StateError: E235.
    """
    epoch = planned.epochs[planned.way.to] if isinstance(planned.way, CutBack) else None
    lineage = epoch.standing.lineage if epoch else None
    if epoch is None or lineage is None or rebuild.keeps_state(storage, lineage.batch_id + 1) is not False:
        return
    way = f"restore a newer backup of the sinks{rewind.instead(of, planned)}"
    reason = f"{storage.url} holds no version {lineage.batch_id + 1} of it"
    raise refuse("E235", pipeline=of.name, first=epoch.number + 1, reason=reason, next=way)


def _files(place: Connection, storage: FileStore, at: int) -> list[FileToWrite]:
    return checkpoint.plan_rebuild(place, storage, at, None)


def carry_out(place: Connection, plan: RewindPreview) -> None:
    """Do it; given again after a crash it goes on.

    Raises:
        OnceOnlyError: what the sinks and an opening raise; E233 rows came out otherwise than they were committed.
    """
    way = plan.planned.way
    if isinstance(way, CutBack):
        done = rewind.cut_back(plan.of, plan.planned) if plan.fences else None
        for line in done.said if done else ():
            say(line)
        if plan.checkpoint and not plan.hindered:
            with checkpoint.opened(plan.checkpoint) as storage:
                written = rebuild.apply(_files(place, storage, way.to), storage, replacing=True)
            files = plural(len(written), "file")
            say(f"checkpoint cut back to epoch {way.to}: {files} written to {plan.checkpoint}")
    else:
        reads = plan.planned.reads
        topics = OriginKind.SOURCE in reads and reads_topics(plan.of.ledger.address, place.pipeline, None)
        with spark_session(bool(reads), "queries rewind", kafka=topics) as spark:
            give = _by_spark(place, plan, spark) if spark is not None else _from_nowhere
            done = rewind.bring_up(plan.of, plan.planned, plan.asked, give)
        for line in done.said:
            say(line)
    fenced = f"generation {done.generation} is installed; " if done else ""
    talk(f"{fenced}now start the query")


def _by_spark(place: Connection, plan: RewindPreview, spark: SparkSession) -> rewind.Give:
    from onceonly.replay import records
    from onceonly.replay.read_back import rows_of
    from onceonly.replay.spark_replay import Replay

    code, ledger = plan.code, plan.of.ledger
    if code is None:
        return rows_of(place.sinks, spark)
    found = ledger.epochs(place.pipeline)
    replay = Replay(spark, code.job, found, records.checkpoint(found, None), ledger.address, code.before)
    return rows_of(place.sinks, spark, replay, code.state)


def _from_nowhere(steps: Sequence[Step], _: Callable[[Step, Batch], None]) -> None:
    raise AssertionError(f"{steps[0]} has no origin that is read by Spark")
