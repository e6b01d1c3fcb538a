"""Rules over event time: no promise taken back, and late rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onceonly.audit.facts import Facts
from onceonly.audit.sink_history import Evidence, SinkHistory, links, ranges
from onceonly.machine import writer_progress
from onceonly.machine.event_time import text
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol.row_times import RowTimes
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochTime, Unit

BROKEN = frozenset({"A168", "A169", "A170", "A171", "A173"})
"""Codes of a promise of time that does not hold. The verdict is of rows, and stays what it is: beside it is said that
time is in doubt."""


def time_holds(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A168 to A171: a promise was taken back, or no writer could have given it."""
    for sink, before, epoch in links(lines):
        for code, evidence in _wrong(facts.pipeline, before, epoch):
            yield Evidence(code, epoch.number, evidence, sink=sink)


def _wrong(pipeline: str, before: Epoch | None, epoch: Epoch) -> Iterator[tuple[str, str]]:
    """Yield codes and evidence for one epoch, by itself and after the one before it."""
    previous = TimedMarker(pipeline, before.number, before.time) if before and before.time else None
    if epoch.time is None:
        if previous:
            said = f"epoch {previous.epoch} says that {_complete(previous.time)}"
            yield "A171", f"{said}, epoch {epoch.number} says nothing"
        return
    now = TimedMarker(pipeline, epoch.number, epoch.time)
    yield from _unfounded(now)
    if previous is None:
        return
    observed = writer_progress.by_name(now.observed)
    gone = [mark.writer for mark in previous.observed if mark.writer not in observed]
    if gone:
        yield "A170", f"epoch {previous.epoch} observed {', '.join(gone)}, epoch {epoch.number} does not"
    back = tuple(_back(previous, now, same=not gone and writer_progress.same_turns(previous, observed)))
    if back:
        yield "A168", "; ".join(back)


def _unfounded(now: TimedMarker) -> Iterator[tuple[str, str]]:
    """Check that no conclusion exceeds the observed writers' notes."""
    lower = now.time.dataset_complete_until
    most = writer_progress.greatest(mark.complete_until for mark in now.observed)
    if lower is not None and (most is None or lower > most):
        reason = "none of its writers noted anything" if most is None else _completeness_text(now, most)
        yield "A169", f"epoch {now.epoch} says that {_complete(now.time)}, and {reason}"


def _completeness_text(now: TimedMarker, most: int) -> str:
    unit = now.time.unit
    if not now.time.writers:
        return f"noted {text(most, unit)}"
    each = (f"{mark.writer} {_spelled(mark.complete_until, unit)}" for mark in now.observed)
    return f"its writers noted at most {text(most, unit)} ({', '.join(each)})"


def _back(previous: TimedMarker, now: TimedMarker, *, same: bool) -> Iterator[str]:
    """Describe the times that went back since the epoch before.

    ``same``: no writer was set back, which would void conclusions from its notes.
    """
    before, time = previous.time, now.time
    if time.resets != before.resets:
        if time.resets < before.resets:
            yield f"epoch {previous.epoch} is of turn {before.resets}, epoch {now.epoch} of turn {time.resets}"
        return
    if time.unit != before.unit:
        yield f"epoch {previous.epoch} counts {before.unit}, epoch {now.epoch} {time.unit}, in one turn"
        return
    numbers = {
        "noted": (before.complete_until, time.complete_until),
        "concluded": (before.dataset_complete_until, time.dataset_complete_until),
    }
    for word, (old, new) in numbers.items():
        if old is not None and (new is None or new < old) and (same or word == "noted"):
            old_text, became = text(old, time.unit), _spelled(new, time.unit)
            yield f"epoch {previous.epoch} {word} {old_text}, epoch {now.epoch} {word} {became}"


def _complete(time: EpochTime) -> str:
    return (
        f"all before {_spelled(time.dataset_complete_until, time.unit)} is there"
        if time.dataset_complete_until is not None
        else "nothing is known"
    )


def _spelled(number: int | None, unit: Unit) -> str:
    return "nothing" if number is None else text(number, unit)


def late_rows(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A172: rows before an event time that was already noted as complete."""
    epochs = {epoch.number: epoch for line in reversed(lines) for epoch in line.epochs if epoch.number >= line.series}
    timed = [(number, epochs[number].time) for number in sorted(epochs) if number >= facts.since]
    late = [(number, time) for number, time in timed if time and time.late_rows]
    if not late:
        return
    numbers = tuple(number for number, _ in late)
    rows = sum(time.late_rows for _, time in late)
    whose = f"{'epoch' if len(numbers) == 1 else 'epochs'} {ranges(numbers)}"
    worst = max(late, key=lambda pair: _behind(pair[1]))
    evidence = f"{whose} brought {rows} late row{'' if rows == 1 else 's'}{_earliest(*worst)}"
    yield Evidence("A172", numbers[0], evidence, last=numbers[-1])


def _behind(time: EpochTime) -> int:
    return 0 if time.earliest is None or time.late_before is None else time.late_before - time.earliest


def _earliest(number: int, time: EpochTime) -> str:
    if time.earliest is None or time.late_before is None:
        return ""
    of, before = text(time.earliest, time.unit), text(time.late_before, time.unit)
    return f"; at worst, in epoch {number}, one of {of} after all before {before} was noted"


def times_match(line: SinkHistory) -> Iterator[Evidence]:
    """A173, A174: times of each epoch's rows against the times that the epoch records."""
    content = line.sink.content
    if content is None:
        return
    held = (epoch for epoch in recounted(line) if epoch.digest_in(line.sink.id) == epoch.digest)
    timed_epochs = [(epoch, epoch.time) for epoch in held if epoch.time and epoch.time.column]
    unknown = tuple(epoch.number for epoch, _ in timed_epochs if epoch.number not in content.times)
    if unknown:
        yield Evidence("A174", unknown[0], f"epochs {ranges(unknown)}", last=unknown[-1])
    for epoch, time in timed_epochs:
        row_times = content.times.get(epoch.number)
        if row_times and row_times != _committed(time):
            evidence = f"{_words(_committed(time), time.unit)} by the epoch; {_words(row_times, time.unit)} by its rows"
            yield Evidence("A173", epoch.number, evidence)


def times_dealt_out(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A173 for rows spread over several sinks, none of which holds them all.

    Their digests must add up to the epoch's own, which proves that they are its rows, each once. Outputs that share
    rows, omit some, or have columns of their own cannot be compared with the epoch's time.
    """
    for epoch, shares in _dealt_out(lines):
        time, parts = epoch.time, [line.sink.content.times[epoch.number] for line in shares if line.sink.content]
        if time is None or (row_times := _joined(parts)) == _committed(time):
            continue
        epoch_text, found_there = (_words(times, time.unit) for times in (_committed(time), row_times))
        where = ", ".join(line.sink.id for line in shares)
        evidence = f"{epoch_text} by the epoch; {found_there} by its rows, which lie in {where}"
        yield Evidence("A173", epoch.number, evidence, sink=shares[0].sink)


def _dealt_out(lines: tuple[SinkHistory, ...]) -> Iterator[tuple[Epoch, list[SinkHistory]]]:
    """Yield epochs whose rows were counted in several sinks, with one sink for each output."""
    epochs: dict[str, Epoch] = {}
    shares: dict[str, dict[str, SinkHistory]] = {}
    for line in lines:
        for epoch in recounted(line):
            output, content = epoch.output(line.sink.id), line.sink.content
            if output and content and epoch.number in content.times:
                epochs[epoch.chain] = epoch
                shares.setdefault(epoch.chain, {}).setdefault(output.name, line)
    for chained, by_output in shares.items():
        epoch, held = epochs[chained], list(by_output.values())
        if len(held) > 1 and sum((epoch.digest_in(share.sink.id) for share in held), Digest(0)) == epoch.digest:
            yield epoch, held


def _joined(parts: Sequence[RowTimes]) -> RowTimes:
    """Merge the times of rows that were counted separately."""
    first = min((part.first for part in parts if part.first is not None), default=None)
    last = max((part.last for part in parts if part.last is not None), default=None)
    return RowTimes(first, last, sum(part.late for part in parts), sum(part.untimed for part in parts))


def _committed(time: EpochTime) -> RowTimes:
    return RowTimes(time.earliest, time.latest, time.late_rows, time.rows_without_time)


def recounted(line: SinkHistory) -> Iterator[Epoch]:
    """Yield epochs whose rows a sink should hold unchanged, and for which no other rule reports missing rows."""
    changed = any(event.kind == "overwritten" for event in line.sink.allowed.changes)
    yield from () if changed else (epoch for epoch in line.unaltered if not line.miscounted(epoch))


def _words(times: RowTimes, unit: Unit) -> str:
    if times.first is None or times.last is None:
        return f"no row has a time, {times.untimed} without"
    span = f"{text(times.first, unit)} to {text(times.last, unit)}"
    return f"{span}, {times.late} late, {times.untimed} without a time"
