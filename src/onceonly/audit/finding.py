"""One finding of an audit: a code with its evidence, filled in for one sink and epoch."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Any

from onceonly.audit.catalogue import RULES, Severity, Verdict
from onceonly.audit.facts import Facts, SinkFacts


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
        remedy = RULES[self.code].remedy.format(
            pipeline=shlex.quote(self.pipeline),
            sink=self.sink or "the sink",
            address=shlex.quote(address),
            epoch="N" if self.epoch is None else self.epoch,
            ledger=ledger or " --ledger URL_OR_PATH",
            where=ledger or f" --sink {shlex.quote(address)}",
        )
        return replace(self, remedy=remedy)

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


def found(
    code: str, pipeline: str, sink: SinkFacts | None, epoch: int | None, evidence: str, *, last: int | None = None
) -> Finding:
    """Make the finding of a code, still without its remedy."""
    return Finding(code, pipeline, sink.id if sink else None, epoch, evidence, last=last)
