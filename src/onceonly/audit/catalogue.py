"""Catalogue of audit codes: severity, verdict, meaning, remedy. Codes are stable.

The texts are in ``findings.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onceonly.errors.codes import Catalogue, one_line, sections, text_of
from onceonly_checkpoints.strenum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"


class Verdict(StrEnum):
    """The answer of an audit, from worst to best."""

    GAPS = "GAPS"
    DUPLICATES = "DUPLICATES"
    IN_DOUBT = "IN DOUBT"
    CANNOT_TELL = "CANNOT TELL"
    NOT_COUNTED = "NOT COUNTED"
    EXACTLY_ONCE = "EXACTLY ONCE"


CLEAN, FINDINGS, UNANSWERED, UNCOUNTED, PLANNED = range(5)
"""Exit codes of all commands: clean or done, something to do, no answer, rows not counted, a plan without ``--yes``."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The texts of one code.

    ``severity``: ``info`` findings change the exit code only with ``--fail-on info``. ``verdict`` is caused by the
    finding, ``None`` for no effect. ``remedy`` has details in braces, see ``Finding.advised``.
    """

    title: str
    severity: Severity
    verdict: Verdict | None
    meaning: str
    remedy: str


def _rules() -> Iterator[tuple[str, Rule]]:
    for heading, (title, meaning, remedy) in sections(text_of("findings", __package__ or ""), *_LABELS):
        code, severity, *verdict = heading.split(" · ")
        changed = Verdict(verdict[0]) if verdict else None
        yield code, Rule(one_line(title), Severity(severity), changed, one_line(meaning), one_line(remedy))


_LABELS = ("Why it matters: ", "Next: ")

RULES = Catalogue(_rules)
"""Every audit code, in the order in which the rules look."""
