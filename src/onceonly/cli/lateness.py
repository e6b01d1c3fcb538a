"""Late rows of ``onceonly time certify``: read and print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from onceonly.cli.connect import Connection
from onceonly.cli.output import emit_table, plural, say, talk
from onceonly.errors import refuse
from onceonly.event_time.late_epochs import Certificate
from onceonly.event_time.late_rows import LateRows, late_rows, nothing_told, plain
from onceonly.event_time.timestamps import spelled
from onceonly.protocol import Sink
from onceonly.runtime.read_errors import UNREADABLE, reason_of
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import Unit


def show(made: Certificate) -> None:
    """Print a certificate: what is late on stdout, what is not known on stderr."""
    where = f"in epochs {made.first}..{made.last} ({plural(made.rows, 'row')})"
    if made.late:
        heads = ("epoch", "late", "first", "horizon", "at worst")
        emit_table(heads, _late_rows(made))
        say(f"{plural(sum(one.late for one in made.late), 'row')} behind the horizon {where}")
    elif not made.unknown:
        say(f"no row behind the horizon {where}")
    if made.untimed:
        say(f"{plural(made.untimed, 'row')} without a time, which are never late")
    for first, last in made.unknown:
        talk(f"epochs {first}..{last}: their markers are gone, or say nothing of time")


def _late_rows(made: Certificate) -> Iterator[tuple[object, ...]]:
    for one in made.late:
        yield (
            one.epoch,
            one.late,
            spelled(one.first, made.unit),
            spelled(one.horizon, made.unit),
            _late_by(one.worst, made.unit),
        )


def _late_by(number: int, unit: Unit | None) -> str:
    if unit != "ms":
        return str(number)
    seconds, thousandths = divmod(number, 1000)
    hours, rest = divmod(seconds, 3600)
    said = (
        f"{hours} h" if hours else "",
        f"{rest // 60} min" if rest >= 60 else "",
        f"{rest % 60} s" if rest % 60 else "",
    )
    return " ".join(filter(None, (*said, f"{thousandths} ms" if thousandths else "")))


def rows_of(here: Connection, epochs: Sequence[Epoch], limit: int) -> LateRows:
    """The late rows out of the sink that tells most of them; the first one, where several tell as much."""
    found = [_told(sink, here.pipeline, epochs, limit) for sink in here.sinks]
    return min(found, key=lambda one: len(one.unknown), default=nothing_told("-", epochs, "no sink can be read"))


def _told(sink: Sink, pipeline: str, epochs: Sequence[Epoch], limit: int) -> LateRows:
    try:
        sink.open(pipeline)
        return late_rows(sink, epochs, limit)
    except UNREADABLE as error:
        return nothing_told(sink.id, epochs, reason_of(error))


def show_rows(told: LateRows, here: Connection, epochs: Sequence[Epoch]) -> None:
    """Print late rows on stdout, and who can tell those of which nothing is known on stderr."""
    times = {epoch.number: epoch.time for epoch in epochs}
    unit: Unit | None = next((time.unit for time in times.values() if time), None)
    if told.rows:
        say()
        values = ((one, {name: plain(value) for name, value in one.row.items()}) for one in told.rows)
        heads = ("epoch", "time", "behind", f"row in {told.sink}")
        emit_table(
            heads,
            (
                (one.epoch, spelled(one.time, unit), _late_by(one.worst, unit), json.dumps(row, ensure_ascii=False))
                for one, row in values
            ),
        )
        if told.found > len(told.rows):
            talk(f"{plural(told.found - len(told.rows), 'late row')} not shown; --limit shows more")
    if told.found != told.counted:
        talk(f"{told.counted} were counted when they were written, {told.found} stand in {told.sink}")
    addresses = ", ".join(sink.address for sink in here.sinks) or "the sink"
    for number, why in told.unknown:
        time = times[number]
        which = f"rows with {time.column} before {spelled(time.horizon, time.unit)}" if time and time.column else "rows"
        talk(f"epoch {number}: {told.sink} cannot tell its late rows: {why}; who can: {which}, in {addresses} itself")


def span(said: str | None, option: str = "--epochs") -> tuple[int | None, int | None]:
    """The first and the last epoch of ``A..B``; ``None`` for each where nothing was said.

    Raises:
        ConfigurationError: E110, it names no epochs.
    """
    if said is None:
        return None, None
    found = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", said)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise refuse(
            "E110",
            problem=f"{option} {said!r} names no epochs.",
            cause="it takes the first and the last one, both included",
            next=f"{option} 1..7, or {option} 7..7 for one",
        )
    return int(found[1]), int(found[2])
