"""One finding of an audit: a code with its evidence, filled in for one sink and epoch."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Any

from onceonly import acceptance, look
from onceonly.audit.catalogue import RULES, Severity, Verdict
from onceonly.audit.facts import Facts, SinkFacts
from onceonly.remedies import Where, rewind, set_back, tally
from onceonly_checkpoints.adoption import Adoption


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
        told = [look.Told(sink.id, sink.history, sink.disturbances) for sink in facts.sinks if sink.unreadable is None]
        head = facts.ledger.records[-1] if facts.ledger and facts.ledger.records else None
        found = look.stopped(self.pipeline, told, head)
        if found is None or self.sink not in found[0].sinks:
            return "restart the query; its message prints the command that applies"
        stop, holds = found
        kinds = ("same-data", "accept-loss") if holds else ("accept-change", "accept-loss")
        wanted = [acceptance.applicable(kind, stop) for kind in kinds]
        place = Where(self.pipeline, where)
        return "; or give up its rows: ".join(place.adopt(accepted) for accepted in wanted if accepted)

    def _ways(self, facts: Facts, where: str) -> str:
        """What can be done for a sink that was set back, in the words of the message that stops the query."""
        if self.code not in {"A132", "A142"} or self.epoch is None or self.sink is None:
            return ""
        records = facts.ledger.records if facts.ledger else ()
        lineage = records[-1].epoch.standing.lineage if records else None
        last = self.last or self.epoch
        lost = Adoption("accept-loss", (self.sink,), self.epoch, last)
        others = [sink.head.number for sink in facts.sinks if sink.id != self.sink and sink.head]
        place = Where(self.pipeline, where, lineage.checkpoint if lineage else "")
        behind, told = max(others, default=0) >= self.epoch, tally(records, self.epoch, last)
        staged = self._staged(facts, last)
        ways = set_back(place, lost, behind_others=behind, staged=staged, told=told)
        return f"{ways}\nor, these files being gone, give up {told}: {place.adopt(lost)}" if staged else ways

    def _staged(self, facts: Facts, last: int) -> bool:
        """Whether one epoch is lacking, which every other sink holds and whose bytes were staged."""
        others = [sink.head for sink in facts.sinks if sink.id != self.sink]
        newest = [one for one in others if one and one.number == last and (one.manifest or one.adoption)]
        return last == self.epoch and bool(others) and len(newest) == len(others)

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


def found(
    code: str, pipeline: str, sink: SinkFacts | None, epoch: int | None, evidence: str, *, last: int | None = None
) -> Finding:
    """Make the finding of a code, still without its remedy."""
    return Finding(code, pipeline, sink.id if sink else None, epoch, evidence, last=last)
