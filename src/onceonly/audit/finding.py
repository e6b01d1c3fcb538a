"""Findings of an audit, their verdict, scope and exit code. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onceonly.audit.catalogue import CLEAN, FINDINGS, RULES, UNANSWERED, UNCOUNTED, Severity, Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.sink_history import SinkHistory, ranges
from onceonly.machine import acceptance, precheck
from onceonly.machine.rewind import RewindRequest, level
from onceonly.runtime.remedies import CommandContext, rewound, set_back, tally, undo
from onceonly_checkpoints.digests import SEEN_IDS, STATE
from onceonly_checkpoints.model import AdoptionKind

# ---- One finding of an audit: a code with its evidence, filled in for one sink and epoch.


@dataclass(frozen=True, slots=True)
class Finding:
    """Evidence of a rule under its code.

    Attributes:
        code: stable code, ``A113``. ``onceonly explain A113`` prints its page.
        epoch: the (first) epoch it concerns, or ``None`` if it concerns none.
        remedy: the next command or change. Empty until :meth:`advised` fills it in.
        last: the last epoch it concerns, if that is another one.
    """

    code: str
    pipeline: str
    sink: str | None
    epoch: int | None
    evidence: str
    remedy: str = ""
    last: int | None = None

    def advised(self, facts: Facts) -> Finding:
        """Return a copy with its remedy, whose commands work when pasted."""
        address = next((sink.address for sink in facts.sinks if sink.id == self.sink), "KIND:TARGET")
        has_ledger = facts.ledger is not None and facts.ledger.unreadable is None
        ledger = f" --ledger {shlex.quote(facts.ledger.address)}" if facts.ledger and has_ledger else ""
        where = ledger or f" --sink {shlex.quote(address)}"
        engine = CommandContext(self.pipeline, where, facts.engine.checkpoint if facts.engine else "")
        remedy = RULES[self.code].remedy.format(
            pipeline=shlex.quote(self.pipeline),
            sink=self.sink or "the sink",
            address=shlex.quote(address),
            epoch="N" if self.epoch is None else self.epoch,
            ledger=ledger or " --ledger URL_OR_PATH",
            where=where,
            accepts=self._accepts(facts, where) if self.code in _ACCEPTED else "",
            ways=self._ways(facts, where),
            undo=self._undo(facts, engine) if self.code in (_CHANGED, _MISSING) else "",
            rewind=rewound(engine, RewindRequest(self.epoch or 1)),
        )
        return replace(self, remedy=remedy)

    def _accepts(self, facts: Facts, where: str) -> str:
        """Return the accepting command that the error of the stopped query would print."""
        refusal = self._stopped(facts)
        if refusal is None:
            return _MESSAGE
        kept = AdoptionKind.SAME_DATA if refusal.holds else AdoptionKind.ACCEPT_CHANGE
        adoptions = [acceptance.applicable(kind, refusal.stop) for kind in (kept, AdoptionKind.ACCEPT_LOSS)]
        context = CommandContext(self.pipeline, where)
        return "; or give up its rows: ".join(context.adopt(accepted) for accepted in adoptions if accepted)

    def _ways(self, facts: Facts, where: str) -> str:
        """Return the remedies for a sink that was set back, worded as in the error that stops the query."""
        if self.code not in _BEHIND:
            return ""
        refusal = self._stopped(facts)
        lost = acceptance.applicable(AdoptionKind.ACCEPT_LOSS, refusal.stop) if refusal else None
        if refusal is None or lost is None:
            return _MESSAGE
        records = facts.ledger.records if facts.ledger else ()
        lineage = records[-1].epoch.resume_point.lineage if records else None
        sink_epochs = {sink.id: sink.head.number if sink.head else 0 for sink in facts.sinks if sink.unreadable is None}
        return set_back(
            CommandContext(self.pipeline, where, lineage.checkpoint if lineage else ""),
            lost,
            level=level(sink_epochs),
            staged=refusal.staged and (facts.elsewhere or not facts.unstaged),
            amount=tally(records, lost.first, lost.last, lost.sinks),
            gone=facts.unstaged if refusal.staged else "",
        )

    def _undo(self, facts: Facts, where: CommandContext) -> str:
        """Return the lossless remedy for a sink set back under its markers, or empty if there is none."""
        sinks = [sink for sink in facts.sinks if sink.unreadable is None]
        contents = {sink.id: (sink.head.number if sink.head else 0, sink.holds) for sink in sinks}
        if self.code == _MISSING:
            return undo(where, acceptance.Stop("E209", (self.sink,)), contents) if self.sink else ""
        refusal = self._stopped(facts)
        return undo(where, refusal.stop, contents) if refusal else ""

    def _stopped(self, facts: Facts) -> precheck.OpeningRefusal | None:
        """Return why the query would stop for this sink, or ``None`` for another reason or no visible one."""
        peeks = [
            precheck.PeekedSink(sink.id, sink.history, sink.disturbances, sink.holds)
            for sink in facts.sinks
            if sink.unreadable is None
        ]
        head = facts.ledger.records[-1] if facts.ledger and facts.ledger.records else None
        refusal = precheck.opening_refusal(self.pipeline, peeks, head)
        return refusal if refusal and self.sink in refusal.stop.sinks else None

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return RULES[self.code].severity

    @property
    def verdict(self) -> Verdict | None:
        """Verdict that it causes, or ``None`` for no effect."""
        return RULES[self.code].verdict

    @property
    def title(self) -> str:
        """Title without details."""
        return RULES[self.code].title

    @property
    def meaning(self) -> str:
        """Consequence for the rows."""
        return RULES[self.code].meaning

    def concerns(self, since: int) -> bool:
        """Whether it concerns any epoch from ``since`` on."""
        newest = self.last or self.epoch
        return newest is None or newest >= since

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with severity and title."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "pipeline": self.pipeline,
            "sink": self.sink,
            "epoch": self.epoch,
            "title": self.title,
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


_CHANGED = "A126"
"""Code of what others did to a target."""

_MISSING = "A121"
"""Code of rows that an epoch lacks."""

_ACCEPTED = (_CHANGED, "A134")
"""Codes of what somebody did to a sink as a whole, which an operator can accept."""

_BEHIND = ("A132", "A142")
"""Codes of a sink that lacks what it held, or what the others hold."""

_MESSAGE = "restart the query; its message prints the command that applies"


# ---- Turns findings into one verdict, the sentence of its scope, and an exit code. Pure.

_UNCOUNTED = (Verdict.CANNOT_TELL, Verdict.NOT_COUNTED)

_WORST_FIRST = tuple(Verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict, or EXACTLY ONCE without any."""
    return min(verdicts, key=_WORST_FIRST.index, default=Verdict.EXACTLY_ONCE)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict of the findings."""
    return worst(finding.verdict for finding in findings if finding.verdict is not None)


def exit_code_of(findings: Sequence[Finding], fail_on: Severity = Severity.WARN, *, uncounted_ok: bool = False) -> int:
    """Return 1 for findings to act on, 2 if all of them are unreadable data, 3 if rows were not counted, else 0.

    Findings below ``fail_on`` do not count. ``uncounted_ok`` gives 0 in place of 3.
    """
    worst_first = tuple(Severity)
    serious = [finding for finding in findings if worst_first.index(finding.severity) <= worst_first.index(fail_on)]
    if not serious:
        return UNCOUNTED if verdict_of(findings) in _UNCOUNTED and not uncounted_ok else CLEAN
    return UNANSWERED if all(finding.verdict is Verdict.CANNOT_TELL for finding in serious) else FINDINGS


def first_disagreement(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding above ``info`` with the lowest epoch."""
    serious = [finding for finding in findings if finding.severity is not Severity.INFO and finding.epoch is not None]
    return min(serious, key=lambda finding: finding.epoch or 0, default=None)


def scope_of(lines: Sequence[SinkHistory], findings: Sequence[Finding], since: int = 1) -> str:
    """Describe the coverage of the verdict in a few sentences. Sinks with the same content share one."""
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
    """Figures of a sink for the scope: ``words`` replace a missing ``counted``, ``limit`` is `` from 3 on``."""

    epochs: str
    counted: int | None
    committed: int
    limit: str
    removed: int = 0
    series: int = 1
    expired: int = 0
    words: str = ""

    def sentence(self, sinks: Sequence[str]) -> str:
        """Return one sentence for all sinks with these figures."""
        many = len(sinks) > 1
        names = f"{', '.join(sinks[:-1])} and {sinks[-1]}" if many else sinks[0]
        holds = f"{names} {'hold' if many else 'holds'}"
        if not self.epochs:
            return f"{holds} no epoch{self.limit}."
        held = f"{'epoch' if self.epochs.isdigit() else 'epochs'} {self.epochs}"
        if self.counted is None:
            return f"{holds} {held} by {'their' if many else 'its'} chain; {self.words}."
        there = "in each" if many else "there"
        removed = f", {_removed(self.removed)}" if self.removed else ""
        removed += f", {self.expired} removed after their time" if self.expired else ""
        since = f" since epoch {self.series}, which replaced all before" if self.series > 1 else ""
        rows = f"{self.counted} rows counted {there}, {self.committed} committed{since}{removed}"
        return f"{holds} {held}; {rows}."


def _held(line: SinkHistory, since: int) -> _Held:
    epochs = [epoch for epoch in line.epochs if epoch.number >= since]
    return _Held(
        epochs=ranges(tuple(epoch.number for epoch in epochs)),
        counted=_counted(line, since),
        committed=sum(epoch.digest_in(line.sink.id).rows for epoch in epochs if epoch.number >= line.series),
        series=line.series,
        limit=f" from {since} on" if line.held and not epochs else "",
        removed=sum(count for number, count in line.sink.allowed.removed.items() if number >= since),
        expired=sum(line.sink.gone(epoch) for epoch in epochs if epoch.number >= line.series),
        words=_counted_otherwise(line),
    )


def _counted_otherwise(line: SinkHistory) -> str:
    """Describe the count in a sink that does not separate rows by epoch."""
    if line.kind == SEEN_IDS and line.sink.rows is not None:
        return f"{sum(line.sink.rows.values())} ids counted"
    if line.sink.total is None or not line.is_counted:
        return "rows are not counted"
    return f"{line.sink.total.rows} open windows counted"


def _counted(line: SinkHistory, since: int) -> int | None:
    rows, sums = line.sink.rows, line.sink.allowed.sums
    if line.kind in (SEEN_IDS, STATE):
        return None
    if rows is None and line.sink.total and line.is_counted and since <= 1:
        return line.sink.total.rows
    if rows is None:
        return sums.current_rows - sums.added if sums and since <= 1 else None
    # Rows of epochs whose markers were let go are not named here: A166 tells of them.
    pruned = line.sink.milestone.epoch if line.sink.milestone else 0
    return sum(rows[number] for number in rows if number > pruned and number >= since)


def remark_of(lines: Sequence[SinkHistory], since: int = 1) -> str:
    """Return the verdict's remark in brackets: permitted changes by others and acceptances by operators, or empty."""
    every = [line.sink.allowed for line in lines]
    removed = sum(allowed.sums.removed if allowed.sums else sum(allowed.removed.values()) for allowed in every)
    changed = any(event.kind == "overwritten" for allowed in every for event in allowed.changes)
    remarks = [_removed(removed)] if removed else []
    remarks += ["rows changed by others, allowed"] if changed else []
    return "; ".join([*remarks, *_accepted(lines, since)])


_WHAT_WAS_ACCEPTED = {
    AdoptionKind.ACCEPT_LOSS: ("rows", "given up"),
    AdoptionKind.ACCEPT_DUPLICATES: ("rows", "written again"),
    AdoptionKind.ACCEPT_STATE_LOSS: ("state", "given up"),
    AdoptionKind.KEEP_RECOMPUTED_STATE: ("state", "kept as it was recomputed"),
    AdoptionKind.ACCEPT_CHANGE: ("changes by others", ""),
    AdoptionKind.CONTINUE: ("another start", ""),
    AdoptionKind.START: ("another start", ""),
    AdoptionKind.RESET_PANES: ("open windows", "given up"),
    AdoptionKind.DROP_SINK: ("rows", "given up"),
}
"""Acceptances after which a sink may hold other rows than those of the source once, in the order they are told.

``same-data`` is not among them, for its rows are checked, and neither is what only names sinks or their beginning.
A sink that is taken out gives up rows only where epochs are named.
"""


def _accepted(lines: Sequence[SinkHistory], since: int) -> list[str]:
    """List acceptances of rows as they were. Without them EXACTLY ONCE would claim too much."""
    by_number = {epoch.number: epoch.adoption for line in lines for epoch in line.epochs if epoch.number >= since}
    adoptions = [adoption for _, adoption in sorted(by_number.items()) if adoption is not None]
    decisions: list[str] = []
    for kind, (what, became) in _WHAT_WAS_ACCEPTED.items():
        of_kind = [adoption for adoption in adoptions if adoption.kind == kind]
        named = sorted(
            {number for adoption in of_kind if adoption.last for number in range(adoption.first, adoption.last + 1)}
        )
        if named:
            whose = f" of {'epoch' if len(named) == 1 else 'epochs'} {ranges(tuple(named))}"
            decisions.append(" ".join(filter(None, (what + whose, became))))
        if kind is not AdoptionKind.DROP_SINK and any(not adoption.last for adoption in of_kind):
            decisions.append(" ".join(filter(None, (what, became))))
    return [f"{decision}, accepted" for decision in dict.fromkeys(decisions)]


def _removed(rows: int) -> str:
    return f"{rows} {'row' if rows == 1 else 'rows'} deleted by others, allowed"
