"""Lanes of a history: calls per actor in words, and faults.

Also shows which call went where. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from onceonly.faults import Point
from onceonly_lab.checker import Finding, Judgement
from onceonly_lab.checker.case import FIRST_LINE, Call, Who, calls
from onceonly_lab.history import LEDGER, Entry, History, Kind, Op, Range
from onceonly_lab.schedule import PROCESSES, SIMULATED, Action, really_at
from onceonly_lab.strenum import StrEnum

# ---- Says a line of a history in words. Pure.

_ANSWERS = {Kind.OK: "yes", Kind.FAIL: "no", Kind.INFO: "nobody can say", Kind.READ: "answered"}
_LONGEST = 240


def answer(outcome: Kind, *, answered: bool = True) -> str:
    """An outcome in words."""
    return _ANSWERS.get(outcome, str(outcome)) if answered else "never answered"


def actor_words(entry: Entry) -> str:
    """Who, with the number of the start where there are several."""
    return f"{entry.actor} {entry.incarnation}" if entry.incarnation else entry.actor


def call_words(entry: Entry) -> str:
    """What was called, on what."""
    op = Op.READ if entry.kind is Kind.READ else entry.op
    words = [str(op or entry.kind).replace("_", " ")]
    words += [f"epoch {entry.epoch}"] if entry.epoch is not None else []
    words += [entry.sink] if entry.sink else []
    words += [f"generation {entry.generation}"] if entry.generation is not None else []
    words += [taken(entry.slice)] if entry.slice else []
    return " ".join(words)


def taken(slice_: tuple[Range, ...]) -> str:
    """A slice: partitions with their ends."""
    return ", ".join(f"{span.partition}: {span.start} to {span.end}" for span in slice_)


def line_words(entry: Entry) -> str:
    """A whole line, as far as it fits."""
    words = [actor_words(entry)]
    if entry.kind is Kind.FAULT:
        words += ["breaks", entry.fault or "something", *([f"in {entry.sink}"] if entry.sink else [])]
    elif entry.op is None and entry.kind is not Kind.READ:
        words += [str(entry.kind)]
    else:
        words += [call_words(entry), *([] if entry.kind is Kind.INVOKE else [f"= {answer(entry.kind)}"])]
    words += [f"{len(entry.rows)} rows"] if entry.rows is not None else []
    words += [f"markers {', '.join(str(mark.epoch) for mark in entry.markers)}"] if entry.markers else []
    words += ["at the end"] if entry.final else []
    words += [f"left behind {', '.join(entry.leaks)}"] if entry.leaks else []
    words += [entry.code] if entry.code else []
    words += [entry.note] if entry.note else []
    text = " ".join(words)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# ---- What was broken where, over all runs: fault points by actions, and everything that strikes at no point. Pure.


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often each action came to act at each point.

    Attributes:
        struck: by point and action.
        elsewhere: faults that name no point and action, by their words: damage to a checkpoint, a restore.
    """

    struck: Counter[tuple[Point, Action]]
    elsewhere: Counter[str]

    @property
    def actions(self) -> tuple[Action, ...]:
        """Columns: what simulated drivers can be given, and deaths of other processes where some died."""
        died = {action for _, action in self.struck} & PROCESSES
        return (*SIMULATED, *(action for action in Action if action in died))

    @property
    def rows(self) -> Iterator[tuple[Point, tuple[int | None, ...]]]:
        """A row for each point, a count for each action; ``None`` where the action does not apply."""
        for point in Point:
            applies = really_at(point)
            yield point, tuple(self.struck[point, action] if action in applies else None for action in self.actions)

    @property
    def reached(self) -> int:
        """Pairs that were struck."""
        return len(self.struck)

    @property
    def pairs(self) -> int:
        """Pairs that there are."""
        return sum(len({*really_at(point)} & {*self.actions}) for point in Point)


def coverage(histories: Iterable[History]) -> Coverage:
    """Count the faults of some runs."""
    struck, elsewhere = Counter[tuple[Point, Action]](), Counter[str]()
    for entry in (entry for history in histories for entry in history.entries if entry.kind is Kind.FAULT):
        words = entry.fault or ""
        pair = pair_of(words)
        if pair is not None:
            struck[pair] += 1
        else:
            elsewhere[f"{words} {entry.sink}" if entry.sink else words or "not named"] += 1
    return Coverage(struck, elsewhere)


def pair_of(fault: str) -> tuple[Point, Action] | None:
    """Point and action of a fault that names both, ``commit.sent:kill``; ``None`` for any other."""
    point, _, action = fault.partition(":")
    is_valid = point in Point.__members__.values() and action in Action.__members__.values()
    return (Point(point), Action(action)) if is_valid else None


# ---- A history as lanes: who called what and where it went, over the lines of the history. Pure.
#
# The lines are the axis, not the clock: their order is the one thing in a history that is trusted.

FINDINGS, FAULTS, ENGINE = "findings", "faults", "engine"
_OUTSIDE = frozenset({"source", "reader", "nemesis", "judge", "engine"})
"""Actors without a lane of their own: what they do is shown where it happens."""


class Outcome(StrEnum):
    """What became of a call; the order is that of the legend."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "nobody can say"
    OPEN = "never answered"


_OUTCOMES = {Kind.OK: Outcome.YES, Kind.FAIL: Outcome.NO, Kind.INFO: Outcome.UNKNOWN}


class Glyph(StrEnum):
    """What a sign stands for."""

    KILL = "killed"
    PAUSE = "paused"
    ANSWER = "answer lost"
    REQUEST = "request lost"
    LATE = "late or hidden"
    DAMAGE = "lost or damaged"
    READ = "read"
    FINDING = "shows a finding"


_GLYPHS = {
    Action.KILL: Glyph.KILL,
    Action.PAUSE: Glyph.PAUSE,
    Action.LOSE_ANSWER: Glyph.ANSWER,
    Action.LOSE_REQUEST: Glyph.REQUEST,
    Action.DELAY: Glyph.LATE,
    Action.HIDE: Glyph.LATE,
    Action.LOSE_LEDGER: Glyph.DAMAGE,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A call, from the line where it was made to the line of its answer.

    Attributes:
        lane: where it is drawn; a call to a sink is drawn in the lane of its caller and in that of the sink.
        begin: line.
        end: line; of a call without an answer, where its caller ends.
        outcome: what became of it.
        wide: whether it is a commit.
        epoch: which the call is about; ``None`` for none.
        tip: in words.
    """

    lane: str
    begin: int
    end: int
    outcome: Outcome
    wide: bool
    epoch: int | None
    tip: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Something at one line.

    Attributes:
        lane: where it is drawn.
        at: line.
        glyph: what it stands for.
        tip: in words.
    """

    lane: str
    at: int
    glyph: Glyph
    tip: str


@dataclass(frozen=True, slots=True)
class Life:
    """From the first to the last line of one start of an actor."""

    lane: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Lanes:
    """A history, or a stretch of it.

    Attributes:
        names: lanes from top to bottom.
        bars: calls.
        signs: faults, kills, reads, and the lines that findings name.
        lives: of incarnations.
        settled: line from which nothing is broken any more; ``None`` if there is none.
        first: first line.
        last: last line.
    """

    names: tuple[str, ...]
    bars: tuple[Bar, ...]
    signs: tuple[Sign, ...]
    lives: tuple[Life, ...]
    settled: int | None
    first: int
    last: int

    def strips(self, width: int) -> tuple[Lanes, ...]:
        """The same in stretches of at most so many lines; marks that cross a border are in both."""
        starts = range(self.first, self.last + 1, width)
        return tuple(self._between(start, min(start + width - 1, self.last)) for start in starts)

    def _between(self, first: int, last: int) -> Lanes:
        return Lanes(
            self.names,
            tuple(bar for bar in self.bars if bar.begin <= last and bar.end >= first),
            tuple(sign for sign in self.signs if first <= sign.at <= last),
            tuple(life for life in self.lives if life.begin <= last and life.end >= first),
            self.settled if self.settled is not None and self.settled <= last else None,
            first,
            last,
        )

    @property
    def eventful(self) -> bool:
        """Whether something was broken here, or a finding looks here."""
        return any(sign.glyph is not Glyph.READ for sign in self.signs)


def lanes(history: History, judgement: Judgement) -> Lanes:
    """Lay a history out; it begins behind what the source says first."""
    entries = tuple(enumerate(history.entries, FIRST_LINE))
    made = calls(history.entries)
    lives = _lives(entries)
    last = FIRST_LINE + max(0, len(entries) - 1)
    sinks = _places(history)
    drivers = [_own(who) for who in lives]
    names = (
        *([FINDINGS] if judgement.findings else []),
        *([FAULTS] if any(entry.kind is Kind.FAULT for _, entry in entries) else []),
        *([ENGINE] if any(call.said.actor == ENGINE for call in made) else []),
        *drivers,
        *sinks,
    )
    return Lanes(
        names,
        tuple(bar for call in made for bar in _bars(call, lives, last)),
        (*_told(entries, made), *_evidence(judgement.findings)),
        tuple(Life(_own(who), *ends) for who, ends in lives.items()),
        next((call.at for call in reversed(made) if call.said.op is Op.SETTLE), None),
        next((line for line, entry in entries if entry.op is not Op.INPUT), FIRST_LINE),
        last,
    )


def _places(history: History) -> list[str]:
    """The sinks in the order in which they are promised, any others, and the ledger last."""
    promised = [promise.sink for promise in history.header.sinks]
    named = [entry.sink for entry in history.entries if entry.sink]
    rest = [sink for sink in dict.fromkeys((*promised, *named)) if sink != LEDGER]
    return [*map(_place, rest), *([_place(LEDGER)] if LEDGER in named else [])]


def _place(sink: str) -> str:
    # A sink may be named like an actor, and every lane has one name.
    return sink if sink == LEDGER else f"→ {sink}"


def _own(who: Who) -> str:
    actor, incarnation = who
    return f"{actor} {incarnation}" if incarnation else actor


def _lives(entries: Iterable[tuple[int, Entry]]) -> Mapping[Who, tuple[int, int]]:
    lives: dict[Who, tuple[int, int]] = {}
    for line, entry in entries:
        if entry.actor not in _OUTSIDE:
            who = (entry.actor, entry.incarnation)
            lives[who] = (lives[who][0] if who in lives else line, line)
    return lives


def _bars(call: Call, lives: Mapping[Who, tuple[int, int]], last: int) -> Iterator[Bar]:
    entry = call.said
    if entry.actor not in _OUTSIDE or entry.actor == ENGINE:
        open_ = call.announced and call.answered is None
        outcome = Outcome.OPEN if open_ else _OUTCOMES.get(call.outcome, Outcome.YES)
        end = _ends(call.who, lives, last) if open_ else (call.answered or call.at)
        wide = entry.op is Op.COMMIT
        tip = f"line {call.at}: {actor_words(entry)} {call_words(entry)} = {outcome}"
        own = ENGINE if entry.actor == ENGINE else _own(call.who)
        for lane in (own, *([_place(entry.sink)] if entry.sink else [])):
            yield Bar(lane, call.at, max(call.at, end), outcome, wide, entry.epoch, tip)


def _ends(who: Who, lives: Mapping[Who, tuple[int, int]], last: int) -> int:
    """The last line of an actor; of the engine, that of the driver whose number its call bears."""
    actor, incarnation = who
    if actor != ENGINE:
        return lives[who][1]
    return max((end for (_, number), (_, end) in lives.items() if number and number == incarnation), default=last)


def _told(entries: Iterable[tuple[int, Entry]], made: Iterable[Call]) -> Iterator[Sign]:
    for line, entry in entries:
        tip = f"line {line}: {line_words(entry)}"
        if entry.kind is Kind.FAULT:
            yield Sign(FAULTS, line, _glyph(entry.fault or ""), tip)
            if entry.sink:
                yield Sign(_place(entry.sink), line, Glyph.DAMAGE, tip)
        elif entry.kind is Kind.KILL and entry.actor not in _OUTSIDE:
            yield Sign(_own((entry.actor, entry.incarnation)), line, Glyph.KILL, tip)
    for call in made:
        if call.outcome is Kind.READ and call.said.sink:
            at = call.answered or call.at
            yield Sign(_place(call.said.sink), at, Glyph.READ, f"line {at}: {line_words(call.said)}")


def _glyph(fault: str) -> Glyph:
    pair = pair_of(fault)
    if pair is not None:
        return _GLYPHS[pair[1]]
    return Glyph.KILL if fault.endswith(f":{Action.KILL}") else Glyph.DAMAGE


def _evidence(findings: Iterable[Finding]) -> Iterator[Sign]:
    named: dict[int, list[str]] = {}
    for finding in findings:
        for line in finding.lines:
            named.setdefault(line, []).append(str(finding.anomaly))
    for line, anomalies in sorted(named.items()):
        yield Sign(FINDINGS, line, Glyph.FINDING, f"line {line}: {', '.join(dict.fromkeys(anomalies))}")
