"""How ``onceonly time certify`` reads its epochs and says what came too late."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onceonly.cli.output import emit_table, plural, say, talk
from onceonly.errors import refuse
from onceonly.reading.certificate import Certificate
from onceonly.reading.moments import spelled
from onceonly_checkpoints.epochtime import Unit


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


def span(said: str | None) -> tuple[int | None, int | None]:
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
            problem=f"--epochs {said!r} names no epochs.",
            cause="it takes the first and the last one, both included",
            next="--epochs 1..7, or --epochs 7..7 for one",
        )
    return int(found[1]), int(found[2])
