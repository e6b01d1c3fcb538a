"""One finding of an audit: a code with its evidence, filled in for one sink and epoch."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Any

from onceonly import acceptance, look
from onceonly.audit.catalogue import RULES, Severity, Verdict
from onceonly.audit.facts import Facts, SinkFacts
from onceonly.remedies import Where, rewind, set_back, tally


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    Attributes:
        code: stable code, ``A113``; ``onceonly explain A113`` prints its page.
        pipeline: the user's stable name.
        sink: sink id; ``None`` if it concerns all.
        epoch: the (first) epoch it concerns; ``None`` if it concerns none.
        evidence: what was seen, in words and numbers.
        remedy: the next command or change; empty until :meth:`advised` fills it in.
        last: the last epoch it concerns, where that is another one.
    """

    code: str
    pipeline: str
    sink: str | None
    epoch: int | None
    evidence: str
    remedy: str = ""
    last: int | None = None

    def advised(self, facts: Facts) -> Finding:
        """The same with its remedy: commands carry what they need to be run as they are."""
        address = next((sink.address for sink in facts.sinks if sink.id == self.sink), "KIND:TARGET")
        known = facts.ledger is not None and facts.ledger.unreadable is None
        ledger = f" --ledger {shlex.quote(facts.ledger.address)}" if facts.ledger and known else ""
        where = ledger or f" --sink {shlex.quote(address)}"
        engine = Where(self.pipeline, where, facts.engine.checkpoint if facts.engine else "")
        remedy = RULES[self.code].remedy.format(
            pipeline=shlex.quote(self.pipeline),
            sink=self.sink or "the sink",
            address=shlex.quote(address),
            epoch="N" if self.epoch is None else self.epoch,
            ledger=ledger or " --ledger URL_OR_PATH",
            where=where,
            accepts=self._accepts(facts, where) if self.code in _ACCEPTED else "",
            ways=self._ways(facts, where),
            rewind=rewind(engine, self.epoch or 1),
        )
        return replace(self, remedy=remedy)

    def _accepts(self, facts: Facts, where: str) -> str:
        """The command that accepts what was done to the sinks, as the message would print it that stops the query."""
        found = self._stopped(facts)
        if found is None:
            return _MESSAGE
        kinds = ("same-data", "accept-loss") if found.holds else ("accept-change", "accept-loss")
        wanted = [acceptance.applicable(kind, found.stop) for kind in kinds]
        place = Where(self.pipeline, where)
        return "; or give up its rows: ".join(place.adopt(accepted) for accepted in wanted if accepted)

    def _ways(self, facts: Facts, where: str) -> str:
        """What can be done for a sink that was set back, in the words of the message that stops the query."""
        if self.code not in _BEHIND:
            return ""
        found = self._stopped(facts)
        lost = acceptance.applicable("accept-loss", found.stop) if found else None
        if found is None or lost is None:
            return _MESSAGE
        records = facts.ledger.records if facts.ledger else ()
        lineage = records[-1].epoch.standing.lineage if records else None
        others = [sink.head.number for sink in facts.sinks if sink.id not in lost.sinks and sink.head]
        return set_back(
            Where(self.pipeline, where, lineage.checkpoint if lineage else ""),
            lost,
            behind_others=max(others, default=0) >= lost.first,
            staged=found.staged and (facts.elsewhere or not facts.unstaged),
            told=tally(records, lost.first, lost.last),
            gone=facts.unstaged if found.staged else "",
        )

    def _stopped(self, facts: Facts) -> look.Stopped | None:
        """What would stop the query for this sink; ``None`` where something else does, or nothing that can be seen."""
        told = [look.Told(sink.id, sink.history, sink.disturbances) for sink in facts.sinks if sink.unreadable is None]
        head = facts.ledger.records[-1] if facts.ledger and facts.ledger.records else None
        found = look.stopped(self.pipeline, told, head)
        return found if found and self.sink in found.stop.sinks else None

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return RULES[self.code].severity

    @property
    def verdict(self) -> Verdict | None:
        """What it makes of the verdict."""
        return RULES[self.code].verdict

    @property
    def title(self) -> str:
        """What was found, without details."""
        return RULES[self.code].title

    @property
    def meaning(self) -> str:
        """What it means for the rows."""
        return RULES[self.code].meaning

    def concerns(self, since: int) -> bool:
        """Whether it says anything of epochs from ``since`` on."""
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


_ACCEPTED = ("A126", "A134")
"""Codes of what somebody did to a sink as a whole, which an operator can accept."""

_BEHIND = ("A132", "A142")
"""Codes of a sink that lacks what it held, or what the others hold."""

_MESSAGE = "restart the query; its message prints the command that applies"


def found(
    code: str, pipeline: str, sink: SinkFacts | None, epoch: int | None, evidence: str, *, last: int | None = None
) -> Finding:
    """Make the finding of a code, still without its remedy."""
    return Finding(code, pipeline, sink.id if sink else None, epoch, evidence, last=last)
