"""Simulated sink over the model's rules, for the production runner.

Its target is in the scene. It follows the contract of real sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onceonly import faults
from onceonly.faults import Point
from onceonly.machine.commands import Absent, Committed, Installed, Outcome, Overtaken, RolledBack, Unknown
from onceonly.machine.facts import Reading
from onceonly.protocol import (
    Batch,
    Capabilities,
    Conflict,
    DetectsChanges,
    Estimate,
    JoinsTransaction,
    OutcomeUnknown,
    Peek,
    Position,
    Prepared,
    Recorder,
    ReplacesRows,
    SinkBase,
    Superseded,
)
from onceonly.protocol import Sink as Contract
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_lab.fuzzer.scene import Scene
from onceonly_lab.fuzzer.stores import SceneStaging, SimulatedBatch
from onceonly_lab.history import Op
from onceonly_lab.model.keys import in_two
from onceonly_lab.model.parts import Kind as Sink
from onceonly_lab.model.parts import Target, receipt, together
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.sinks import Fate, Raised, Replies, Reply, reading
from onceonly_lab.model.untimely import asked_again, time_after
from onceonly_lab.play.recorder import kind_of
from onceonly_lab.play.world import Process
from onceonly_lab.schedule import SENDING

_CAPABILITIES = Capabilities(True, False, carries_ledger=False, committer="simulated", readers="only the lab reads")

Ask = Callable[[Target, int | None], Replies]
"""One call on the wire: the target as it is, what the sink remembers of the call so far."""


def _sent(reply: Reply, target: Target) -> bool:
    """Whether something goes out that can be lost, or that stays where it is when its driver dies now."""
    in_part = reply.outcome is None and reply.target.held != target.held
    return reply.fate is not Fate.ANSWERED or in_part


class SinkRefused(Exception):
    """The sink stops the query.

    Attributes:
        code: of the error.
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class PreparedContent:
    """Rows near the target.

    Attributes:
        rows: how many.
        content: which computation they are.
    """

    rows: int
    content: Digest

    def abandon(self) -> None:
        """Nobody else ever saw them."""


class SceneSink(SinkBase):
    """A handle on a target.

    Args:
        scene: what is shared.
        process: whose handle it is.
        name: the sink's id.
    """

    def __init__(self, scene: Scene, process: Process, name: str) -> None:
        super().__init__(name)
        self._scene = scene
        self._process = process
        self._fence = Fence(0, "")
        self._early: Target | None = None

    @property
    def capabilities(self) -> Capabilities:
        """An append that nobody recounts."""
        return _CAPABILITIES

    @property
    def address(self) -> str:
        """Nothing that could be found again."""
        return f"simulated:{self.id}"

    # ---- opening

    def fence(self) -> Fence | None:
        """The newest fence."""
        scene, process = self._scene, self._process
        scene.step(process)
        scene.watched[process.number].opens = True
        newest_fence = scene.wire.fence(self._target)
        if Rule.HIGHEST in scene.off:
            newest_fence = Fence(scene.ledger.generation, "")
        if Rule.FENCE_FIRST in scene.off:
            self._early = self._target
        scene.looks_early(process, self.id)
        if Rule.SWEPT_LAST in scene.off and self.id == scene.bound.sinks[-1]:
            SceneStaging(scene, process).sweep_early()
        words = f"generation {newest_fence.generation}" if newest_fence else "no fence"
        scene.told(f"{process.name} looks at sink '{self.id}' and finds {words}")
        return newest_fence

    def look(self) -> Peek:
        """The newest marker."""
        scene, process = self._scene, self._process
        scene.step(process)
        peek = scene.wire.look(self._target)
        words = f"epoch {peek.epoch}" if peek.epoch else "no epoch"
        scene.told(f"{process.name} looks at sink '{self.id}' and finds {words}")
        return peek

    def install(self, fence: Fence) -> None:
        """Make a fence the newest.

        Raises:
            Superseded: it is not greater.
            OutcomeUnknown: the answer was lost.
        """
        self._asks(Op.INSTALL, fence.generation)
        outcome = self._call(lambda target, memory: self._scene.wire.install(target, fence, memory), Point.INSTALL_SENT)
        self._fence = fence
        self._answered(Op.INSTALL, outcome)

    def position(self, since: Receipt | None) -> Position:
        """Where the target stands.

        Raises:
            Superseded: under another fence.
        """
        if self._early is not None:
            return reading(self._early, self._fence, since, 0).position
        outcome = self._call(lambda target, _: self._scene.wire.position(target, self._fence, since, 0))
        if isinstance(outcome, Reading):
            return outcome.position
        raise self._raised(outcome)

    # ---- one epoch

    def prepare(self, batch: Batch, epoch: int) -> PreparedContent:
        """Take the rows."""
        self._scene.alive(self._process)
        assert isinstance(batch, SimulatedBatch)
        content = batch.read()
        faults.fire(Point.PREPARE_SENT)
        return PreparedContent(content.rows, content)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Rows and marker.

        Raises:
            Superseded: under another fence.
            OutcomeUnknown: the answer was lost.
        """
        scene, sinks = self._scene, self._scene.bound.sinks
        content = self._brought(prepared, marker)
        if Rule.STAGED in scene.off:
            content = Digest(content.rows, content.high, 1_000_000 + self._process.salt)
        if Rule.EVERY_SINK in scene.off and self.id != sinks[0]:
            return receipt(marker)
        self._asks(Op.COMMIT, marker.fence.generation, marker.epoch)
        healing = self._healing(marker)
        sent_marker = asked_again(marker) if healing and Rule.TIME_COPIED in scene.off else marker
        outcome = self._call(self._asking(sent_marker, content, healing=healing), Point.COMMIT_SENT)
        self._answered(Op.COMMIT, outcome, marker.epoch)
        return receipt(sent_marker)

    def _asking(self, marker: Marker, content: Digest, *, healing: bool) -> Ask:
        """A commit, in two transactions where a rule that makes them one is off."""
        scene = self._scene
        keys = Rule.SEEN_WITH_MARKER in scene.off and scene.bound.keeps(self.id)

        def ask(target: Target, memory: int | None) -> Replies:
            replies = scene.wire.commit(target, marker, content, memory, healing=healing)
            replies = in_two(replies, target, marker, memory) if keys else replies
            late = Rule.TIME_WITH_MARKER in scene.off
            return time_after(replies, target, marker, memory) if late else replies

        return ask

    def _brought(self, prepared: Prepared | None, marker: Marker) -> Digest:
        content = prepared.content if isinstance(prepared, PreparedContent) else marker.epoch.digest
        if Rule.SET_ASIDE in self._scene.off and not marker.epoch.output(self.id):
            return together(content, marker.epoch.outputs)
        return content

    def _healing(self, marker: Marker) -> bool:
        staged = self._scene.ever_staged.get(marker.epoch.manifest or "")
        return staged is not None and staged.generation != marker.fence.generation

    def look_up(self, marker: Marker) -> Receipt | None:
        """Whether an epoch landed.

        Raises:
            Superseded: under another fence.
        """
        self._asks(Op.LOOK_UP, marker.fence.generation, marker.epoch)
        outcome = self._call(lambda target, _: self._scene.wire.look_up(target, marker))
        self._answered(Op.LOOK_UP, outcome, marker.epoch)
        return None if isinstance(outcome, Absent) else receipt(marker)

    # ---- reading

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts."""
        target = self._early or self._target
        yield from ((marker, receipt(marker)) for marker in target.markers if marker.epoch.number > after)

    # ---- helpers

    @property
    def _target(self) -> Target:
        return self._scene.targets[self.id]

    def _call(self, ask: Ask, point: Point | None = None) -> Outcome | Raised:
        """Call until there is an answer; what was sent passes the point, and may meet a fault there."""
        memory: int | None = None
        while True:
            self._scene.step(self._process)
            replies = tuple(ask(self._target, memory))
            sends = point is not None and any(_sent(reply, self._target) for reply in replies)
            if point and sends:
                faults.fire(point)
            due, self._process.due = self._process.due, ()
            reply = self._scene.chosen(replies, due)
            for changed in (reply.target, *reply.beside):
                self._scene.change(changed)
            self._scene.told(f"{self._process.name} {reply.words}")
            self._scene.suffer(self._process, tuple(fault for fault in due if fault.action not in SENDING))
            if reply.outcome is not None:
                return reply.outcome
            memory = reply.memory

    def _asks(self, op: Op, generation: int, epoch: Epoch | None = None) -> None:
        self._scene.alive(self._process)
        self._scene.recorder.asks(self._process.number, op, self.id, epoch, generation)

    def _answered(self, op: Op, outcome: Outcome | Raised, epoch: Epoch | None = None) -> None:
        """Write the answer down, and raise it where it is neither yes nor no."""
        self._scene.recorder.answers(self._process.number, op, kind_of(op, outcome), self.id, epoch)
        if not isinstance(outcome, Installed | Committed | Absent):
            raise self._raised(outcome)

    def _raised(self, outcome: Outcome | Raised) -> Exception:
        match outcome:
            case Overtaken(found):
                self._scene.watched[self._process.number].met = (self.id, found.owner)
                return Superseded(self.id, found)
            case Unknown(reason):
                return OutcomeUnknown(self.id, reason)
            case RolledBack(reason, blocker):
                return Conflict(self.id, reason, blocker)
            case Raised(code):
                return SinkRefused(code)
            case _:
                raise AssertionError(f"{type(outcome).__name__} answers nothing that was asked")


class TellingSink(SceneSink, ReplacesRows, DetectsChanges):
    """A handle on a target whose look is whole, and whose rows can leave: all but a topic.

    It also tells, without a fence, what the target is.
    """

    def cannot_replace(self, span: tuple[int, int]) -> str:
        """Nobody else writes there."""
        return ""

    def prepare_replacement(self, batch: Batch, epoch: int, span: tuple[int, int]) -> PreparedContent:
        """Take the rows; what leaves is said by the marker."""
        return self.prepare(batch, epoch)

    def identity_now(self, recorded: str) -> str:
        """What the target is."""
        return self._target.identity

    def content_epoch(self) -> int:
        """The epoch whose rows stand."""
        return self._target.content

    def reset_to(self, fence: Fence, epoch: int) -> None:
        """Never by a driver: operators put a sink elsewhere, and theirs are another handle."""
        raise AssertionError("a driver puts no sink at another epoch")


class EnlistingSink(TellingSink, JoinsTransaction):
    """A handle on a target that shares a transaction with others of its kind."""

    def can_join(self, other: object) -> bool:
        """With every one of the same scene."""
        return isinstance(other, EnlistingSink) and other is not self

    def fits_in_driver(self, size: Estimate) -> bool:
        """Never: there are no rows that a driver could hold, so they are staged as what is too large is."""
        return False

    def prepare_joined(
        self, batch: Batch, epoch: int, siblings: object, span: tuple[int, int] | None = None
    ) -> PreparedContent:
        """Take the rows."""
        return self.prepare(batch, epoch)

    def commit_joined(
        self,
        prepared: Prepared | None,
        marker: Marker,
        siblings: Sequence[tuple[Contract, Prepared | None, Marker]],
        ledger: Recorder | None = None,
    ) -> tuple[Receipt, ...]:
        """Rows and markers of several targets.

        Raises:
            Superseded: one of them is under another fence.
            OutcomeUnknown: the answer was lost.
        """
        scene = self._scene
        others = [(sink, rows, sink_marker) for sink, rows, sink_marker in siblings if isinstance(sink, EnlistingSink)]
        parts = [(self, prepared, marker), *others]
        markers = [sink_marker for _, _, sink_marker in parts]
        contents = [sink._brought(rows, sink_marker) for sink, rows, sink_marker in parts]
        for sink, _, sink_marker in parts:
            sink._asks(Op.COMMIT, sink_marker.fence.generation, sink_marker.epoch)
        healing = self._healing(marker)

        def ask(target: Target, _: int | None) -> Replies:
            targets = [target, *(sink._target for sink, _, _ in parts[1:])]
            return scene.wire.commit_joined(targets, markers, contents, healing=healing)

        outcome = self._call(ask, Point.COMMIT_SENT)
        for sink, _, sink_marker in parts[1:]:
            scene.recorder.answers(
                self._process.number, Op.COMMIT, kind_of(Op.COMMIT, outcome), sink.id, sink_marker.epoch
            )
        self._answered(Op.COMMIT, outcome, marker.epoch)
        return tuple(map(receipt, markers))


_KINDS = {Sink.KAFKA: SceneSink, Sink.POSTGRES: EnlistingSink}
"""Handles by what tells less than all, or more."""


def handle(scene: Scene, process: Process, name: str) -> SceneSink:
    """A handle that does as much as the real sink does: what Kafka has confirmed may be hidden from a look."""
    return _KINDS.get(scene.targets[name].kind, TellingSink)(scene, process, name)
