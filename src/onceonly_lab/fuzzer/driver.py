"""One driver of a simulated run: the engine's loop over its checkpoint, around the production runner."""

from __future__ import annotations

from onceonly import coordinator, faults
from onceonly.errors import OnceOnlyError
from onceonly.facts import Offer
from onceonly.faults import Point
from onceonly.runner import Runner
from onceonly.state import State
from onceonly_lab.fuzzer.scene import Killed, Process, Scene
from onceonly_lab.fuzzer.sink import SinkRefused, handle
from onceonly_lab.fuzzer.stores import SceneLedger, SceneStaging, batch_of
from onceonly_lab.model.operator import Stop
from onceonly_lab.model.parts import PIPELINE, Records
from onceonly_lab.model.program import Call, Program, parts, refusal
from onceonly_lab.model.spark import Planned, Refused, offer


def drive(scene: Scene, process: Process) -> None:
    """Run a query until it has read the source to its end, or stops, or is killed."""
    query = _Query(scene, process)
    try:
        query.run()
    except Killed:
        return
    except Refused as refused:
        process.refusal = str(refused)
        scene.steps.append(f"{process.name}: the engine stops: {refused}")
    except (OnceOnlyError, SinkRefused, CallRefused) as error:
        process.refusal = error.code
        scene.stops(process, error.code)
        if isinstance(error, OnceOnlyError) and process.planned is not None:
            gone = process.planned.records & scene.desk.gone
            process.stop = Stop(error.code, str(error), process.planned, gone, tuple(scene.intents.values()))
    if process.refusal:
        scene.scribe.refused(process.number, process.refusal)


class CallRefused(Exception):
    """The wrapper refuses what a program hands it.

    Attributes:
        code: of the error.
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _Query:
    def __init__(self, scene: Scene, process: Process) -> None:
        self._scene = scene
        self._process = process
        self._ledger = SceneLedger(scene, process)
        sinks = [handle(scene, process, name) for name in scene.bound.sinks]
        staging = SceneStaging(scene, process)
        self._runner = Runner(
            sinks,
            self._ledger,
            staging=staging if len(sinks) > 1 or scene.bound.stages else None,
            fetch=staging.fetch,
            sleep=lambda seconds: scene.step(process),
        )
        self._state: State | None = None

    def run(self) -> None:
        holding: int | None = None
        while (planned := self._plan(holding)) is not None:
            self._hand_over(planned)
            holding = planned.batch_id
            if self._return(planned):
                break
        self._process.finished = True

    def _plan(self, holding: int | None) -> Planned | None:
        scene, process = self._scene, self._process
        scene.step(process)
        checkpoint = scene.checkpoints[process.at]
        ways = list(checkpoint.next(scene.bound.records, scene.bound.longest, holding))
        if not ways:
            scene.told(f"{process.name} finds nothing more to read")
            return None
        after, planned = ways[scene.cut(len(ways))] if len(ways) > 1 else ways[0]
        scene.checkpoints[process.at] = after
        scene.scribe.offers(process.number)
        what = f"batch {planned.batch_id}, records {planned.start + 1} to {planned.end}"
        scene.told(f"{process.name} is handed {what}, by {after.name}")
        faults.fire(Point.DISCOVER_AFTER)
        return planned

    def _hand_over(self, planned: Planned) -> None:
        """What the user's program does with a batch: one call of the wrapper, unless it calls wrongly."""
        before, self._process.planned = self._process.planned, planned
        finished = before.batch_id if before else None
        program = Program(self._scene.schedule.program or Program.PLAIN)
        handed, rest = parts(program, planned)
        checkpoint = self._scene.checkpoints[self._process.at]
        named = checkpoint.planned(0) if program is Program.CONSTANT else planned
        self._admit(program, Call(named.batch_id, planned.batch_id, finished))
        self._write(planned, handed)
        if rest:
            again = Call(planned.batch_id, planned.batch_id, planned.batch_id, other=program is Program.WRAPPERS)
            self._admit(program, again)
            self._write(planned, rest)

    def _admit(self, program: Program, call: Call) -> None:
        code = refusal(call)
        if code:
            self._scene.actors[f"a program {program}"] += 1
            raise CallRefused(code)

    def _write(self, planned: Planned, handed: Records) -> None:
        bound, written = self._scene.bound, self._state is not None and not self._state.skipped
        checkpoint = self._scene.checkpoints[self._process.at]
        looks_back = bound.trims and not written
        offered = offer(checkpoint, planned, bound.source, gone=self._scene.desk.gone, looks_back=looks_back)
        offered = self._ledger.offered(offered)
        state, self._state = self._begun(offered), None
        self._state = self._runner.run(state, batch_of(handed, offered, self._process))
        if self._state.trim:
            self._scene.actors["a batch is trimmed"] += 1
        if offered.begins:
            self._scene.actors["a source says where it begins"] += 1
        if self._state.skipped and self._state.epoch:
            self._scene.told(f"{self._process.name} skips, proven: epoch {self._state.epoch.number}")

    def _begun(self, offered: Offer) -> State:
        if self._state is not None:
            return coordinator.resume(self._state, offered)
        bound = self._scene.bound
        return coordinator.start(
            PIPELINE,
            bound.sinks,
            self._process.owner,
            offered,
            overlap="trim" if bound.trims else "stop",
            stages=bound.stages,
        )

    def _return(self, planned: Planned) -> bool:
        """Let the engine log the batch as done; whether it was the last."""
        scene, process = self._scene, self._process
        faults.fire(Point.RETURN_BEFORE)
        scene.step(process)
        after = scene.checkpoints[process.at].commit(planned.batch_id)
        scene.checkpoints[process.at] = after
        scene.scribe.returned(process.number)
        scene.told(f"{process.name} returns; the engine logs batch {planned.batch_id} as done")
        return after.entries[-1].end >= scene.bound.records
