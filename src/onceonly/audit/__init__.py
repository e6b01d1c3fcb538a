"""The audit: facts gathered from sinks and ledger, judged by pure rules. Writes nothing."""

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
    """Load public names when one is asked for: the page of a code must not pay for sinks and Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onceonly.audit.catalogue import RULES, Severity, Verdict
    from onceonly.audit.facts import Facts, SinkFacts, gather
    from onceonly.audit.finding import Finding
    from onceonly.audit.result import AuditResult, judge

    judging = {"AuditResult": AuditResult, "Facts": Facts, "SinkFacts": SinkFacts, "gather": gather, "judge": judge}
    found = {"RULES": RULES, "Severity": Severity, "Verdict": Verdict, "Finding": Finding, **judging}
    globals().update(found)
    return found[name]


def audit(
    ledger: Ledger | None, pipeline: str, sinks: Sequence[Sink], *, since: int = 1, spark: SparkSession | None = None
) -> AuditResult:
    """Judge a pipeline by what its sinks say of themselves, and compare the ledger with that.

    Needs no fence, and no Spark unless rows are to be hashed again; writes nothing. A sink that cannot be read becomes
    a finding.

    Args:
        ledger: an opened ledger, or ``None``: then the sinks alone are judged.
        pipeline: the user's stable name.
        sinks: the pipeline's sinks; opened for reading here, closed by the caller.
        since: number of the first epoch to judge: earlier ones are read, for what follows them, and not reported.
        spark: a session: the rows themselves are read through it and hashed as they were when they were written. A
            sink whose rows, epochs or types cannot be told from what it holds becomes a finding.
    """
    from onceonly.audit.facts import gather
    from onceonly.audit.result import judge

    return judge(gather(ledger, pipeline, sinks, since=since, spark=spark))
