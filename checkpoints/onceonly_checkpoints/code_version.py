"""Code version of a batch: the user's name and a plan fingerprint.

It is a note beside epochs, no condition. Fingerprints of two Spark or Python lines are not comparable: plans and
bytecode of the same program differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onceonly_checkpoints.model import ALWAYS, Record
from onceonly_checkpoints.strenum import StrEnum


@dataclass(frozen=True, slots=True)
class PlanFingerprint(Record):
    """Fingerprint of a run's plan and functions.

    Attributes:
        format: version of the way in which plans are spelled and functions are read.
        spark: minor version of Spark, ``4.2``.
        python: minor version of the driver's Python, ``3.11``.
        plan: 16 hex digits over the logical plan.
        functions: 16 hex digits over the Python functions beside it, empty if there are none.
    """

    format: int
    spark: str
    python: str
    plan: str
    functions: str = field(default="", metadata=ALWAYS)

    @property
    def line(self) -> tuple[int, str, str]:
        """Fingerprints are comparable if this is equal."""
        return self.format, self.spark, self.python

    @property
    def text(self) -> str:
        """Name of the fingerprint in one word: ``1-4.2-3.11-0123456789abcdef-fedcba9876543210``."""
        parts = (str(self.format), self.spark, self.python, self.plan, self.functions)
        return "-".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one batch.

    ``version`` is the user's name of it, such as a commit of Git, or empty. ``plan`` is ``None`` if it cannot be seen.
    """

    version: str = ""
    plan: PlanFingerprint | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether version or plan is known."""
        return bool(self.version) or self.plan is not None

    @property
    def text(self) -> str:
        """The code in words: ``version 1f2e3d (plan 1-4.2-3.11-...)``."""
        plan = f"plan {self.plan.text}" if self.plan else ""
        if not self.version:
            return plan or "unknown code"
        return f"version {self.version} ({plan})" if plan else f"version {self.version}"


class Compared(StrEnum):
    """Result of a comparison of two codes."""

    SAME = "same"
    CHANGED = "changed"
    NOT_COMPARABLE = "not comparable"


def compare(before: Code, now: Code) -> Compared:
    """Compare by plan if both have one of the same line, else by version.

    A new version with the same plan is the same code: a mere upgrade of a library deploys a new version too.
    """
    if before.plan and now.plan and before.plan.line == now.plan.line:
        return Compared.SAME if before.plan == now.plan else Compared.CHANGED
    if before.version and now.version:
        return Compared.SAME if before.version == now.version else Compared.CHANGED
    return Compared.NOT_COMPARABLE if before.is_recorded else Compared.SAME


def version_kept(before: Code, now: Code) -> bool:
    """Whether another plan goes by the same version."""
    return compare(before, now) is Compared.CHANGED and before.version == now.version != ""
