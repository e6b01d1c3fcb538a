"""What rows are, without the rows: their number and a fingerprint, of a whole epoch and of what some sinks hold of it.

Values in the one form of ``model``, as those of ``epoch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.model import canonical, known, present

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Digest:
    """Row count and an order-free fingerprint of the rows.

    The fingerprint is the sum of a 64-bit row hash, kept as the sums of its high and low 32-bit halves: addition sees a
    doubled pair, which XOR does not, and halves cannot overflow a 64-bit sum below 2**31 rows.

    ``left_out`` names the columns that it does not see, sorted: those that another order of the same rows may change.
    """

    rows: int
    high: int = 0
    low: int = 0
    left_out: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "rows", "high", "low", "left_out")
        return cls(value["rows"], value["high"], value["low"], tuple(value.get("left_out", ())))

    def to_json(self) -> dict[str, Any]:
        """Field names to values; ``left_out`` only where there is any."""
        left_out = {"left_out": list(self.left_out)} if self.left_out else {}
        return {"rows": self.rows, "high": self.high, "low": self.low, **left_out}

    def __add__(self, other: Digest) -> Digest:
        """Digest of both sets of rows."""
        left_out = tuple(sorted({*self.left_out, *other.left_out}))
        return Digest(self.rows + other.rows, self.high + other.high, self.low + other.low, left_out)

    @property
    def text(self) -> str:
        """Spelling for people and for the ledger's column."""
        left_out = f":{canonical(list(self.left_out))}" if self.left_out else ""
        return f"{self.rows}:{self.high}:{self.low}{left_out}"


@dataclass(frozen=True, slots=True)
class Output:
    """What some sinks of an epoch hold instead of all of its rows: columns of their own, of the rows that it wants.

    A row is in it once or not at all, so ``digest.rows`` and ``filtered`` are together the rows of the epoch.

    Attributes:
        name: the user's name for it, unique in the epoch.
        sinks: ids of the sinks that hold it.
        schema: fingerprint of its columns.
        digest: of its rows, as those sinks hold them.
        filtered: rows of the epoch that it does not want.
    """

    name: str
    sinks: tuple[str, ...]
    schema: str
    digest: Digest
    filtered: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "name", "sinks", "schema", "digest", "filtered")
        digest = Digest.from_json(value["digest"])
        return cls(value["name"], tuple(value["sinks"]), value["schema"], digest, value.get("filtered", 0))

    def to_json(self) -> dict[str, Any]:
        """Field names to values; ``filtered`` only where rows were."""
        return present(
            name=self.name,
            sinks=list(self.sinks),
            schema=self.schema,
            digest=self.digest.to_json(),
            filtered=self.filtered or None,
        )
