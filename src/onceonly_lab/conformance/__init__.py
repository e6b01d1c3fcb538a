"""The conformance suite that every sink must pass, ours and yours.

Give it a :class:`SinkHarness`, which makes a fresh target and looks at it from outside, and call :func:`check`; or,
under pytest, subclass :class:`SinkConformance` with a ``harness`` fixture. Each claim is one sentence about what a
destination holds after drivers came, went, hung, raced and lost answers. A sink that declares
``transactional=False`` is judged by what it promises, and is certified as idempotent at best. The sink must pass the
fault points ``install.sent`` and ``commit.sent`` of :mod:`onceonly.faults` where its answer has not yet been processed:
that is how answers are lost here.

Idea: the shared fencing test of Estuary's materialization connectors.
"""

from onceonly_lab.conformance.harness import (
    BrokenOff,
    BrokenOffBatch,
    Claim,
    ConformanceFailure,
    NotPromised,
    NotTested,
    SinkHarness,
    Wire,
)
from onceonly_lab.conformance.scenario import COLUMNS, PIPELINE
from onceonly_lab.conformance.suite import (
    CLAIMS,
    IDEMPOTENT_CLAIMS,
    IdempotentSinkConformance,
    Report,
    Result,
    SinkConformance,
    check,
)

__all__ = [
    "CLAIMS",
    "COLUMNS",
    "IDEMPOTENT_CLAIMS",
    "PIPELINE",
    "BrokenOff",
    "BrokenOffBatch",
    "Claim",
    "ConformanceFailure",
    "IdempotentSinkConformance",
    "NotPromised",
    "NotTested",
    "Report",
    "Result",
    "SinkConformance",
    "SinkHarness",
    "Wire",
    "check",
]
