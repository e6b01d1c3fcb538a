"""Rules over sinks that cannot count rows by epoch. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly.audit.sink_history import Evidence, SinkHistory, ranges
from onceonly.protocol.values import Leaves
from onceonly_checkpoints.digests import SEEN_IDS, STATE
from onceonly_checkpoints.epoch import Epoch


def rows_uncounted(line: SinkHistory) -> Iterator[Evidence]:
    """A119, A120, A167: the sink does not count rows per epoch, by its nature or after changes by others."""
    if line.held and not line.sink.transactional:
        yield Evidence("A167", None, "each row was put by itself, the marker last")
        return
    if not line.held or line.is_counted:
        return
    others, touched = line.sink.others, line.sink.disturbances or line.sink.allowed.changes
    if line.sink.append_only and others:
        names = ", ".join(f'"{name}"' for name in others)
        yield Evidence("A120", None, f"pipeline {names} writes epochs to this very target, too")
    elif line.sink.append_only and touched:
        yield Evidence("A120", None, "others changed rows of several epochs")
    else:
        yield Evidence("A119", None, _why(line))


def _why(line: SinkHistory) -> str:
    if line.sink.rows is not None:
        return f"of epochs {ranges(line.aged)}: the sink no longer remembers which rows they brought"
    nature = (
        "the target does not know the epoch of its rows" if line.sink.append_only else "its rows replace one another"
    )
    if line.sink.total is None:
        return nature
    return f"{nature}; rows in it: {line.sink.total.rows}, proven: at least {_least(line)[0]}"


def rows_in_all(line: SinkHistory) -> Iterator[Evidence]:
    """A154, A176: fewer rows in total than the epochs must have left, whichever epoch wrote last."""
    total, newest = line.sink.total, line.held[-1] if line.held else None
    # What a running driver brought while rows were counted has replaced some of them.
    if total is None or newest is None or newest.number > line.sink.counted or line.sink.allowed.changes:
        return
    if line.kind == STATE and newest.windows:
        expected = newest.windows.open.rows
        if total.rows != expected and line.sink.state is None:
            evidence = f"{total.rows} windows stand, and epoch {newest.number} left {expected}"
            yield Evidence("A176", newest.number, evidence)
    else:
        least, reason = _least(line)
        if total.rows < least:
            yield Evidence("A154", None, f"{total.rows} stand, and at least {least} must: {reason}")
        elif short := _newest_short(line):
            yield Evidence("A154", None, short)


def ids_known(line: SinkHistory) -> Iterator[Evidence]:
    """A190: ids are missing before they expire."""
    if line.kind != SEEN_IDS or line.sink.rows is None:
        return
    missing: dict[int, int] = {}
    for epoch in _judged(line):
        expected = epoch.digest_in(line.sink.id).rows - line.sink.gone(epoch)
        stand = line.sink.rows.get(epoch.number, 0)
        if epoch.number <= line.sink.counted and stand < expected:
            missing[epoch.number] = expected - stand
    if missing:
        whose = f"{'epoch' if len(missing) == 1 else 'epochs'} {ranges(tuple(missing))}"
        evidence = f"ids of {whose} are gone before their time: {sum(missing.values())}"
        yield Evidence("A190", min(missing), evidence, last=max(missing))


def files_there(line: SinkHistory) -> Iterator[Evidence]:
    """A191: files that the target lists are gone, so no reader gets their rows."""
    if line.sink.absent:
        yield Evidence("A191", None, f"not there: {line.sink.absent}")


def _judged(line: SinkHistory) -> list[Epoch]:
    """Return epochs with rows in the current series, after the newest acceptance by an operator, oldest first."""
    begun = max(line.series, line.accepted + 1)
    return [epoch for epoch in line.epochs if epoch.number >= begun and epoch.digest_in(line.sink.id).rows]


def _least(line: SinkHistory) -> tuple[int, str]:
    """Return the minimum of rows that must be left after any later epochs, and why."""
    epochs = [(epoch.digest_in(line.sink.id).rows, epoch.number) for epoch in _judged(line)]
    total = line.sink.total
    if total is None or not epochs:
        return 0, "no epoch brought any"
    if line.sink.append_only:
        return sum(rows for rows, _ in epochs), "so many were added, and none is replaced"
    if total.leaves is Leaves.ANY:
        return 0, "an epoch can remove rows"
    if total.leaves is Leaves.SOME:
        return 1, f"epoch {epochs[-1][1]} brought rows, and none removes any"
    rows, number = max(epochs)
    return rows, f"epoch {number} brought so many, each under a key of its own, and none removes any"


def _newest_short(line: SinkHistory) -> str:
    """Describe the shortfall of the newest epoch with rows, if each of its rows must be the last under its key."""
    total, epochs = line.sink.total, _judged(line)
    if total is None or total.written is None or total.leaves is not Leaves.ALL or not epochs or line.sink.append_only:
        return ""
    number, wrote = epochs[-1].number, epochs[-1].digest_in(line.sink.id).rows
    stand = total.written.get(number, 0)
    return f"epoch {number} wrote {wrote} rows, and {stand} of them stand" if stand < wrote else ""
