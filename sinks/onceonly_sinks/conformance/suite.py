"""Running the claims: for a report, or as one pytest test each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly_sinks.conformance import fencing, killing, looking, mishaps, opening, racing, reading, unknown, writing
from onceonly_sinks.conformance.harness import Claim, ConformanceFailure, NotTested, SinkHarness

CLAIMS: tuple[Claim, ...] = (
    *looking.CLAIMS,
    *opening.CLAIMS,
    *writing.CLAIMS,
    *fencing.CLAIMS,
    *unknown.CLAIMS,
    *reading.CLAIMS,
    *racing.CLAIMS,
    *killing.CLAIMS,
    *mishaps.CLAIMS,
)
"""Every claim, in the order of the contract."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one claim ended.

    Attributes:
        claim: the claim.
        evidence: why it does not hold; ``None`` if it holds, or was not tried.
        seconds: time it took, target included.
        untested: why it was not tried on this destination; ``None`` if it was.
        note: how it was tried, where that differs from destination to destination.
    """

    claim: Claim
    evidence: str | None
    seconds: float
    untested: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """How all claims ended."""

    results: tuple[Result, ...]

    @property
    def failures(self) -> tuple[Result, ...]:
        """The claims that do not hold."""
        return tuple(result for result in self.results if result.evidence is not None)

    @property
    def untested(self) -> tuple[Result, ...]:
        """The claims that this destination, or its harness, did not let the suite try."""
        return tuple(result for result in self.results if result.untested is not None)

    @property
    def conforms(self) -> bool:
        """Whether every claim that was tried holds, and any was tried."""
        return len(self.results) > len(self.untested) and not self.failures

    def __str__(self) -> str:
        """One line per broken claim and per claim that was not tried, then the count."""
        broken = [f"{result.claim.name}: {result.evidence}" for result in self.failures]
        untested = [f"{result.claim.name}: not tested. {result.untested}" for result in self.untested]
        held = len(self.results) - len(broken) - len(untested)
        count = f"{held} of {len(self.results)} claims hold"
        return "\n".join([*broken, *untested, count + (f", {len(untested)} not tested" if untested else "")])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: ``conforms`` and per claim name, text, evidence, why it was not tested, note and seconds."""
        claims = [
            {
                "name": result.claim.name,
                "text": result.claim.text,
                "evidence": result.evidence,
                "untested": result.untested,
                "note": result.note,
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
    evidence = untested = note = None
    try:
        note = claim.check(harness, seconds)
    except ConformanceFailure as failure:
        evidence = str(failure)
    except NotTested as reason:
        untested = str(reason)
    finally:
        harness.close()
    return Result(claim, evidence, time.monotonic() - begun, untested, note)


class SinkConformance:
    """One pytest test per claim. Subclass it as ``Test...`` with a fixture ``harness`` that makes a fresh target.

    A claim that cannot be tried on the destination is skipped with the reason.
    """


def _as_test(claim: Claim) -> Callable[[SinkConformance, SinkHarness], None]:
    def test(self: SinkConformance, harness: SinkHarness) -> None:
        claim.check(harness)

    test.__name__ = f"test_{claim.name}"
    test.__doc__ = claim.text
    return test


for _claim in CLAIMS:
    setattr(SinkConformance, f"test_{_claim.name}", _as_test(_claim))
