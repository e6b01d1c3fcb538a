"""Rules over epochs that were computed again. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly.audit.certificate import RecomputedRange
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, found
from onceonly.audit.sink_history import SinkHistory

_CODES = {RecomputedRange.DIFFERS: "A185", RecomputedRange.CANNOT: "A186", RecomputedRange.EQUAL: "A187"}


def computed_again(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A185, A186, A187: each range of epochs is different, cannot be computed, or is equal."""
    certificate = facts.recomputed
    for span in certificate.spans if certificate else ():
        # Epochs of which nothing is said disagree with nothing.
        at = None if span.answer is RecomputedRange.CANNOT else span.first
        yield found(_CODES[span.answer], facts.pipeline, None, at, span.text, last=span.last)
