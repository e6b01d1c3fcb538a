"""What the user asked the demo for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """The demo's options, checked.

    Attributes:
        output: ``table`` or ``json``.
        keep: folder that keeps everything; ``None`` deletes it.
        rows: flights to stream.
        sinks: kinds, in the order of ``targets.KINDS``.
        kills: SIGKILLs for each variant of the job.
        seed: of the kills.
        variants: ``plain`` and ``onceonly``, or only the latter.
    """

    output: str
    keep: Path | None
    rows: int
    sinks: tuple[str, ...]
    kills: int
    seed: int
    variants: tuple[str, ...]
