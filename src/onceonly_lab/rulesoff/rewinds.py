"""Judge the decision table of rewinds.

A plan is carried out on the true state. A refusal must be true and offer a way on. Pure.

Nothing here asks the table for anything but its verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, takewhile
from random import Random

from onceonly.machine import rewind
from onceonly.machine.rewind import (
    BringUp,
    CutBack,
    Origin,
    OriginKind,
    RewindFacts,
    RewindRequest,
    RowsUnavailable,
    SourceRowsMissing,
    StaleMarkers,
    Step,
    UnexpectedPosition,
    UnknownTarget,
)
from onceonly_lab.rulesoff.rewindcases import Case, drawn

_GIVES_UP = 3
"""So many refusals in a row that name another rewind each lead nowhere."""


def play(chance: Random) -> str:
    """What is wrong in one case; empty: nothing."""
    case = drawn(chance)
    wrong = chain(_of_what_is_printed(case.facts.stands), judged(case, rewind.decide(case.facts)))
    return next(wrong, "")


def judged(case: Case, found: object) -> Iterator[str]:
    """What is wrong with a verdict."""
    match found:
        case CutBack():
            yield from _of_cut_back(case, found)
        case BringUp():
            yield from _of_bring_up(case, found)
        case UnknownTarget():
            yield from _of_unfit(case)
        case UnexpectedPosition():
            yield from _of_elsewhere(case, found)
        case RowsUnavailable():
            yield from _of_nowhere(case, found)
        case SourceRowsMissing():
            yield from _of_gone(case, found)
        case StaleMarkers():
            yield from _of_outlived(case, found)
        case _:
            yield f"X-STUCK: {found!r} is no verdict"


def _of_what_is_printed(stands: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with the rewind that errors print: it names those behind the foremost, and no other."""
    printed, most = rewind.level(stands), max(stands.values())
    if {sink for sink, at in stands.items() if at < most} != set(printed.sinks):
        yield f"X-UNNAMED: where sinks stand at {_spelled(stands)}, what is printed brings up {printed.sinks}"
    if printed.to != min(stands.values()):
        yield f"X-UNNAMED: where sinks stand at {_spelled(stands)}, what is printed names epoch {printed.to}"


def _of_cut_back(case: Case, way: CutBack) -> Iterator[str]:
    facts, to = case.facts, case.facts.asked.to
    if past := [sink for sink, at in facts.stands.items() if at > to]:
        yield f"X-DUP: {past[0]} holds epochs beyond {to} that Spark reads again"
    if short := [sink for sink, at in facts.stands.items() if at < to]:
        yield f"X-LOSS: {short[0]} lacks epochs up to {to}, and Spark goes on after it"
    if facts.asked.sinks or not to or way.to != to:
        yield f"X-STUCK: cut back to epoch {way.to}, asked was {_wanted(facts.asked)}"
    if lost := _lacking(case):
        yield f"X-LOSS: of epoch {lost[0]} the source lacks rows, and nobody has accepted that"
    beyond = tuple(number for number in range(to + 1, facts.newest + 1) if number in facts.epochs)
    if way.beyond != beyond:
        yield f"X-AUDIT: epochs {way.beyond} are set aside, and {beyond} lie beyond {to}"


def _lacking(case: Case) -> list[int]:
    """Epochs beyond the cut of which the source lacks rows that nobody has given up."""
    asked = case.facts.asked
    given_up = range(asked.lost[0], asked.lost[1] + 1) if asked.lost else range(0)
    return [number for number in sorted(case.facts.gone) if number > asked.to and number not in given_up]


def _of_bring_up(case: Case, way: BringUp) -> Iterator[str]:
    facts, asked = case.facts, case.facts.asked
    if not asked.sinks:
        yield "X-STUCK: nobody is named, and sinks are brought up"
    for sink in asked.sinks:
        if sink not in facts.stands:
            yield f"X-STUCK: there is no sink {sink}"
            return
        if sink in facts.outlived:
            yield f"X-STUCK: markers of {sink} say of every epoch that it is there, and no row of it is"
        if facts.stands[sink] < asked.to:
            yield f"X-UNNAMED: {sink} lacks epochs before {asked.to}, which nobody has named"
        yield from _of_steps(case, sink, [step for step in way.steps if step.sink == sink], way.newest)
    stand = {sink: at for sink, at in facts.stands.items() if sink not in asked.sinks}
    if stand and way.newest != max(facts.stands.values()):
        yield f"X-STUCK: brought up to {way.newest}, and sinks stand at {_spelled(facts.stands)}"
    if behind := [sink for sink, at in stand.items() if at < way.newest]:
        yield f"X-STUCK: {behind[0]} stays behind"
    if not stand and way.newest != facts.newest:
        yield f"X-STUCK: all are brought up to {way.newest}, and epoch {facts.newest} is known"


def _of_steps(case: Case, sink: str, steps: list[Step], newest: int) -> Iterator[str]:
    """What goes wrong where a sink gets these epochs, one after the other."""
    wanted = case.lacks(sink, newest)
    got = [step.epoch.number for step in steps]
    if early := [number for number in got if number < case.joined[sink]]:
        yield f"X-PHANTOM: {sink} gets epoch {early[0]}, and joined with {case.joined[sink]}"
    if got != wanted:
        yield f"X-LOSS: {sink} gets epochs {got}, and lacks {wanted}"
    if case.astray == sink and steps and got[0] == case.facts.stands[sink] + 1:
        yield f"X-STUCK: {sink} holds another history, and refuses epoch {got[0]}"
    for step in steps:
        yield from _of_step(case, step)


def _of_step(case: Case, step: Step) -> Iterator[str]:
    number, sink = step.epoch.number, step.sink
    if number in case.ruined or step.epoch != case.line[number - 1]:
        yield f"X-CROSS: {sink} gets another epoch {number} than was committed"
    elif case.facts.asked.origin not in (None, step.origin) and step.origin.kind is not OriginKind.NONE:
        yield f"X-UNNAMED: {sink} gets its rows of epoch {number} from {step.origin.text}, which nobody has named"
    elif step.origin not in case.sources(sink, number):
        wanted, where = case.held.get((number, sink), "none"), step.origin.text
        yield f"X-CROSS: {sink} gets its rows of epoch {number} from {where}, and these lie elsewhere: {wanted}"


def _of_unfit(case: Case) -> Iterator[str]:
    asked, stands = case.facts.asked, case.facts.stands
    nothing = not asked.sinks and not asked.to and not any(stands.values())
    if all(sink in stands for sink in asked.sinks) and not nothing:
        yield f"X-STUCK: {_wanted(asked)} is called unfit"


def _of_elsewhere(case: Case, found: UnexpectedPosition) -> Iterator[str]:
    asked, stands = case.facts.asked, case.facts.stands
    if stands[found.sink] != found.stands:
        yield f"X-UNNAMED: {found.sink} is said to stand at {found.stands}, and stands at {stands[found.sink]}"
    if not asked.sinks:
        elsewhere = found.stands != asked.to
    elif found.sink in asked.sinks:
        elsewhere = found.stands < asked.to
    else:
        elsewhere = found.stands < max(stands.values())
    if not elsewhere:
        yield f"X-STUCK: {_wanted(asked)} is refused for {found.sink}, which stands at {found.stands}"
    verdicts = takewhile(lambda one: isinstance(one, UnexpectedPosition), _obeyed(case.facts, found))
    if sum(1 for _ in verdicts) > _GIVES_UP:
        yield f"X-UNNAMED: {_wanted(found.instead)} is printed, and what it prints leads nowhere"


def _obeyed(facts: RewindFacts, found: object) -> Iterator[object]:
    """A verdict, and that on the rewind which it prints, and so on."""
    for _ in range(_GIVES_UP + 1):
        yield found
        if isinstance(found, UnexpectedPosition):
            found = rewind.decide(replace(facts, asked=found.instead))


def _of_nowhere(case: Case, found: RowsUnavailable) -> Iterator[str]:
    sink, number, facts = found.sink, found.epoch, case.facts
    known, unfollowed = number not in case.ruined, case.astray == sink and number == facts.stands[sink] + 1
    if known and (found.unknown or number not in case.lacks(sink, len(case.line))):
        yield f"X-STUCK: {sink} does not get epoch {number}: {found.reason}"
    if known and not unfollowed and case.sources(sink, number):
        where = ", ".join(sorted(source.text for source in case.sources(sink, number)))
        yield f"X-STUCK: {sink} does not get epoch {number}, whose rows lie in: {where}"
    if known and not unfollowed:
        yield from _of_words(case, found)


def _of_words(case: Case, found: RowsUnavailable) -> Iterator[str]:
    """What is wrong with what is said of rows that are nowhere."""
    facts, number, asked = case.facts, found.epoch, case.facts.asked.origin
    reads = facts.code and asked in (None, Origin(OriginKind.SOURCE))
    gone = facts.gone.get(number, "nothing")
    if (reads and number in facts.gone) != (gone in found.reason):
        yield f"X-UNNAMED: epoch {number} is refused: {found.reason}; the source lacks {gone}, and is read: {reads}"
    elif gone not in found.reason and (asked is not None) != (asked is not None and asked.text in found.reason):
        yield f"X-UNNAMED: epoch {number} is refused: {found.reason}; named was {asked.text if asked else 'no place'}"
    advised = asked is None and not facts.code and case.given.get(number) == case.held[number, found.sink]
    if advised != found.unread:
        may = "may give its rows" if advised else "does not give its rows, or was asked"
        yield f"X-UNNAMED: of epoch {number} it is said that the query's code is missing: {found.unread}; it {may}"


def _of_gone(case: Case, found: SourceRowsMissing) -> Iterator[str]:
    if case.facts.asked.sinks or not _lacking(case):
        yield f"X-STUCK: refused for epoch {found.first} of the source, which nothing reads again"
        return
    gone = [number for number in sorted(case.facts.gone) if number > case.facts.asked.to]
    if (found.first, found.last) != (gone[0], gone[-1]) or found.reason != case.facts.gone[found.first]:
        yield f"X-UNNAMED: epochs {found.first}..{found.last} are named, and the source lacks {gone}"


def _of_outlived(case: Case, found: StaleMarkers) -> Iterator[str]:
    facts = case.facts
    named = [sink for sink in facts.asked.sinks if sink in facts.outlived]
    if found.sink not in named:
        yield f"X-STUCK: refused for the markers of {found.sink}, which nobody brings up, or whose target is there"
    elif (found.stands, found.now) != (facts.stands[found.sink], facts.outlived[found.sink]):
        yield f"X-UNNAMED: {found.sink} is said to stand at {found.stands}, where there is {found.now}"


def _spelled(stands: Mapping[str, int]) -> str:
    return ", ".join(f"{sink} {at}" for sink, at in stands.items())


def _wanted(asked: RewindRequest) -> str:
    return f"epoch {asked.to} for {', '.join(asked.sinks) or 'all'}"
