"""Audit sinks and ledger by pure rules. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onceonly_checkpoints import on_demand

if TYPE_CHECKING:
    from onceonly.audit.catalogue import RULES, Severity, Verdict
    from onceonly.audit.facts import Facts, SinkFacts, gather
    from onceonly.audit.finding import Finding
    from onceonly.audit.result import AuditResult, judge
    from onceonly.protocol import Sink, SparkSession
    from onceonly_checkpoints.ledger import Ledger

__all__ = ["RULES", "AuditResult", "Facts", "Finding", "Severity", "SinkFacts", "Verdict", "audit", "gather", "judge"]
# The page of a code imports neither sinks nor Spark.
__getattr__ = on_demand(
    __name__,
    {
        **dict.fromkeys(("RULES", "Severity", "Verdict"), "catalogue"),
        **dict.fromkeys(("Facts", "SinkFacts", "gather"), "facts"),
        **dict.fromkeys(("AuditResult", "judge"), "result"),
        "Finding": "finding",
    },
)


def audit(
    ledger: Ledger | None, pipeline: str, sinks: Sequence[Sink], *, since: int = 1, spark: SparkSession | None = None
) -> AuditResult:
    """Judge a pipeline by its sinks' markers and rows, and compare the ledger with them.

    Needs no fence. Writes nothing. Opens the sinks for reading. The caller closes them. An unreadable sink becomes a
    finding. With ``spark`` the rows are read and hashed as at their commit. A sink whose rows, epochs or types cannot
    be separated becomes a finding. Epochs before ``since`` are read for context and not reported. With ``None`` for
    ``ledger`` the sinks alone are judged.
    """
    from onceonly.audit.facts import gather
    from onceonly.audit.result import judge

    return judge(gather(ledger, pipeline, sinks, since=since, spark=spark))
