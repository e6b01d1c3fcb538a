"""Running the claims: for a report, or as one pytest test each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly_sinks.conformance import fencing, opening, racing, reading, unknown, writing
from onceonly_sinks.conformance.harness import Claim, ConformanceFailure, SinkHarness

CLAIMS: tuple[Claim, ...] = (
    *opening.CLAIMS,
    *writing.CLAIMS,
    *fencing.CLAIMS,
    *unknown.CLAIMS,
    *reading.CLAIMS,
    *racing.CLAIMS,
)
"""Every claim, in the order of the contract."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one claim ended.

    Attributes:
        claim: the claim.
        evidence: why it does not hold; ``None`` if it holds.
        seconds: time it took, target included.
    """

    claim: Claim
    evidence: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """How all claims ended."""

    results: tuple[Result, ...]

    @property
    def failures(self) -> tuple[Result, ...]:
        """The claims that do not hold."""
        return tuple(result for result in self.results if result.evidence is not None)

    @property
    def conforms(self) -> bool:
        """Whether every claim holds, and any was tried."""
        return bool(self.results) and not self.failures

    def __str__(self) -> str:
        """One line per broken claim, then the count."""
        broken = [f"{result.claim.name}: {result.evidence}" for result in self.failures]
        return "\n".join([*broken, f"{len(self.results) - len(broken)} of {len(self.results)} claims hold"])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: ``conforms`` and per claim name, text, evidence and seconds."""
        claims = [
            {
                "name": result.claim.name,
                "text": result.claim.text,
                "evidence": result.evidence,
                "seconds": round(result.seconds, 3),
            }
            for result in self.results
        ]
        return {"conforms": self.conforms, "claims": claims}


def check(
    harness_factory: Callable[[], SinkHarness], claims: Sequence[Claim] = CLAIMS, seconds: float = 120.0
) -> Report:
    """Try every claim on a fresh target.

    Args:
        harness_factory: makes a fresh, empty target; each is closed after its claim.
        claims: the claims to try.
        seconds: how long one claim may take before it counts as broken.
    """
    return Report(tuple(_try(claim, harness_factory, seconds) for claim in claims))


def _try(claim: Claim, harness_factory: Callable[[], SinkHarness], seconds: float) -> Result:
    begun = time.monotonic()
    harness = harness_factory()
    try:
        claim.check(harness, seconds)
        evidence = None
    except ConformanceFailure as failure:
        evidence = str(failure)
    finally:
        harness.close()
    return Result(claim, evidence, time.monotonic() - begun)


class SinkConformance:
    """One pytest test per claim. Subclass it as ``Test...`` with a fixture ``harness`` that makes a fresh target."""


def _as_test(claim: Claim) -> Callable[[SinkConformance, SinkHarness], None]:
    def test(self: SinkConformance, harness: SinkHarness) -> None:
        claim.check(harness)

    test.__name__ = f"test_{claim.name}"
    test.__doc__ = claim.text
    return test


for _claim in CLAIMS:
    setattr(SinkConformance, f"test_{_claim.name}", _as_test(_claim))
