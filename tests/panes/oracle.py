"""What panes must be, by brute force: all rows are kept, the clock is walked second by second, nothing of ours is here.

A row that was accepted stays in a list until its window closes. A window is what its rows say when somebody asks:
sessions are joined anew each time, values are computed from the first row on. No state is merged, none is stored, no
trigger has a state: all that is what the engine has, and what it is compared with. An epoch is timers, rows, what is
noted, closing, in this order. Nothing in this file is imported from the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

LEAST, END = -(2**63), 2**63 - 1

Span = tuple[int, int]

Value = int | None | tuple[int | None, ...]


@dataclass(frozen=True)
class Fixed:
    size: int
    offset: int = 0


@dataclass(frozen=True)
class Sliding:
    size: int
    every: int


@dataclass(frozen=True)
class Sessions:
    gap: int


@dataclass(frozen=True)
class Global:
    pass


@dataclass(frozen=True)
class Own:
    """A row names its window."""


Window = Fixed | Sliding | Sessions | Global | Own


@dataclass(frozen=True)
class Rules:
    """What, where, when and how; times in seconds or in any other whole unit, lateness None for ever."""

    window: Window
    period: int | None = None
    """Early panes at multiples of this, on the clock."""
    count: int | None = None
    """Early panes after so many rows."""
    mark: bool = False
    """Early panes whenever a row came that is marked. Not for sessions."""
    late_count: int | None = None
    late_period: int | None = None
    watermark: bool = True
    """False: early panes are all there is, until the closing."""
    lateness: int | None = 0
    discarding: bool = False
    retracting: bool = False
    always: bool = True
    value: Callable[[Sequence[int]], Value] = sum


@dataclass(frozen=True)
class Row:
    key: str
    value: int
    time: int
    mark: bool = False
    own: Span | None = None
    """The window that it names, where rows name theirs; None: it is in none."""


@dataclass(frozen=True)
class Epoch:
    clock: int
    rows: tuple[Row, ...] = ()
    noted: int | None = None
    """The watermark after the epoch, None while nobody has said one."""


@dataclass(frozen=True)
class Pane:
    key: str
    span: Span
    value: Value
    retracts: tuple[tuple[Span, Value], ...]
    timing: str
    index: int
    fired_at: int


@dataclass
class Seen:
    """A row in one window, and who knows of it already."""

    span: Span
    value: int
    mark: bool = False
    told: bool = False
    """A pane has shown it."""


@dataclass
class Told:
    """A pane of a window that has not closed."""

    span: Span
    value: Value
    index: int
    standing: bool


@dataclass
class Of:
    """All that is known of a key."""

    seen: list[Seen] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)


@dataclass
class Oracle:
    """Panes of one stream, epoch after epoch."""

    rules: Rules
    keys: dict[str, Of] = field(default_factory=dict)
    clock: int | None = None
    noted: int | None = None
    dropped: int = 0
    closed: dict[tuple[str, Span], Value] = field(default_factory=dict)
    """What closed windows came to by all of their rows, whatever panes showed of them."""

    def epoch(self, epoch: Epoch) -> list[Pane]:
        """Panes of the next epoch in the order of a key: by phase, then end, then start."""
        panes = self._timers(epoch.clock)
        panes += self._rows(epoch)
        before, self.noted = self.noted, _later(self.noted, epoch.noted)
        panes += self._on_time(epoch.clock, before)
        panes += self._closing(epoch.clock, before)
        self.clock = epoch.clock
        return panes

    def windows(self) -> list[tuple[str, Span]]:
        """Windows that are open, each with its key."""
        return [(key, span) for key in sorted(self.keys) for span in self._spans(key)]

    def sums(self) -> dict[tuple[str, Span], Value]:
        """What every window, open or closed, comes to by all rows that were taken."""
        return self.closed | {(key, span): self._whole(key, span) for key, span in self.windows()}

    def accepts(self, rows: Iterable[Row]) -> list[int]:
        """Values of the rows that the next epoch would take, each once for each of its windows."""
        return [one.value for _, part in self._parts(rows) if not self._is_closed(_hull(part)) for one in part]

    # ---- The four phases.

    def _timers(self, clock: int) -> list[Pane]:
        """Each second from the last epoch on: what changed is shown at multiples of a period, early's or late's."""
        found: list[Pane] = []
        for second in range(clock + 1 if self.clock is None else self.clock + 1, clock + 1):
            for key, span in self.windows():
                past = self._is_past(span, self.noted)
                period = self.rules.late_period if past and self.rules.watermark else self.rules.period
                if period is not None and second % period == 0 and self._changed(key, span):
                    found.append(self._fire(key, span, "LATE" if past else "EARLY", second))
        return sorted(found, key=lambda pane: (pane.span[1], pane.span[0]))

    def _rows(self, epoch: Epoch) -> list[Pane]:
        parts = self._parts(epoch.rows)
        self.dropped += sum(len(part) for _, part in parts if self._is_closed(_hull(part)))
        touched = [(key, part) for key, part in parts if not self._is_closed(_hull(part))]
        for key, part in touched:
            self.keys.setdefault(key, Of()).seen += part
        came = {id(seen): seen for _, part in touched for seen in part}
        return [
            self._fire(key, span, "LATE" if self._is_past(span, self.noted) else "EARLY", epoch.clock)
            for key, span in self.windows()
            if self._is_enough(key, span, [seen for seen in self._in(key, span) if id(seen) in came])
        ]

    def _on_time(self, clock: int, before: int | None) -> Iterator[Pane]:
        for key, span in self.windows():
            if self._is_past(span, before) or not self._is_past(span, self.noted) or not self.rules.watermark:
                continue
            if self.rules.always or self._changed(key, span):
                yield self._fire(key, span, "ON_TIME", clock)

    def _closing(self, clock: int, before: int | None) -> Iterator[Pane]:
        for key, span in self.windows():
            if self._is_closed(span):
                if self._changed(key, span):
                    yield self._fire(key, span, "LATE" if self._is_past(span, before) else "ON_TIME", clock)
                of = self.keys[key]
                self.closed[key, span] = self._whole(key, span)
                of.told = [told for told in of.told if not _within(told.span, span, self.rules.window)]
                gone = {id(seen) for seen in self._in(key, span)}
                of.seen = [seen for seen in of.seen if id(seen) not in gone]

    # ---- What a window is.

    def _parts(self, rows: Iterable[Row]) -> list[tuple[str, list[Seen]]]:
        """Rows of an epoch by key and window; its sessions are joined before anybody asks whether they are late."""
        window, found = self.rules.window, list[tuple[str, list[Seen]]]()
        for key in sorted({row.key for row in rows}):
            own = [row for row in rows if row.key == key]
            seen = [Seen(span, row.value, row.mark) for row in own for span in spans_of(window, row)]
            found += [(key, [one for one in seen if _within(one.span, span, window)]) for span in self._joined(seen)]
        return found

    def _spans(self, key: str) -> list[Span]:
        return self._joined(self.keys[key].seen)

    def _joined(self, seen: Iterable[Seen]) -> list[Span]:
        spans = sorted({one.span for one in seen})
        if isinstance(self.rules.window, Sessions):
            spans = _chained(spans)
        return sorted(spans, key=lambda span: (span[1], span[0]))

    def _in(self, key: str, span: Span) -> list[Seen]:
        return [seen for seen in self.keys[key].seen if _within(seen.span, span, self.rules.window)]

    def _whole(self, key: str, span: Span) -> Value:
        return self.rules.value([seen.value for seen in self._in(key, span)])

    def _changed(self, key: str, span: Span) -> bool:
        return not all(seen.told for seen in self._in(key, span))

    def _is_past(self, span: Span, noted: int | None) -> bool:
        return noted is not None and span[1] <= noted

    def _is_closed(self, span: Span) -> bool:
        if self.noted is None or self.noted == END:
            return self.noted == END
        return self.rules.lateness is not None and span[1] + self.rules.lateness <= self.noted

    def _is_enough(self, key: str, span: Span, came: Sequence[Seen]) -> bool:
        """Whether rows fire that came, beside those that no pane has shown."""
        past = self.rules.watermark and self._is_past(span, self.noted)
        if self.rules.mark and not past:
            return any(seen.mark for seen in came)
        wanted = self.rules.late_count if past else self.rules.count
        new = sum(not seen.told for seen in self._in(key, span))
        return bool(came) and wanted is not None and new >= wanted

    # ---- One pane.

    def _fire(self, key: str, span: Span, timing: str, at: int) -> Pane:
        of, rows = self.keys[key], self._in(key, span)
        value = self.rules.value([seen.value for seen in rows if not (self.rules.discarding and seen.told)])
        older = [told for told in of.told if _within(told.span, span, self.rules.window)]
        taken = [told for told in older if told.standing and self.rules.retracting]
        index = 1 + max((told.index for told in older), default=-1)
        for told in older:
            told.standing = False
        of.told.append(Told(span, value, index, True))
        for seen in rows:
            seen.told = True
        retracts = sorted(((told.span, told.value) for told in taken), key=lambda one: (one[0][1], one[0][0]))
        return Pane(key, span, value, tuple(retracts), timing, index, at)


def spans_of(window: Window, row: Row) -> list[Span]:
    """Windows of a row, found by trying the starts around its time."""
    time = row.time
    if isinstance(window, Own):
        return [row.own] if row.own else []
    if isinstance(window, Global):
        return [(LEAST, END)]
    if isinstance(window, Sessions):
        return [(time, time + window.gap)]
    size, every, offset = (
        (window.size, window.size, window.offset) if isinstance(window, Fixed) else (window.size, window.every, 0)
    )
    starts = [start for start in range(time - size + 1, time + 1) if (start - offset) % every == 0]
    return [(start, start + size) for start in starts]


def _chained(spans: Sequence[Span]) -> list[Span]:
    """Spans, by their start, that overlap are one; those that only touch are two."""
    found: list[Span] = []
    for start, end in spans:
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _hull(part: Sequence[Seen]) -> Span:
    return min(seen.span[0] for seen in part), max(seen.span[1] for seen in part)


def _within(inner: Span, outer: Span, window: Window) -> bool:
    if isinstance(window, Sessions):
        return outer[0] <= inner[0] and inner[1] <= outer[1]
    return inner == outer


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
