"""The audit: facts gathered from sinks and ledger, judged by pure rules. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from onceonly.audit.catalogue import RULES, Severity, Verdict
from onceonly.audit.facts import Facts, SinkFacts, gather
from onceonly.audit.finding import Finding
from onceonly.audit.result import AuditResult, judge
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger import Ledger

__all__ = ["RULES", "AuditResult", "Facts", "Finding", "Severity", "SinkFacts", "Verdict", "audit", "gather", "judge"]


def audit(ledger: Ledger | None, pipeline: str, sinks: Sequence[Sink]) -> AuditResult:
    """Judge a pipeline by what its sinks say of themselves, and compare the ledger with that.

    Needs no fence and no Spark, and writes nothing. A sink that cannot be read becomes a finding.

    Args:
        ledger: an opened ledger, or ``None``: then the sinks alone are judged.
        pipeline: the user's stable name.
        sinks: the pipeline's sinks; opened for reading here, closed by the caller.
    """
    return judge(gather(ledger, pipeline, sinks))
