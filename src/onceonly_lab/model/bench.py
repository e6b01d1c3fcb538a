"""Simulated sinks and ledger for commands without Spark.

They hold the world's data behind the contracts that these commands use.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onceonly.machine.commands import Committed, Installed, Overtaken
from onceonly.machine.facts import Reading
from onceonly.protocol import (
    Batch,
    Capabilities,
    Peek,
    Position,
    Prepared,
    ReadsRows,
    Recorder,
    ReplacesRows,
    SinkBase,
    Superseded,
)
from onceonly.protocol.guard import elsewhere
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Intent, KeptPlan, LedgerConflict, Pin, Pipeline
from onceonly_checkpoints.ledger import RemovedEpoch as SetAside
from onceonly_checkpoints.manifest import UnreadableManifest
from onceonly_lab.model.parts import (
    DROPPED,
    MARKERS_LEFT,
    RESTORED,
    Conflict,
    Held,
    Kind,
    SimulatedLedger,
    StagingArea,
    Target,
    brought,
    receipt,
    stood,
)
from onceonly_lab.model.sinks import Wire

_CAPABILITIES = Capabilities(True, False, carries_ledger=False, committer="simulated", readers="only the lab reads")


class Turned(Exception):
    """A target refuses what a command asks of it; the text is its code."""


class Cut(BaseException):
    """Ends a command where it stands, as SIGKILL does: nothing on its way out takes it for an error."""


class Bench:
    """What a command changes.

    Args:
        targets: what sinks hold, in commit order.
        ledger: the index.
        most: how many changes the command lives to make; ``None``: all.
        who: the owner of its fences here. It draws a token of its own at random, by which worlds would differ that are
            one.

    Attributes:
        changes: how many it has made.
    """

    def __init__(
        self, targets: Sequence[Target], ledger: SimulatedLedger, most: int | None = None, who: str = "a command"
    ) -> None:
        self.targets = {target.name: target for target in targets}
        self.ledger = ledger
        self.changes = 0
        self._most = most
        self._who = who

    def owned(self, fence: Fence) -> Fence:
        """A fence of the command's as it stands in targets."""
        return Fence(fence.generation, self._who)

    def step(self) -> None:
        """Something is about to be changed that outlives the command.

        Raises:
            Cut: it does not live to do it.
        """
        if self.changes == self._most:
            raise Cut
        self.changes += 1

    @property
    def sinks(self) -> tuple[BenchSink, ...]:
        """Handles on the targets; of one that was taken out as long as the others' newest epoch still lists it."""
        epochs = [target.newest.epoch for target in self.targets.values() if target.newest and target.harm != DROPPED]
        newest = max(epochs, key=lambda epoch: epoch.number, default=None)
        listed = dict(newest.sinks) if newest else self.targets
        names = (target.name for target in self.targets.values() if target.harm != DROPPED or target.name in listed)
        return tuple(BenchSink(self, name) for name in names)

    def fetch(self, staging: StagingArea) -> Callable[[str, Batch | None], Any]:
        """How the runner of a stopped driver asks whether staged bytes are still there; it reads none of them."""

        def read(reference: str, _: Batch | None) -> Batch:
            import pyarrow as pa

            from onceonly.protocol.batch import ArrowBatch

            if staging.holds(reference) is None:
                raise UnreadableManifest(f"{reference} is gone")
            return ArrowBatch(pa.table({}))

        return read

    def heal(self, staging: StagingArea, accepted: Collection[str] = ()) -> None:
        """What every opening does first where one sink is an epoch behind: commands read staged files, too.

        Args:
            staging: where the bytes lie.
            accepted: sinks of which a change is accepted that would stop the opening before.
        """
        newest = [target.newest for target in self.targets.values() if target.newest]
        highest = max(newest, key=lambda marker: marker.epoch.number, default=None)
        bytes_ = staging.holds(highest.epoch.manifest) if highest and highest.epoch.manifest else None
        if highest is None or bytes_ is None:
            return
        for name, target in self.targets.items():
            number = target.newest.epoch.number if target.newest else 0
            able = target.harm in {"", *RESTORED, *MARKERS_LEFT} and (target.changed is None or name in accepted)
            if number == highest.epoch.number - 1 and able:
                marker = replace(highest, sink=name)
                held = Held(highest.epoch, marker, brought(bytes_.content, bytes_.outputs, name))
                self.targets[name] = replace(target, held=(*target.held, held))


@dataclass(frozen=True, slots=True)
class Lying:
    """Rows of an epoch as another target holds them: a batch, and what is prepared of it.

    Attributes:
        content: which rows.
    """

    content: Digest

    @property
    def rows(self) -> int:
        """How many."""
        return self.content.rows

    def digest(self) -> Digest:
        """Their digest."""
        return self.content

    def abandon(self) -> None:
        """Nothing is held."""


class BenchSink(SinkBase, ReplacesRows, ReadsRows):
    """A handle on a target of a bench.

    Args:
        bench: where it stands.
        name: the sink's id.
    """

    def __init__(self, bench: Bench, name: str) -> None:
        super().__init__(name)
        self._bench = bench
        self._wire = Wire()
        self._fence = Fence(0, "")

    @property
    def capabilities(self) -> Capabilities:
        """An append that nobody recounts."""
        return _CAPABILITIES

    @property
    def address(self) -> str:
        """Nothing that could be found again."""
        return f"simulated:{self.id}"

    @property
    def _target(self) -> Target:
        return self._bench.targets[self.id]

    def fence(self) -> Fence | None:
        """The newest fence."""
        return self._target.fence

    def look(self) -> Peek:
        """The newest marker."""
        return self._wire.look(self._target)

    def install(self, fence: Fence) -> None:
        """Make a fence the newest.

        Raises:
            Superseded: it is not greater.
        """
        self._bench.step()
        fence = self._bench.owned(fence)
        reply = next(self._wire.install(self._target, fence, None))
        if isinstance(reply.outcome, Overtaken):
            raise Superseded(self.id, reply.outcome.current_fence)
        assert isinstance(reply.outcome, Installed)
        self._fence = fence
        self._bench.targets[self.id] = reply.target

    def content_epoch(self) -> int | None:
        """The epoch whose rows stand; of a topic nobody knows it."""
        return None if self._target.kind is Kind.KAFKA else self._target.content

    def reset_to(self, fence: Fence, epoch: int) -> None:
        """As :meth:`install`, with that epoch as the newest one.

        Raises:
            Superseded: the fence is not greater.
            ConfigurationError: E110, rows of another epoch stand.
        """
        if (holds := self.content_epoch()) != epoch:
            raise elsewhere(self.id, epoch, holds)
        self.install(fence)
        self._bench.targets[self.id] = stood(self._target, epoch)

    def position(self, since: Receipt | None) -> Position:
        """Where the target stands."""
        reply = next(self._wire.position(self._target, self._fence, since, 0))
        assert isinstance(reply.outcome, Reading)
        return reply.outcome.position

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Rows of an epoch that the sink is brought level with; commands bring no others."""
        return Lying(batch.digest())

    def prepare_replacement(self, batch: Batch, epoch: int, span: tuple[int, int]) -> Prepared:
        """The same; what leaves is said by the marker."""
        return self.prepare(batch, epoch)

    def cannot_replace(self, span: tuple[int, int]) -> str:
        """Nothing does."""
        return ""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """A marker without rows, or an epoch that the sink is brought level with.

        Raises:
            Turned: it does not continue what stands there.
        """
        self._bench.step()
        owned = replace(marker, fence=self._bench.owned(marker.fence))
        if marker.epoch.adoption:
            reply = next(self._wire.adopt(self._target, owned))
        else:
            digest = marker.epoch.digest_in(self.id)
            # A digest here tells the columns of no rows, too.
            content = prepared.content if isinstance(prepared, Lying) else Digest(0) if digest.rows else digest
            reply = next(self._wire.commit(self._target, owned, content, None, healing=True))
        if not isinstance(reply.outcome, Committed):
            raise Turned(str(reply.outcome))
        self._bench.targets[self.id] = reply.target
        return reply.outcome.receipt

    def look_up(self, marker: Marker) -> Receipt | None:
        """No answer is lost here."""
        raise AssertionError("a command looks nothing up: no answer is lost here")

    def recount(self) -> Mapping[int, int]:
        """Rows that stand of each epoch."""
        stand = (
            held_epoch
            for held_epoch in self._target.held
            if held_epoch.marker and held_epoch.content and held_epoch.whole and not held_epoch.replaced
        )
        return {held_epoch.epoch.number: held_epoch.content.rows for held_epoch in stand if held_epoch.content}

    def read_by_epoch(self, span: tuple[int, int]) -> None:
        """Rows here are counted, not kept."""

    def read_with_spark(self, spark: object) -> None:
        """There is no Spark here; see :meth:`lying`."""

    def lying(self, epoch: int) -> Lying:
        """The rows of an epoch, whatever became of them."""
        held = next((held_epoch for held_epoch in self._target.held if held_epoch.epoch.number == epoch), None)
        return Lying(held.content if held and held.content and held.whole else Digest(0))

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts."""
        markers = (marker for marker in self._target.markers if marker.epoch.number > after)
        yield from ((marker, receipt(marker, self._target.identity)) for marker in markers)


class LedgerOverModel:
    """The ledger contract over a simulated ledger. What nobody asks in a world is answered with nothing."""

    address = "memory"

    def __init__(self) -> None:
        self._intents: dict[int, Intent] = {}

    @property
    @abstractmethod
    def model(self) -> SimulatedLedger:
        """The ledger as it is."""
        ...

    @abstractmethod
    def change(self, model: SimulatedLedger) -> None:
        """Put another one in its place."""
        ...

    def open(self) -> None:
        """It is open."""

    def enter(self, pipeline: Pipeline) -> None:
        """Its row in the list is of no account."""

    def pipelines(self) -> Sequence[Pipeline]:
        """Nobody asks."""
        return ()

    def intend(self, intent: Intent) -> None:
        """Keep it; commands read it."""
        self._intents[intent.epoch] = intent

    def intent(self, pipeline: str, epoch: int) -> Intent | None:
        """What was kept."""
        return self._intents.get(epoch)

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record an epoch.

        Raises:
            LedgerConflict: another chain is recorded under its number.
        """
        try:
            self.change(self.model.record(record.epoch, record.receipts, record.files))
        except Conflict as error:
            raise LedgerConflict(record.pipeline, record.epoch.number, "another", record.epoch.chain) from error

    def head(self, pipeline: str) -> EpochRecord | None:
        """The newest record."""
        return self.model.head

    def epochs(self, pipeline: str, first: int = 1, last: int | None = None) -> Sequence[EpochRecord]:
        """Records by number."""
        return [
            record
            for record in self.model.records
            if record.epoch.number >= first and (not last or record.epoch.number <= last)
        ]

    def find(self, pipeline: str, query_id: str, batch_id: int) -> EpochRecord | None:
        """Nobody asks."""
        return None

    def pin(self, pin: Pin) -> None:
        """Nothing: nobody reads here by epoch."""

    def unpin(self, pipeline: str, token: str) -> None:
        """Nothing."""

    def pins(self, pipeline: str) -> Sequence[Pin]:
        """None."""
        return ()

    def keep_plan(self, plan: KeptPlan) -> None:
        """Nothing: no plan is run here."""

    def plans(self, pipeline: str) -> Sequence[KeptPlan]:
        """None."""
        return ()

    def prune(self, pipeline: str, before: int) -> None:
        """Forget epochs below ``before``."""
        records = tuple(record for record in self.model.records if record.epoch.number >= before)
        self.change(replace(self.model, records=records))

    def discard(self, pipeline: str, first: int) -> None:
        """Forget epochs from ``first`` on."""
        records = tuple(record for record in self.model.records if record.epoch.number < first)
        self.change(replace(self.model, records=records))

    def supersede(self, pipeline: str, first: int, why: str) -> Sequence[SetAside]:
        """Set epochs from ``first`` on aside."""
        aside = [SetAside(pipeline, epoch.epoch, why) for epoch in self.epochs(pipeline, first)]
        self.change(self.model.supersede(first))
        return aside

    def superseded(self, pipeline: str, after: int = 0) -> Sequence[SetAside]:
        """What was ever set aside beyond an epoch."""
        return self.model.superseded(after)

    def forget(self, pipeline: str) -> None:
        """Forget every epoch."""
        self.change(replace(self.model, records=(), aside=()))

    def note(self, event: Event) -> None:
        """Nothing: nobody reads it."""

    def events(self, pipeline: str, limit: int = 1000, kind: EventKind | None = None) -> Sequence[Event]:
        """Nobody asks."""
        return ()

    def close(self) -> None:
        """Nothing is held."""


class BenchLedger(LedgerOverModel):
    """The ledger contract over that of a bench, with the intents of the refusal at hand.

    Args:
        bench: where it stands.
        intents: what the refusal has left.
    """

    def __init__(self, bench: Bench, intents: tuple[Intent, ...] = ()) -> None:
        self._bench = bench
        self._intents = {intent.epoch: intent for intent in intents}
        self._events: list[Event] = []

    @property
    def model(self) -> SimulatedLedger:
        """That of the bench."""
        return self._bench.ledger

    def change(self, model: SimulatedLedger) -> None:
        """Each change is a step."""
        self._bench.step()
        self._bench.ledger = model

    @property
    def intents(self) -> tuple[Intent, ...]:
        """All that are kept."""
        return tuple(self._intents.values())

    def intend(self, intent: Intent) -> None:
        """Keep it."""
        self._bench.step()
        super().intend(intent)

    def supersede(self, pipeline: str, first: int, why: str) -> Sequence[SetAside]:
        """Set epochs from ``first`` on aside, with their intents forgotten."""
        aside = super().supersede(pipeline, first, why)
        self._intents = {number: intent for number, intent in self._intents.items() if number < first}
        return aside

    def forget(self, pipeline: str) -> None:
        """Forget every epoch, and what was kept besides."""
        super().forget(pipeline)
        self._intents.clear()
        self._events.clear()

    def note(self, event: Event) -> None:
        """Keep it."""
        self._events.append(event)

    def events(self, pipeline: str, limit: int = 1000, kind: EventKind | None = None) -> Sequence[Event]:
        """What was noted."""
        return [event for event in self._events if kind in (None, event.kind)][-limit:]
