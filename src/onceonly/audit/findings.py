"""Applies every rule to the facts: facts in, findings out, in the order in which an operator needs them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from onceonly.audit.catalogue import Severity, Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding
from onceonly.audit.line import Line, line_of
from onceonly.audit.rules_ledger import compare, ledger_there, records_sound
from onceonly.audit.rules_pipeline import (
    anything_since,
    anything_written,
    batches_without_epochs,
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
    batches_without_epochs,
)

_SEVERITIES = tuple(Severity)
_VERDICTS: tuple[Verdict | None, ...] = (*Verdict, None)

_DEEDS = frozenset({"A118", "A126", "A132", "A134"})
"""Codes that say what was done to a sink: a zombie wrote, somebody changed it, it was set back, it is another one.
Other codes of the same verdict say what that left behind."""


def lines_of(facts: Facts) -> tuple[Line, ...]:
    """Lay out the lines of the sinks that could be read."""
    return tuple(line_of(sink, facts.ledger, facts.since) for sink in facts.sinks if sink.unreadable is None)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings, in the order of :func:`urgency`."""
    lines = lines_of(facts)
    findings = [finding.advised(facts) for finding in _all(facts, lines) if finding.concerns(facts.since)]
    return tuple(sorted(findings, key=urgency))


def urgency(one: Finding) -> tuple[int, int, bool, int, str]:
    """Where a finding stands among others, smaller is earlier.

    By severity; then by what it makes of the verdict, worst first: rows known to be missing come before a change that
    may have cost some, whose remedy is to accept it. Then cause before consequence: what was done to a sink, then what
    that left behind. Then by epoch, those that concern all epochs first. Sinks stay in the order of the call.
    """
    return (
        _SEVERITIES.index(one.severity),
        _VERDICTS.index(one.verdict),
        one.code not in _DEEDS,
        one.epoch or 0,
        one.code,
    )


def foremost(findings: Sequence[Finding], limit: int) -> tuple[Finding, ...]:
    """At most so many, in their order; a thousand findings of one kind do not push out the first of another.

    Args:
        findings: in the order of :func:`urgency`.
        limit: how many; more only where there are more kinds, a code in a sink each.
    """
    first = {(one.code, one.sink): index for index, one in reversed(list(enumerate(findings)))}
    leading = set(first.values())
    others = [index for index in range(len(findings)) if index not in leading]
    return tuple(findings[index] for index in sorted([*leading, *others[: max(0, limit - len(leading))]]))


def _all(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    for pipeline_rule in PIPELINE_RULES:
        yield from pipeline_rule(facts, lines)
    for line in lines:
        for sink_rule in SINK_RULES:
            yield from sink_rule(facts.pipeline, line)
        if facts.ledger is not None:
            yield from compare(facts.pipeline, line, facts.ledger)
