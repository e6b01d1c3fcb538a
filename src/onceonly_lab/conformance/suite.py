"""Run the claims, for a report or as pytest tests.

Under pytest each claim is one test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly_lab.conformance import (
    claims_answers,
    claims_cuts,
    claims_failures,
    claims_fencing,
    claims_kills,
    claims_races,
    claims_replace,
    claims_reset,
    claims_rules,
    claims_shared_transaction,
    claims_window_state,
    claims_writing,
)
from onceonly_lab.conformance.harness import (
    Claim,
    ConformanceFailure,
    NotPromised,
    NotTested,
    SinkHarness,
    is_idempotent,
)

CLAIMS: tuple[Claim, ...] = (
    *claims_fencing.LOOKING_CLAIMS,
    *claims_fencing.OPENING_CLAIMS,
    *claims_writing.CLAIMS,
    *claims_fencing.CLAIMS,
    *claims_failures.UNKNOWN_CLAIMS,
    *claims_writing.READING_CLAIMS,
    *claims_answers.CLAIMS,
    *claims_cuts.CLAIMS,
    *claims_replace.CLAIMS,
    *claims_reset.CLAIMS,
    *claims_shared_transaction.CLAIMS,
    *claims_window_state.CLAIMS,
    *claims_races.CLAIMS,
    *claims_kills.CLAIMS,
    *claims_replace.KILLING_CLAIMS,
    *claims_failures.CLAIMS,
    *claims_rules.CLAIMS,
)
"""Every claim, in the order of the contract."""

IDEMPOTENT_CLAIMS: tuple[Claim, ...] = claims_kills.PUT_CLAIMS
"""More claims of a sink that declares ``transactional=False``, beside those of all sinks that it promises."""

EXACTLY_ONCE, IDEMPOTENT = "exactly once", "idempotent"
"""What a sink can be certified as."""

_LESS = (
    "certified as idempotent, not as exactly once: the sink ends with the same final result; a reader may see parts of "
    "an epoch, and rows put again; nobody is fenced out for certain"
)


@dataclass(frozen=True, slots=True)
class Result:
    """How one claim ended.

    Attributes:
        claim: the claim.
        evidence: why it does not hold; ``None`` if it holds, or was not tried.
        seconds: time it took, target included.
        untested: why it was not tried on this destination; ``None`` if it was.
        note: how it was tried, where that differs from destination to destination.
        not_promised: why the sink, which declares ``transactional=False``, is not held to it; ``None`` if it is.
        idempotent: whether the sink declares that.
    """

    claim: Claim
    evidence: str | None
    seconds: float
    untested: str | None = None
    note: str | None = None
    not_promised: str | None = None
    idempotent: bool = False

    @property
    def held(self) -> bool:
        """Whether the claim was tried and holds."""
        return self.evidence is None and self.untested is None and self.not_promised is None


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
        """Claims that could not be tried on this destination or harness."""
        return tuple(result for result in self.results if result.untested is not None)

    @property
    def not_promised(self) -> tuple[Result, ...]:
        """Claims that depend on a transaction, of a sink without one."""
        return tuple(result for result in self.results if result.not_promised is not None)

    @property
    def certified(self) -> str | None:
        """What the claims say that the sink is: ``exactly once``, or only ``idempotent``; ``None``: neither.

        Every claim that was tried holds, and any was tried. A sink that declares ``transactional=False`` is idempotent
        at best, whatever it was tried by, and is that only where a driver died amid its rows: nothing else tells a
        marker that was put before them.
        """
        if self.failures or not any(result.held for result in self.results):
            return None
        if not any(result.idempotent for result in self.results):
            return EXACTLY_ONCE
        return IDEMPOTENT if any(result.held and result.claim in IDEMPOTENT_CLAIMS for result in self.results) else None

    @property
    def conforms(self) -> bool:
        """Whether the whole contract certifies the sink. Idempotent is not enough."""
        return self.certified == EXACTLY_ONCE

    def __str__(self) -> str:
        """One line per broken claim and per claim that was not tried or is not promised, then the count."""
        broken = [f"{result.claim.name}: {result.evidence}" for result in self.failures]
        untested = [f"{result.claim.name}: not tested. {result.untested}" for result in self.untested]
        less = [f"{result.claim.name}: not promised. {result.not_promised}" for result in self.not_promised]
        held = sum(result.held for result in self.results)
        count = f"{held} of {len(self.results)} claims hold"
        count += f", {len(untested)} not tested" if untested else ""
        count += f", {len(less)} not promised" if less else ""
        return "\n".join([*broken, *untested, *less, count, *([_LESS] if self.certified == IDEMPOTENT else [])])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: ``conforms``, ``certified``, and per claim what :class:`Result` says of it."""
        claims = [
            {
                "name": result.claim.name,
                "text": result.claim.text,
                "evidence": result.evidence,
                "untested": result.untested,
                "not_promised": result.not_promised,
                "note": result.note,
                "seconds": round(result.seconds, 3),
            }
            for result in self.results
        ]
        return {"conforms": self.conforms, "certified": self.certified, "claims": claims}


def check(
    harness_factory: Callable[[], SinkHarness], claims: Sequence[Claim] | None = None, seconds: float = 120.0
) -> Report:
    """Try every claim on a fresh target.

    Args:
        harness_factory: makes a fresh, empty target; each is closed after its claim.
        claims: the claims to try; ``None``: :data:`CLAIMS`, and, of a sink that declares ``transactional=False``,
            :data:`IDEMPOTENT_CLAIMS`, too.
        seconds: how long one claim may take before it counts as broken.
    """
    results = [_try(claim, harness_factory, seconds) for claim in (CLAIMS if claims is None else claims)]
    if claims is None and any(result.idempotent for result in results):
        results += [_try(claim, harness_factory, seconds) for claim in IDEMPOTENT_CLAIMS]
    return Report(tuple(results))


def _try(claim: Claim, harness_factory: Callable[[], SinkHarness], seconds: float) -> Result:
    begun = time.monotonic()
    harness = harness_factory()
    evidence = untested = note = less = None
    weaker = False
    try:
        weaker = is_idempotent(harness)
        note = claim.check(harness, seconds)
    except ConformanceFailure as failure:
        evidence = str(failure)
    except NotPromised as reason:
        less = str(reason)
    except NotTested as reason:
        untested = str(reason)
    finally:
        harness.close()
    return Result(claim, evidence, time.monotonic() - begun, untested, note, less, weaker)


class SinkConformance:
    """One pytest test per claim. Subclass it as ``Test...`` with a fixture ``harness`` that makes a fresh target.

    A claim that cannot be tried on the destination is skipped with the reason, and so is one that the sink, by its
    capabilities, does not promise: use :class:`IdempotentSinkConformance` for such a sink.
    """


class IdempotentSinkConformance(SinkConformance):
    """The same for a sink without transactions. It has claims of its own."""


def _as_test(claim: Claim) -> Callable[[SinkConformance, SinkHarness], None]:
    def test(self: SinkConformance, harness: SinkHarness) -> None:
        claim.check(harness)

    test.__name__ = f"test_{claim.name}"
    test.__doc__ = claim.text
    return test


for _claim in CLAIMS:
    setattr(SinkConformance, f"test_{_claim.name}", _as_test(_claim))

for _claim in IDEMPOTENT_CLAIMS:
    setattr(IdempotentSinkConformance, f"test_{_claim.name}", _as_test(_claim))
