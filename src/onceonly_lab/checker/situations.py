"""Which of the situations that prove something a run went through. Pure."""

from __future__ import annotations

from collections.abc import Callable

from onceonly_lab.checker.reading import Reading
from onceonly_lab.history import Kind, Situation


def reached(reading: Reading) -> frozenset[Situation]:
    """The situations that the run went through."""
    return frozenset(situation for situation, was_reached in _REACHED.items() if was_reached(reading))


def _split(reading: Reading) -> bool:
    """An epoch that every sink holds, brought there by different incarnations."""
    for epoch in {epoch for _, epoch in reading.landed}:
        commits = [reading.explains(sink, epoch) for sink in reading.case.sinks]
        if all(commits) and len({commit.call.who for commit in commits if commit}) > 1:
            return True
    return False


def _zombie(reading: Reading) -> bool:
    """A commit or a fence that failed after somebody else had installed a higher generation in that sink."""
    case = reading.case
    tried = [commit.call for group in case.commits.values() for commit in group]
    tried += [call for group in case.installs.values() for call in group]
    failed = [call for call in tried if call.outcome is Kind.FAIL]
    return any(
        fence.outcome is Kind.OK
        and fence.who != call.who
        and (fence.answered or fence.at) < (call.answered or call.at)
        and (fence.said.generation or 0) > (call.said.generation or 0)
        for call in failed
        for fence in case.fences(call.said.sink or "")
    )


def _resolved(reading: Reading) -> bool:
    """A commit that landed though its own answer was lost."""
    return any(commit.lost for group in reading.landed.values() for commit in group)


_REACHED: dict[Situation, Callable[[Reading], bool]] = {
    Situation.SPLIT: _split,
    Situation.ZOMBIE: _zombie,
    Situation.RESOLVED: _resolved,
}
