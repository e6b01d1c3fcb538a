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
    wrong = chain(_of_what_is_printed(case.facts.sink_epochs), judged(case, rewind.decide(case.facts)))
    return next(wrong, "")


def judged(case: Case, verdict: object) -> Iterator[str]:
    """What is wrong with a verdict."""
    match verdict:
        case CutBack():
            yield from _of_cut_back(case, verdict)
        case BringUp():
            yield from _of_bring_up(case, verdict)
        case UnknownTarget():
            yield from _of_unfit(case)
        case UnexpectedPosition():
            yield from _of_elsewhere(case, verdict)
        case RowsUnavailable():
            yield from _of_nowhere(case, verdict)
        case SourceRowsMissing():
            yield from _of_gone(case, verdict)
        case StaleMarkers():
            yield from _of_outlived(case, verdict)
        case _:
            yield f"X-STUCK: {verdict!r} is no verdict"


def _of_what_is_printed(sink_epochs: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with the rewind that errors print: it names those behind the foremost, and no other."""
    printed, most = rewind.level(sink_epochs), max(sink_epochs.values())
    if {sink for sink, at in sink_epochs.items() if at < most} != set(printed.sinks):
        yield f"X-UNNAMED: where sinks stand at {_spelled(sink_epochs)}, what is printed brings up {printed.sinks}"
    if printed.to != min(sink_epochs.values()):
        yield f"X-UNNAMED: where sinks stand at {_spelled(sink_epochs)}, what is printed names epoch {printed.to}"


def _of_cut_back(case: Case, verdict: CutBack) -> Iterator[str]:
    facts, to = case.facts, case.facts.request.to
    if past := [sink for sink, at in facts.sink_epochs.items() if at > to]:
        yield f"X-DUP: {past[0]} holds epochs beyond {to} that Spark reads again"
    if short := [sink for sink, at in facts.sink_epochs.items() if at < to]:
        yield f"X-LOSS: {short[0]} lacks epochs up to {to}, and Spark goes on after it"
    if facts.request.sinks or not to or verdict.to != to:
        yield f"X-STUCK: cut back to epoch {verdict.to}, asked was {_wanted(facts.request)}"
    if lost := _lacking(case):
        yield f"X-LOSS: of epoch {lost[0]} the source lacks rows, and nobody has accepted that"
    later_numbers = tuple(number for number in range(to + 1, facts.newest + 1) if number in facts.epochs)
    if verdict.removed_epochs != later_numbers:
        yield f"X-AUDIT: epochs {verdict.removed_epochs} are set aside, and {later_numbers} lie beyond {to}"


def _lacking(case: Case) -> list[int]:
    """Epochs beyond the cut of which the source lacks rows that nobody has given up."""
    request = case.facts.request
    given_up = range(request.lost[0], request.lost[1] + 1) if request.lost else range(0)
    return [number for number in sorted(case.facts.gone) if number > request.to and number not in given_up]


def _of_bring_up(case: Case, verdict: BringUp) -> Iterator[str]:
    facts, request = case.facts, case.facts.request
    if not request.sinks:
        yield "X-STUCK: nobody is named, and sinks are brought up"
    for sink in request.sinks:
        if sink not in facts.sink_epochs:
            yield f"X-STUCK: there is no sink {sink}"
            return
        if sink in facts.outlived:
            yield f"X-STUCK: markers of {sink} say of every epoch that it is there, and no row of it is"
        if facts.sink_epochs[sink] < request.to:
            yield f"X-UNNAMED: {sink} lacks epochs before {request.to}, which nobody has named"
        yield from _of_steps(case, sink, [step for step in verdict.steps if step.sink == sink], verdict.newest)
    stand = {sink: at for sink, at in facts.sink_epochs.items() if sink not in request.sinks}
    if stand and verdict.newest != max(facts.sink_epochs.values()):
        yield f"X-STUCK: brought up to {verdict.newest}, and sinks stand at {_spelled(facts.sink_epochs)}"
    if behind := [sink for sink, at in stand.items() if at < verdict.newest]:
        yield f"X-STUCK: {behind[0]} stays behind"
    if not stand and verdict.newest != facts.newest:
        yield f"X-STUCK: all are brought up to {verdict.newest}, and epoch {facts.newest} is known"


def _of_steps(case: Case, sink: str, steps: list[Step], newest: int) -> Iterator[str]:
    """What goes wrong where a sink gets these epochs, one after the other."""
    expected = case.lacks(sink, newest)
    got = [step.epoch.number for step in steps]
    if early := [number for number in got if number < case.joined[sink]]:
        yield f"X-PHANTOM: {sink} gets epoch {early[0]}, and joined with {case.joined[sink]}"
    if got != expected:
        yield f"X-LOSS: {sink} gets epochs {got}, and lacks {expected}"
    if case.astray == sink and steps and got[0] == case.facts.sink_epochs[sink] + 1:
        yield f"X-STUCK: {sink} holds another history, and refuses epoch {got[0]}"
    for step in steps:
        yield from _of_step(case, step)


def _of_step(case: Case, step: Step) -> Iterator[str]:
    number, sink = step.epoch.number, step.sink
    if number in case.ruined or step.epoch != case.line[number - 1]:
        yield f"X-CROSS: {sink} gets another epoch {number} than was committed"
    elif case.facts.request.origin not in (None, step.origin) and step.origin.kind is not OriginKind.NONE:
        yield f"X-UNNAMED: {sink} gets its rows of epoch {number} from {step.origin.text}, which nobody has named"
    elif step.origin not in case.sources(sink, number):
        rows, where = case.held.get((number, sink), "none"), step.origin.text
        yield f"X-CROSS: {sink} gets its rows of epoch {number} from {where}, and these lie elsewhere: {rows}"


def _of_unfit(case: Case) -> Iterator[str]:
    request, sink_epochs = case.facts.request, case.facts.sink_epochs
    nothing = not request.sinks and not request.to and not any(sink_epochs.values())
    if all(sink in sink_epochs for sink in request.sinks) and not nothing:
        yield f"X-STUCK: {_wanted(request)} is called unfit"


def _of_elsewhere(case: Case, refusal: UnexpectedPosition) -> Iterator[str]:
    request, sink_epochs = case.facts.request, case.facts.sink_epochs
    if sink_epochs[refusal.sink] != refusal.sink_epoch:
        actual = sink_epochs[refusal.sink]
        yield f"X-UNNAMED: {refusal.sink} is said to stand at {refusal.sink_epoch}, and stands at {actual}"
    if not request.sinks:
        elsewhere = refusal.sink_epoch != request.to
    elif refusal.sink in request.sinks:
        elsewhere = refusal.sink_epoch < request.to
    else:
        elsewhere = refusal.sink_epoch < max(sink_epochs.values())
    if not elsewhere:
        yield f"X-STUCK: {_wanted(request)} is refused for {refusal.sink}, which stands at {refusal.sink_epoch}"
    verdicts = takewhile(lambda verdict: isinstance(verdict, UnexpectedPosition), _obeyed(case.facts, refusal))
    if sum(1 for _ in verdicts) > _GIVES_UP:
        yield f"X-UNNAMED: {_wanted(refusal.instead)} is printed, and what it prints leads nowhere"


def _obeyed(facts: RewindFacts, verdict: object) -> Iterator[object]:
    """A verdict, and that on the rewind which it prints, and so on."""
    for _ in range(_GIVES_UP + 1):
        yield verdict
        if isinstance(verdict, UnexpectedPosition):
            verdict = rewind.decide(replace(facts, request=verdict.instead))


def _of_nowhere(case: Case, refusal: RowsUnavailable) -> Iterator[str]:
    sink, number, facts = refusal.sink, refusal.epoch, case.facts
    is_intact, unfollowed = number not in case.ruined, case.astray == sink and number == facts.sink_epochs[sink] + 1
    if is_intact and (refusal.unknown or number not in case.lacks(sink, len(case.line))):
        yield f"X-STUCK: {sink} does not get epoch {number}: {refusal.reason}"
    if is_intact and not unfollowed and case.sources(sink, number):
        where = ", ".join(sorted(source.text for source in case.sources(sink, number)))
        yield f"X-STUCK: {sink} does not get epoch {number}, whose rows lie in: {where}"
    if is_intact and not unfollowed:
        yield from _of_words(case, refusal)


def _of_words(case: Case, refusal: RowsUnavailable) -> Iterator[str]:
    """What is wrong with what is said of rows that are nowhere."""
    facts, number, origin = case.facts, refusal.epoch, case.facts.request.origin
    reads = facts.code and origin in (None, Origin(OriginKind.SOURCE))
    gone = facts.gone.get(number, "nothing")
    if (reads and number in facts.gone) != (gone in refusal.reason):
        yield f"X-UNNAMED: epoch {number} is refused: {refusal.reason}; the source lacks {gone}, and is read: {reads}"
    elif gone not in refusal.reason and (origin is not None) != (origin is not None and origin.text in refusal.reason):
        named = origin.text if origin else "no place"
        yield f"X-UNNAMED: epoch {number} is refused: {refusal.reason}; named was {named}"
    advised = origin is None and not facts.code and case.given.get(number) == case.held[number, refusal.sink]
    if advised != refusal.unread:
        may = "may give its rows" if advised else "does not give its rows, or was asked"
        yield f"X-UNNAMED: of epoch {number} it is said that the query's code is missing: {refusal.unread}; it {may}"


def _of_gone(case: Case, refusal: SourceRowsMissing) -> Iterator[str]:
    if case.facts.request.sinks or not _lacking(case):
        yield f"X-STUCK: refused for epoch {refusal.first} of the source, which nothing reads again"
        return
    gone = [number for number in sorted(case.facts.gone) if number > case.facts.request.to]
    if (refusal.first, refusal.last) != (gone[0], gone[-1]) or refusal.reason != case.facts.gone[refusal.first]:
        yield f"X-UNNAMED: epochs {refusal.first}..{refusal.last} are named, and the source lacks {gone}"


def _of_outlived(case: Case, refusal: StaleMarkers) -> Iterator[str]:
    facts = case.facts
    named = [sink for sink in facts.request.sinks or facts.sink_epochs if sink in facts.outlived]
    if refusal.sink not in named:
        yield f"X-STUCK: refused for the markers of {refusal.sink}, which nobody asked for, or whose target is there"
    elif (refusal.sink_epoch, refusal.now) != (facts.sink_epochs[refusal.sink], facts.outlived[refusal.sink]):
        yield f"X-UNNAMED: {refusal.sink} is said to stand at {refusal.sink_epoch}, where there is {refusal.now}"


def _spelled(sink_epochs: Mapping[str, int]) -> str:
    return ", ".join(f"{sink} {at}" for sink, at in sink_epochs.items())


def _wanted(request: RewindRequest) -> str:
    return f"epoch {request.to} for {', '.join(request.sinks) or 'all'}"
