"""One finding of an audit: a code with its evidence, filled in for one sink and epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onceonly.audit.catalogue import RULES, Severity, Verdict
from onceonly.audit.facts import SinkFacts


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    Attributes:
        code: stable code, ``A113``; ``onceonly explain A113`` prints its page.
        pipeline: the user's stable name.
        sink: sink id; ``None`` if it concerns all.
        epoch: the (first) epoch it concerns; ``None`` if it concerns none.
        evidence: what was seen, in words and numbers.
        remedy: the next command or change.
    """

    code: str
    pipeline: str
    sink: str | None
    epoch: int | None
    evidence: str
    remedy: str

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


def found(code: str, pipeline: str, sink: SinkFacts | None, epoch: int | None, evidence: str) -> Finding:
    """Make the finding of a code, with its remedy filled in."""
    remedy = RULES[code].remedy.format(
        pipeline=pipeline,
        sink=sink.id if sink else "the sink",
        address=sink.address if sink else "KIND:TARGET",
        epoch=epoch if epoch is not None else "N",
    )
    return Finding(code, pipeline, sink.id if sink else None, epoch, evidence, remedy)
