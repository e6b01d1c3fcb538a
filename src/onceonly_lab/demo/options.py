"""What the user asked the demo for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onceonly_lab.demo.targets import TOGETHER


@dataclass(frozen=True, slots=True)
class Options:
    """The demo's options, checked.

    Attributes:
        output: ``table`` or ``json``.
        keep: folder that keeps everything; ``None`` deletes it.
        rows: flights to stream.
        sinks: kinds of the sinks that get a query of their own, in the order of ``targets.KINDS``.
        several: one query into several sinks, too.
        kills: SIGKILLs for each variant of the job.
        seed: of the kills.
        variants: ``plain`` and ``onceonly``, or only the latter, of the queries into one sink.
    """

    output: str
    keep: Path | None
    rows: int
    sinks: tuple[str, ...]
    several: bool
    kills: int
    seed: int
    variants: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind of sink that is written to."""
        return frozenset(self.sinks + (TOGETHER if self.several else ()))
