"""A history as lanes: who called what and where it went, over the lines of the history. Pure.

The lines are the axis, not the clock: their order is the one thing in a history that is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from onceonly_lab.checker import Finding, Judgement
from onceonly_lab.checker.calls import FIRST_LINE, Call, Who, calls
from onceonly_lab.history import LEDGER, Entry, History, Kind, Op
from onceonly_lab.report import words
from onceonly_lab.report.coverage import pair_of
from onceonly_lab.schedule import Action

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
    found: dict[Who, tuple[int, int]] = {}
    for line, entry in entries:
        if entry.actor not in _OUTSIDE:
            who = (entry.actor, entry.incarnation)
            found[who] = (found[who][0] if who in found else line, line)
    return found


def _bars(call: Call, lives: Mapping[Who, tuple[int, int]], last: int) -> Iterator[Bar]:
    said = call.said
    if said.actor not in _OUTSIDE or said.actor == ENGINE:
        open_ = call.announced and call.answered is None
        outcome = Outcome.OPEN if open_ else _OUTCOMES.get(call.outcome, Outcome.YES)
        end = _ends(call.who, lives, last) if open_ else (call.answered or call.at)
        wide = said.op is Op.COMMIT
        tip = f"line {call.at}: {words.actor(said)} {words.call(said)} = {outcome}"
        own = ENGINE if said.actor == ENGINE else _own(call.who)
        for lane in (own, *([_place(said.sink)] if said.sink else [])):
            yield Bar(lane, call.at, max(call.at, end), outcome, wide, said.epoch, tip)


def _ends(who: Who, lives: Mapping[Who, tuple[int, int]], last: int) -> int:
    """The last line of an actor; of the engine, that of the driver whose number its call bears."""
    actor, incarnation = who
    if actor != ENGINE:
        return lives[who][1]
    return max((end for (_, number), (_, end) in lives.items() if number and number == incarnation), default=last)


def _told(entries: Iterable[tuple[int, Entry]], made: Iterable[Call]) -> Iterator[Sign]:
    for line, entry in entries:
        tip = f"line {line}: {words.line(entry)}"
        if entry.kind is Kind.FAULT:
            yield Sign(FAULTS, line, _glyph(entry.fault or ""), tip)
            if entry.sink:
                yield Sign(_place(entry.sink), line, Glyph.DAMAGE, tip)
        elif entry.kind is Kind.KILL and entry.actor not in _OUTSIDE:
            yield Sign(_own((entry.actor, entry.incarnation)), line, Glyph.KILL, tip)
    for call in made:
        if call.outcome is Kind.READ and call.said.sink:
            at = call.answered or call.at
            yield Sign(_place(call.said.sink), at, Glyph.READ, f"line {at}: {words.line(call.said)}")


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
