"""Applies every rule to the facts: facts in, findings out, worst and oldest first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onceonly.audit.catalogue import Severity
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding
from onceonly.audit.line import Line, line_of
from onceonly.audit.rules_ledger import compare, ledger_there, records_sound
from onceonly.audit.rules_pipeline import (
    anything_since,
    anything_written,
    begun,
    sinks_agree,
    sinks_complete,
    sinks_level,
    sinks_readable,
)
from onceonly.audit.rules_sink import SINK_RULES

PIPELINE_RULES: tuple[Callable[[Facts, tuple[Line, ...]], Iterator[Finding]], ...] = (
    sinks_readable,
    anything_written,
    anything_since,
    ledger_there,
    records_sound,
    sinks_complete,
    sinks_agree,
    sinks_level,
    begun,
)

_RANK = {Severity.ERROR: 0, Severity.WARN: 1, Severity.INFO: 2}


def lines_of(facts: Facts) -> tuple[Line, ...]:
    """Lay out the lines of the sinks that could be read."""
    return tuple(line_of(sink, facts.ledger, facts.since) for sink in facts.sinks if sink.unreadable is None)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings: by severity, then by epoch."""
    lines = lines_of(facts)
    findings = [finding.advised(facts) for finding in _all(facts, lines) if finding.concerns(facts.since)]
    return tuple(sorted(findings, key=lambda one: (_RANK[one.severity], one.epoch or 0, one.code)))


def _all(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    for pipeline_rule in PIPELINE_RULES:
        yield from pipeline_rule(facts, lines)
    for line in lines:
        for sink_rule in SINK_RULES:
            yield from sink_rule(facts.pipeline, line)
        if facts.ledger is not None:
            yield from compare(facts.pipeline, line, facts.ledger)
