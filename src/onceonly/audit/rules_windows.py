"""Rules over windows: continuity between epochs, state and results. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, found
from onceonly.audit.sink_history import SinkHistory
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.model import AdoptionKind


def panes_go_on(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A175: windows that the epoch before rules out: another definition, a clock that went back, state from nothing."""
    judged: set[str] = set()
    for line in lines:
        before: Epoch | None = None
        for epoch in line.epochs:
            # Sinks hold the same epochs, and where a link is missing another rule says so.
            if before and epoch.previous_chain == before.chain and epoch.chain not in judged:
                for evidence in _wrong(before, epoch):
                    yield found("A175", facts.pipeline, line.sink, epoch.number, evidence)
            judged.add(epoch.chain)
            before = epoch


def _wrong(before: Epoch, epoch: Epoch) -> Iterator[str]:
    """Describe each contradiction between the windows of an epoch and those of the one before it."""
    stood, now = before.panes, epoch.panes
    if stood is None or epoch.series > before.series:
        return
    if now is None:
        yield f"epoch {before.number} says {stood.text}, epoch {epoch.number} says nothing of windows"
        return
    if epoch.adoption is not None:
        yield from _decided(stood, epoch, now)
        return
    if now.meaning != stood.meaning:
        yield f"the windows of epoch {epoch.number} mean something else than those of epoch {before.number}"
    elif now.definition != stood.definition and stood.open.rows:
        yield f"trigger or lateness changed with epoch {epoch.number}, and epoch {before.number} left {stood.text}"
    if now.clock < stood.clock:
        yield f"the timers of epoch {before.number} ran to {stood.clock}, those of epoch {epoch.number} to {now.clock}"
    if now.since != stood.since:
        yield f"epoch {epoch.number} counts state from epoch {now.since} on, epoch {before.number} from {stood.since}"


def _decided(stood: EpochWindows, epoch: Epoch, now: EpochWindows) -> Iterator[str]:
    """Check that an operator's epoch leaves windows as they are, or gives all of them up."""
    resets = epoch.adoption is not None and epoch.adoption.kind is AdoptionKind.RESET_PANES
    if now != (stood.given_up(epoch.number) if resets else stood):
        yield f"epoch {epoch.number} is an operator's and changed what is open, from {stood.text} to {now.text}"


def state_stands(pipeline: str, line: SinkHistory) -> Iterator[Finding]:
    """A176: a fresh hash of the sink's state against the newest epoch's record of open windows."""
    state, newest = line.sink.state.digest if line.sink.state else None, line.held[-1] if line.held else None
    if state is None or newest is None or newest.panes is None or state == newest.panes.open:
        return
    wanted = newest.panes.open
    if state.rows != wanted.rows:
        evidence = f"{state.rows} windows stand, and epoch {newest.number} left {wanted.rows}"
    else:
        evidence = f"{state.rows} windows stand, as many as epoch {newest.number} left, and others"
    yield found("A176", pipeline, line.sink, newest.number, evidence)


def results_stand(pipeline: str, line: SinkHistory) -> Iterator[Finding]:
    """A177, A178: results in a sink against one another, and those of open windows against their state."""
    for what, why in (
        ("state", line.sink.state.why if line.sink.state else ""),
        ("results", line.sink.results.why if line.sink.results else ""),
    ):
        if why:
            yield found("A178", pipeline, line.sink, None, f"{what}: {why}")
    if line.sink.results is None or line.sink.allowed.changes:
        return  # A164 tells what others may have changed
    for wrong in line.sink.results.wrong:
        yield found("A177", pipeline, line.sink, wrong.epoch, wrong.evidence)
    if line.sink.results.more:
        yield found("A177", pipeline, line.sink, None, f"{line.sink.results.more} more windows are not told one by one")
