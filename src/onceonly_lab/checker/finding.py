"""Findings of the checker: anomaly, place and description."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from onceonly_lab.checker.reading import Reading
from onceonly_lab.history import Kind, Situation
from onceonly_lab.strenum import StrEnum

# ---- The anomalies: for each, what must hold. Every anomaly has one rule, and every wrong row one anomaly.


class Anomaly(StrEnum):
    """A way in which a run can break its promise; the name says which, :data:`MUST_HOLD` says the promise."""

    LOSS = "X-LOSS"
    DUP = "X-DUP"
    PHANTOM = "X-PHANTOM"
    TORN = "X-TORN"
    CROSS = "X-CROSS"
    ORDER = "X-ORDER"
    GAP = "X-GAP"
    EARLY = "X-EARLY"
    REGRESS = "X-REGRESS"
    AUDIT = "X-AUDIT"
    ZOMBIE = "X-ZOMBIE"
    STUCK = "X-STUCK"
    NONDET = "X-NONDET"
    BALANCE = "X-BALANCE"
    ASIDE = "X-ASIDE"
    AGAIN = "X-AGAIN"
    TIME = "X-TIME"
    PANE = "X-PANE"
    INVARIANT = "X-INVARIANT"


MUST_HOLD: dict[Anomaly, str] = {
    Anomaly.LOSS: "Every row of the input is in every sink that it is for at the end.",
    Anomaly.DUP: "No read of a sink shows a row more often than the input has it.",
    Anomaly.PHANTOM: "Every row that a read shows is a row of the input, in an epoch that brought it and has a marker.",
    Anomaly.TORN: "A read shows all rows of an epoch or none.",
    Anomaly.CROSS: "Sinks that hold an epoch hold the same rows of it, or of the output that each gets, and one time.",
    Anomaly.ORDER: "Rows of one key stand in a sink in the order of the input.",
    Anomaly.GAP: "The slices of a sink's epochs meet: each starts where the one before it ended.",
    Anomaly.EARLY: "Nothing of an epoch is visible before its bytes are staged and its commit is sent.",
    Anomaly.REGRESS: "What a reader has seen in a sink it sees there again, unless the sink was restored.",
    Anomaly.AUDIT: "What the ledger records and the engine was told is in every sink, and the reverse.",
    Anomaly.ZOMBIE: "Nothing appears in a sink under a fence that another one has replaced there.",
    Anomaly.STUCK: "Once nothing is broken any more all input is taken, and nothing stays open or behind.",
    Anomaly.NONDET: "A batch that is computed again gives the same rows, where the plan promises it.",
    Anomaly.BALANCE: "A marker accounts for all rows of its epoch: held in its sink, not wanted there, or bad.",
    Anomaly.ASIDE: "A bad row stands once in the quarantine of its epoch, and in no other sink.",
    Anomaly.AGAIN: "A sink that takes each key once holds one row of a key.",
    Anomaly.TIME: "Rows and what is said of their time appear together, and nothing that was said of time goes back.",
    Anomaly.PANE: "Open windows hold each row once of the epochs up to the one that says so, and no other.",
    Anomaly.INVARIANT: "The rows that a read shows are together as the job's invariant says.",
}


# ---- Which of the situations that prove something a run went through. Pure.


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


# ---- One finding of the checker: an anomaly, where, in words, with witnesses and the lines that show it.

MOST_WITNESSES = 5
"""A finding names no more rows than somebody would look at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    Attributes:
        anomaly: its name.
        sink: sink id; ``None`` if it concerns none, or all.
        epoch: the epoch it concerns; ``None`` if it concerns none.
        what: what was seen, in words and numbers.
        witnesses: identities of rows that show it, at most :data:`MOST_WITNESSES`.
        lines: lines of the history that show it; the header is line 1.
    """

    anomaly: Anomaly
    sink: str | None
    epoch: int | None
    what: str
    witnesses: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()

    @property
    def must_hold(self) -> str:
        """The promise that is broken."""
        return MUST_HOLD[self.anomaly]

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the promise."""
        return {
            "anomaly": str(self.anomaly),
            "must_hold": self.must_hold,
            "sink": self.sink,
            "epoch": self.epoch,
            "what": self.what,
            "witnesses": list(self.witnesses),
            "lines": list(self.lines),
        }


def found(
    anomaly: Anomaly,
    sink: str | None,
    epoch: int | None,
    what: str,
    *,
    rows: Iterable[str] = (),
    lines: Iterable[int] = (),
) -> Finding:
    """Make a finding; of the rows the first few in order are its witnesses."""
    return Finding(anomaly, sink, epoch, what, tuple(sorted(rows)[:MOST_WITNESSES]), tuple(sorted(set(lines))))


def counted(count: int, noun: str) -> str:
    """Spell a count: ``1 row``, ``2 rows``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
