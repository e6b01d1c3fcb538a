"""Health checks of a destination and durations of past epochs. Pure.

Limits are derived from those durations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onceonly.errors import fill, mask
from onceonly.errors.codes import Catalogue, one_line, sections, text_of
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Pin
from onceonly_checkpoints.strenum import StrEnum

# ---- The catalogue of the doctor's codes: what is wrong, why that matters, what to do. Codes are stable.


@dataclass(frozen=True, slots=True)
class Page:
    """The texts of one code. Details are in braces, as in :mod:`onceonly.errors.codes`.

    ``matter`` is the effect on the guarantee.
    """

    what: str
    matter: str
    remedy: str


def _pages() -> Iterator[tuple[str, Page]]:
    for code, texts in sections(text_of("health", __package__ or ""), "Why it matters: ", "Next: "):
        yield code, Page(*map(one_line, texts))


PAGES = Catalogue(_pages)
"""Every code, in the order of its families. The texts are in ``health.md``."""


# ---- One check of the doctor: what was looked at, what was seen, what to do.


class State(StrEnum):
    """Result of a check."""

    OK = "ok"
    HINT = "hint"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result.

    Attributes:
        state: only a problem changes the exit code.
        remedy: empty if there is nothing to do.
        code: stable code, ``D101``, whose page ``onceonly explain`` prints. Empty where there is none.
    """

    name: str
    state: State
    message: str
    remedy: str = ""
    code: str = ""


def spot(code: str, name: str, state: State = State.PROBLEM, **details: object) -> Check:
    """Make the check of a code. ``details`` fill the texts of its page.

    :class:`KeyError` if there is no such code, or a detail is missing.
    """
    page = PAGES[code]
    return Check(name, state, mask(fill(page.what, details)), mask(fill(page.remedy, details)), code)


# ---- What past epochs say of a pipeline: how long transactions stay open, how long it stands still. Pure.

_OPEN = ("prepare", "commit")
"""Phases in which a sink's transaction is open."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Durations of past epochs.

    Attributes:
        longest_open_s: longest time from the first row to the answer of the commit, seconds.
        longest_gap_s: longest time between two epochs, or since the newest, seconds.
        longest_pin_s: longest time for which a reader has pinned an epoch that it still reads, seconds.
    """

    epochs: int = 0
    longest_open_s: float = 0.0
    longest_gap_s: float = 0.0
    longest_pin_s: float = 0.0


UNOBSERVED = Observed()
"""Nothing is known yet."""


def observe(records: Sequence[EpochRecord], now_ms: int, pins: Sequence[Pin] = ()) -> Observed:
    """Measure recorded epochs, oldest first, and current pins, at ``now_ms`` (milliseconds since 1970)."""
    pinned = max(((now_ms - pin.since_ms) / 1000 for pin in pins), default=0.0)
    times = [record.recorded_ms for record in records if record.recorded_ms] + [now_ms]
    gaps = [(after - before) / 1000 for before, after in pairwise(times)]
    opened = [sum(seconds for phase, seconds in record.phases if phase in _OPEN) for record in records]
    return Observed(len(records), max(opened, default=0.0), max(gaps, default=0.0), pinned)


def spell(seconds: float) -> str:
    """A time in words: ``12.5 s``, ``3 min``, ``40 days``."""
    for limit, unit, size in ((120.0, "s", 1.0), (7200.0, "min", 60.0), (172800.0, "h", 3600.0)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.0f} days"
