"""Anomaly pages: symptom, usual cause, and first places to look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceonly.errors.codes import Catalogue, one_line, sections, text_of
from onceonly_lab.checker import MUST_HOLD, Anomaly


@dataclass(frozen=True, slots=True)
class Page:
    """The texts of one anomaly; what must hold says :data:`~onceonly_lab.checker.MUST_HOLD`.

    Attributes:
        what: what was seen.
        cause: what usually breaks the promise.
        remedy: where to look first.
    """

    what: str
    cause: str
    remedy: str


def _pages() -> Iterator[tuple[str, Page]]:
    for name, texts in sections(text_of("anomalies", __package__ or ""), "Likely cause: ", "Next: "):
        yield name, Page(*map(one_line, texts))


PAGES = Catalogue(_pages)
"""One page each, in the order of the anomalies. The texts are in ``anomalies.md``."""


def explained() -> Mapping[str, Mapping[str, str]]:
    """What ``onceonly explain`` prints of each; entry point ``lab`` of the group ``onceonly.pages``."""
    return {
        anomaly: {
            "what": page.what,
            "must hold": MUST_HOLD[Anomaly(anomaly)],
            "likely cause": page.cause,
            "next": page.remedy,
        }
        for anomaly, page in PAGES.items()
    }
