"""Turns findings into one verdict, the sentence of its scope, and an exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onceonly.audit.catalogue import Severity, Verdict
from onceonly.audit.finding import Finding
from onceonly.audit.line import Line, ranges

CLEAN, FINDINGS, UNANSWERED = 0, 1, 2
"""Exit codes: nothing to do, something to do, could not answer."""

_WORST_FIRST = tuple(Verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides; EXACTLY ONCE if nothing speaks against it."""
    return min(verdicts, key=_WORST_FIRST.index, default=Verdict.EXACTLY_ONCE)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The verdict that the findings leave."""
    return worst(finding.verdict for finding in findings if finding.verdict is not None)


def exit_code_of(findings: Iterable[Finding], fail_on: Severity = Severity.WARN) -> int:
    """1 if anything must be done, 2 if all that is wrong is that something could not be read, else 0.

    Args:
        findings: what was found.
        fail_on: findings below this severity do not count.
    """
    worst_first = tuple(Severity)
    serious = [one for one in findings if worst_first.index(one.severity) <= worst_first.index(fail_on)]
    if not serious:
        return CLEAN
    return UNANSWERED if all(finding.verdict is Verdict.CANNOT_TELL for finding in serious) else FINDINGS


def first_disagreement(findings: Iterable[Finding]) -> Finding | None:
    """The finding with the lowest epoch among those that need something done."""
    serious = [one for one in findings if one.severity is not Severity.INFO and one.epoch is not None]
    return min(serious, key=lambda one: one.epoch or 0, default=None)


def scope_of(lines: Sequence[Line], findings: Sequence[Finding], since: int = 1) -> str:
    """What the verdict covers, in a few sentences; sinks that hold the same share one."""
    first = first_disagreement(findings)
    alike: dict[_Held, list[str]] = {}
    for line in lines:
        alike.setdefault(_held(line, since), []).append(line.sink.id)
    spoken = [held.sentence(sinks) for held, sinks in alike.items()]
    if first is not None:
        where = f" in {first.sink}" if first.sink else ""
        spoken.insert(0, f"First disagreement: epoch {first.epoch}{where}: {first.evidence} ({first.code}).")
    return " ".join(spoken) or "Nothing could be read."


@dataclass(frozen=True, slots=True)
class _Held:
    """What the scope says of a sink; ``counted`` is ``None`` where rows cannot be told, ``limit`` is `` from 3 on``."""

    epochs: str
    counted: int | None
    committed: int
    limit: str
    removed: int = 0

    def sentence(self, sinks: Sequence[str]) -> str:
        """The sentence about all sinks of which this is true."""
        many = len(sinks) > 1
        names = f"{', '.join(sinks[:-1])} and {sinks[-1]}" if many else sinks[0]
        holds = f"{names} {'hold' if many else 'holds'}"
        if not self.epochs:
            return f"{holds} no epoch{self.limit}."
        held = f"{'epoch' if self.epochs.isdigit() else 'epochs'} {self.epochs}"
        if self.counted is None:
            return f"{holds} {held} by {'their' if many else 'its'} chain; rows are not counted."
        there = "in each" if many else "there"
        removed = f", {_removed(self.removed)}" if self.removed else ""
        rows = f"{self.counted} rows counted {there}, {self.committed} committed{removed}"
        return f"{holds} {held}; {rows}."


def _held(line: Line, since: int) -> _Held:
    epochs = [epoch for epoch in line.epochs if epoch.number >= since]
    return _Held(
        epochs=ranges(tuple(epoch.number for epoch in epochs)),
        counted=_counted(line, since),
        committed=sum(epoch.digest.rows for epoch in epochs),
        limit=f" from {since} on" if line.held and not epochs else "",
        removed=sum(count for number, count in line.sink.allowed.removed.items() if number >= since),
    )


def _counted(line: Line, since: int) -> int | None:
    rows, sums = line.sink.rows, line.sink.allowed.sums
    if rows is None:
        return sums.standing - sums.added if sums and since <= 1 else None
    # Rows of epochs whose markers were let go are not named here: A166 tells of them.
    pruned = line.sink.milestone.epoch if line.sink.milestone else 0
    return sum(rows[number] for number in rows if number > pruned and number >= since)


def remark_of(lines: Sequence[Line], since: int = 1) -> str:
    """What stands behind the verdict in brackets: what others were allowed to do and operators accepted; or nothing."""
    removed = sum(_removed_from(line) for line in lines)
    changed = any(event.kind == "overwritten" for line in lines for event in line.sink.allowed.changes)
    told = [_removed(removed)] if removed else []
    told += ["rows changed by others, allowed"] if changed else []
    return "; ".join([*told, *_accepted(lines, since)])


_WHAT_WAS_ACCEPTED = {
    "accept-loss": ("rows", "given up"),
    "accept-duplicates": ("rows", "written again"),
    "accept-state-loss": ("state", "given up"),
    "keep-recomputed-state": ("state", "kept as it was recomputed"),
    "accept-change": ("changes by others", ""),
    "continue": ("another start", ""),
    "start": ("another start", ""),
}
"""Acceptances after which a sink may hold other rows than those of the source once, in the order they are told.

``same-data`` is not among them, for its rows are checked, and neither is what only names sinks or their beginning.
"""


def _accepted(lines: Sequence[Line], since: int) -> list[str]:
    """Without these words EXACTLY ONCE would say more than is so: an operator took rows as they were."""
    by_number = {epoch.number: epoch.adoption for line in lines for epoch in line.epochs if epoch.number >= since}
    taken = [adoption for _, adoption in sorted(by_number.items()) if adoption is not None]
    told: list[str] = []
    for kind, (what, became) in _WHAT_WAS_ACCEPTED.items():
        of_kind = [one for one in taken if one.kind == kind]
        named = sorted({number for one in of_kind if one.last for number in range(one.first, one.last + 1)})
        if named:
            whose = f" of {'epoch' if len(named) == 1 else 'epochs'} {ranges(tuple(named))}"
            told.append(" ".join(filter(None, (what + whose, became))))
        if any(not one.last for one in of_kind):
            told.append(" ".join(filter(None, (what, became))))
    return [f"{one}, accepted" for one in dict.fromkeys(told)]


def _removed_from(line: Line) -> int:
    allowed = line.sink.allowed
    return allowed.sums.removed if allowed.sums else sum(allowed.removed.values())


def _removed(rows: int) -> str:
    return f"{rows} {'row' if rows == 1 else 'rows'} deleted by others, allowed"
