"""Rules over rows divided into outputs and windows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onceonly.audit.facts import Facts
from onceonly.audit.sink_history import Evidence, SinkHistory, links, ranges
from onceonly.machine.division_rules import unbalanced
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import AdoptionKind


def outputs_add_up(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A160: held and unwanted rows of an output do not sum to the good rows of its epoch."""
    for sink, _, epoch in links(lines):
        if wrong := unbalanced(epoch.digest, epoch.outputs, epoch.windows):
            name, accounted, good = wrong
            evidence = f"output {name} accounts for {accounted} rows, and {good} are good"
            yield Evidence("A160", epoch.number, evidence, sink=sink)


def bad_rows(line: SinkHistory) -> Iterator[Evidence]:
    """A163: bad rows that this sink keeps, with those that expired."""
    aside = [
        candidate for candidate in line.epochs if candidate.number >= line.series and _bad_in(candidate, line.sink.id)
    ]
    if not aside:
        return
    rows, reasons = 0, Counter[str]()
    for epoch in aside:
        rows += _bad_in(epoch, line.sink.id)
        reasons.update(dict(epoch.bad.reasons) if epoch.bad else {})
    named = ", ".join(f"{name} {count}" for name, count in reasons.most_common())
    numbers = tuple(bad_epoch.number for bad_epoch in aside)
    brought = f"{'epoch' if len(numbers) == 1 else 'epochs'} {ranges(numbers)} set {rows} rows aside ({named})"
    expired = line.sink.expired
    gone = f"; {expired.total} rows of epochs up to {expired.epoch} were removed after their time" if expired else ""
    yield Evidence("A163", numbers[0], f"{brought}{gone}", last=numbers[-1])


def _bad_in(epoch: Epoch, sink: str) -> int:
    return epoch.bad.digest.rows if epoch.bad and sink in epoch.bad.sinks else 0


# ---- Rules over windows: continuity between epochs, state and results. Pure.


def panes_go_on(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A175: windows that the epoch before rules out: another definition, a clock that went back, state from nothing."""
    for sink, before, epoch in links(lines):
        for evidence in _wrong(before, epoch) if before else ():
            yield Evidence("A175", epoch.number, evidence, sink=sink)


def _wrong(before: Epoch, epoch: Epoch) -> Iterator[str]:
    """Describe each contradiction between the windows of an epoch and those of the one before it."""
    previous, now = before.windows, epoch.windows
    if previous is None or epoch.series > before.series:
        return
    if now is None:
        yield f"epoch {before.number} says {previous.text}, epoch {epoch.number} says nothing of windows"
        return
    if epoch.adoption is not None:
        yield from _decided(previous, epoch, now)
        return
    if now.result_definition != previous.result_definition:
        yield f"the windows of epoch {epoch.number} mean something else than those of epoch {before.number}"
    elif now.definition != previous.definition and previous.open.rows:
        yield f"trigger or lateness changed with epoch {epoch.number}, and epoch {before.number} left {previous.text}"
    if now.clock < previous.clock:
        clocks = f"ran to {previous.clock}, those of epoch {epoch.number} to {now.clock}"
        yield f"the timers of epoch {before.number} {clocks}"
    if now.since != previous.since:
        since = f"from epoch {now.since} on, epoch {before.number} from {previous.since}"
        yield f"epoch {epoch.number} counts state {since}"


def _decided(previous: EpochWindows, epoch: Epoch, now: EpochWindows) -> Iterator[str]:
    """Check that an operator's epoch leaves windows as they are, or gives all of them up."""
    resets = epoch.adoption is not None and epoch.adoption.kind is AdoptionKind.RESET_PANES
    if now != (previous.given_up(epoch.number) if resets else previous):
        yield f"epoch {epoch.number} is an operator's and changed what is open, from {previous.text} to {now.text}"


def state_stands(line: SinkHistory) -> Iterator[Evidence]:
    """A176: a fresh hash of the sink's state against the newest epoch's record of open windows."""
    state, newest = line.sink.state.digest if line.sink.state else None, line.held[-1] if line.held else None
    if state is None or newest is None or newest.windows is None or state == newest.windows.open:
        return
    expected = newest.windows.open
    if state.rows != expected.rows:
        evidence = f"{state.rows} windows stand, and epoch {newest.number} left {expected.rows}"
    else:
        evidence = f"{state.rows} windows stand, as many as epoch {newest.number} left, and others"
    yield Evidence("A176", newest.number, evidence)


def results_stand(line: SinkHistory) -> Iterator[Evidence]:
    """A177, A178: results in a sink against one another, and those of open windows against their state."""
    for what, why in (
        ("state", line.sink.state.why if line.sink.state else ""),
        ("results", line.sink.results.why if line.sink.results else ""),
    ):
        if why:
            yield Evidence("A178", None, f"{what}: {why}")
    if line.sink.results is None or line.sink.allowed.changes:
        return  # A164 tells what others may have changed
    for wrong in line.sink.results.wrong:
        yield Evidence("A177", wrong.epoch, wrong.evidence)
    if line.sink.results.more:
        others = "1 window" if line.sink.results.more == 1 else f"{line.sink.results.more} windows"
        yield Evidence("A177", None, f"{others} beside those named")
