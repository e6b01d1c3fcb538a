"""Write the epochs of one call, for every way in.

``wrapper`` has the way in through ``foreachBatch``, ``datasource`` that of ``format("onceonly")``. Each passes its
findings about a batch as values.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from onceonly import faults
from onceonly.api import admission, guarantee
from onceonly.api.arguments import Arguments
from onceonly.api.guarantee import Receipts, Report
from onceonly.api.progress import Shown
from onceonly.api.run_state import RunState, RunStates, of_run
from onceonly.errors import mask
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.estimate import Past
from onceonly.machine.event_time import complete_until
from onceonly.machine.facts import Happening, Offer, Replays
from onceonly.machine.state import Job, State
from onceonly.protocol import Batch
from onceonly.runtime import events, runs, shared_transaction
from onceonly.spark import frames
from onceonly.spark.fingerprint import Determinism
from onceonly.spark.input import Input
from onceonly_checkpoints.digests import SEEN_IDS
from onceonly_checkpoints.epoch import Columns, OutputColumns
from onceonly_checkpoints.ledger import KeptPlan

log = logging.getLogger(__name__)


class Epochs:
    """Write the epochs of one call.

    Attributes:
        openings: finds the opening of a run.
        written: facts about the written rows. ``None`` before the first batch.
        last_receipts: of the newest epoch of this process, one per sink. Empty before the first.
        replays: the recorded epochs that the next batch runs again. ``None`` for batches of the query's own.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self.openings = RunStates(arguments)
        self.written: Determinism | None = None
        self.last_receipts = Receipts()
        self.replays: Replays | None = None

    def promise(self) -> Report:
        """The guarantee of each sink, as far as it is known by now."""
        arguments = self._arguments
        chosen = replace(arguments.chosen, further=self.openings.further)
        return Report(guarantee.explain(arguments.sinks, self.openings.plan, self.written, chosen))

    def write(self, opening: RunState, batch: Batch, read: Input, columns: Columns, determinism: Determinism) -> State:
        """Write one batch, or prove that it is already written. Returns the state of the machine after it.

        ``columns`` are those of the rows without outputs.

        Raises:
            OnceOnlyError: the batch was not written. The message has the reason and the next step.
            ConfigurationError: E132 or E134, time cannot go on from the named upstream.
        """
        if opening.code is None:
            opening.code = of_run(self._arguments, determinism)
            promises, sinks = ("same final result", "exactly once"), self._arguments.sinks
            targets = [f"{mask(sink.address)} ({promises[sink.capabilities.transactional]})" for sink in sinks]
            opening.progress.begin(opening.pipeline, targets, mask(opening.ledger.address))
        ran = opening.code.code
        lineage = replace(read.lineage, version=ran.version, plan=ran.plan)
        offer = read.offer(columns, stateful=opening.run.plan.stateful)
        offer = replace(offer, lineage=lineage, replays=self.replays, columns=_columns(opening, columns))
        if opening.state is None:
            offer = replace(offer, state=opening.runner.state_of(lineage.batch_id))
        if opening.upstream:
            opening.upstream.check(offer.sources, offer.slice.end)
        faults.fire(Point.DISCOVER_AFTER)
        state = self._decide_and_write(opening, offer, batch)
        self._report(opening, state)
        self._tell(opening, state, determinism, read)
        if read.covered and state.work.epoch:
            opening.past = Past(read.covered, state.work.epoch.came)
        faults.fire(Point.RETURN_BEFORE)
        return state

    def _decide_and_write(self, opening: RunState, offer: Offer, batch: Batch) -> State:
        arguments = self._arguments
        if opening.state is None:
            state = coordinator.start(
                Job(
                    opening.pipeline,
                    arguments.ids,
                    runs.owner(opening.application),
                    offer,
                    adopt=arguments.recovery.adopts,
                    overlap=arguments.recovery.overlap,
                    stages=arguments.storage.stages,
                    on_refresh=arguments.recovery.on_refresh,
                    max_bad=arguments.division.max_bad if arguments.division else None,
                    transaction_groups=shared_transaction.transaction_groups(arguments.sinks),
                    divided=arguments.divided,
                    noting=arguments.event_time.noting if arguments.event_time else None,
                    windows=arguments.windows.windows(opening.windows[1])
                    if arguments.windows and opening.windows
                    else None,
                    aside=arguments.division.aside if arguments.division else (),
                )
            )
        else:
            state = coordinator.resume(opening.state, offer)
        opening.state = None  # a run that fails here must open again before it may write
        opening.state = opening.runner.run(state, batch)
        return opening.state

    def _keep_plan(self, opening: RunState, state: State) -> None:
        """Keep the input of the run's fingerprint, to show the changes of a later run."""
        ran, last = opening.code, state.opening.last
        if ran is None or ran.code.plan is None or last is None:
            return
        first = last.number + 1 if state.work.skipped else last.number
        opening.runner.events.keep_plan(KeptPlan(opening.pipeline, ran.code.plan.text, ran.text, first))

    def _report(self, opening: RunState, state: State) -> None:
        epoch = state.work.epoch
        if epoch is None:
            return
        sinks, recovered = ", ".join(self._arguments.ids), tuple(opening.runner.events.recovered)
        if state.work.skipped:
            log.info(
                "pipeline %s: replay of epoch %d skipped: already held by %s", opening.pipeline, epoch.number, sinks
            )
            opening.progress.show(Shown(epoch.number, recovered=recovered))
            return
        opening.progress.show(Shown(epoch.number, epoch.rows, sum(opening.runner.phases.values()), recovered))
        self.last_receipts = Receipts(state.work.receipts)
        phases = ", ".join(f"{phase} {seconds * 1000:.0f} ms" for phase, seconds in opening.runner.phases.items())
        rows = f"{epoch.rows} rows{''.join(f'; {output.text}' for output in epoch.outputs)}"
        rows += f", {epoch.windows.text}" if epoch.windows else ""
        rows += complete_until(epoch)
        log.info("pipeline %s: epoch %d committed to %s: %s (%s)", opening.pipeline, epoch.number, sinks, rows, phases)

    def _tell(self, opening: RunState, state: State, determinism: Determinism, read: Input) -> None:
        """Record a run's guarantee, once, and the late rows that Spark dropped from a batch."""
        plan = opening.run.plan
        if state.work.epoch is None:
            return
        happenings: list[Happening] = []
        if not opening.is_promise_recorded:
            happenings += [events.promise_event(self.promise())]
            further = self._arguments.adding if self.openings.further else ()
            happenings += events.warned(opening.pipeline, plan, determinism, opening.admission.shared, further)
            time, windowed = self._arguments.event_time, self._arguments.windows
            happenings += time.warnings(plan, opening.pipeline) if time else ()
            outputs = opening.outputs[1].outputs if opening.outputs else ()
            windows = windowed.ordered_by(opening.windows[1]) if windowed and opening.windows else ()
            happenings += admission.warn_text_order(self._arguments.sinks, opening.columns, outputs, windows)
        # Before there is a watermark no row is late.
        watermark_ms = read.lineage.watermark_ms
        if plan.stateful and watermark_ms and (rows := opening.run.engine.late_rows(opening.run)):
            happenings.append(events.late(rows, watermark_ms, state.work.epoch.number))
        opening.runner.events.keep(opening.pipeline, happenings, state.opening.fence.generation)
        if not opening.is_promise_recorded:
            self._keep_plan(opening, state)
        opening.is_promise_recorded = not state.work.skipped  # a skipped batch has no receipts to compare


def _columns(opening: RunState, columns: Columns) -> tuple[OutputColumns, ...]:
    """Columns of the rows and of each output of the user. Windows alone show those of their results."""
    resolved = opening.outputs[1].outputs if opening.outputs else ()
    outputs = (output for output in resolved if output.spec.name != SEEN_IDS)
    named = (OutputColumns(output.spec.name, frames.columns_in(output.columns)) for output in outputs)
    return tuple(named) if opening.windows else (OutputColumns("", columns), *named)
