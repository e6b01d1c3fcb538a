"""Audit sinks and ledger by pure rules. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceonly.audit.catalogue import RULES, Severity, Verdict
    from onceonly.audit.facts import Facts, SinkFacts, gather
    from onceonly.audit.finding import Finding
    from onceonly.audit.result import AuditResult, judge
    from onceonly.protocol import Sink, SparkSession
    from onceonly_checkpoints.ledger import Ledger

__all__ = ["RULES", "AuditResult", "Facts", "Finding", "Severity", "SinkFacts", "Verdict", "audit", "gather", "judge"]


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that the page of a code does not import sinks and Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onceonly.audit import catalogue, facts, finding, result

    return next(getattr(module, name) for module in (catalogue, finding, facts, result) if hasattr(module, name))


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
