"""What a variant of a sink leaves to ``make slow``: the longest claims, where another variant is judged by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import pytest

from onceonly_sinks.conformance import SinkConformance, SinkHarness
from onceonly_sinks.conformance.killing import CLAIMS as KILLS
from onceonly_sinks.conformance.replacing import KILLING_CLAIMS as REPLACING_KILLS

Variant = TypeVar("Variant", bound=type[SinkConformance])

LENGTHY = (*(f"test_{claim.name}" for claim in (*KILLS, *REPLACING_KILLS)), "test_rows_and_marker_appear_together")
"""Drivers are killed, or a reader looks on, at many moments: most of the suite's time."""


def lengthy_claims_are_slow(variant: Variant) -> Variant:
    """Mark them on this class of tests, and on it alone: its base class serves every sink."""
    for name in LENGTHY:
        setattr(variant, name, pytest.mark.slow(_copy(getattr(variant, name))))
    return variant


def _copy(test: Callable[[SinkConformance, SinkHarness], None]) -> Callable[[SinkConformance, SinkHarness], None]:
    @wraps(test)
    def copy(self: SinkConformance, harness: SinkHarness) -> None:
        test(self, harness)

    return copy
