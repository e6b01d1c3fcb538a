"""Batch with several outputs, without Spark.

Its rows are wide, as the runtime stages them. Each sink gets its share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest, column_of
from onceonly_lab.history import Part
from onceonly_lab.model.division import Division
from onceonly_lab.model.parts import PICKED

if TYPE_CHECKING:
    import pyarrow as pa

Wants = Callable[[str], bool]
"""Whether a row is for an output, by its identity."""


def record_of(identity: str) -> int:
    """The record that a row is of."""
    return int(identity.partition(".")[0])


class DividedTable(ArrowBatch):
    """Rows with outputs. A bad row is in output ``bad`` alone, and an output has the columns of the rows.

    Args:
        table: all rows.
        division: what the call makes of them.

    Attributes:
        narrow: all rows, without the columns of outputs.
        division: what the call makes of them.
    """

    def __init__(self, table: pa.Table, division: Division) -> None:
        self.narrow = table
        self.division = division
        wide = table
        for name, wants in self._wanted().items():
            wide = wide.append_column(column_of(name), _structure(table, wants))
        super().__init__(wide)

    @property
    def records(self) -> list[int]:
        """The record that each row is of."""
        return [record_of(row["id"]) for row in self.narrow.to_pylist()]

    def digest(self) -> Digest:
        """Of all good rows."""
        return self._of(lambda identity: not self._bad(identity))

    def outputs(self) -> tuple[OutputDigest, ...]:
        """What some sinks get instead, each number counted by itself."""
        good, division = self.digest().rows, self.division
        sinks = {PICKED: division.pickers, BAD: (division.quarantine,)}
        outputs: list[OutputDigest] = []
        for name, wants in self._wanted().items():
            digest, unwanted = self._of(wants), self._unwanted(wants)
            reasons = (("expected", digest.rows),) if name == BAD and digest.rows else ()
            outputs.append(
                OutputDigest(name, sinks[name], "columns", digest, good if name == BAD else unwanted, reasons)
            )
        return tuple(outputs)

    def _bad(self, identity: str) -> bool:
        return bool(self.division.quarantine) and bool(self.division.bad >> record_of(identity) & 1)

    def _picked(self, identity: str) -> bool:
        return not self._bad(identity) and bool(self.division.wanted >> record_of(identity) & 1)

    def _wanted(self) -> dict[str, Wants]:
        picked: dict[str, Wants] = {PICKED: self._picked} if self.division.pickers else {}
        return picked | ({BAD: self._bad} if self.division.quarantine else {})

    def _unwanted(self, wants: Wants) -> int:
        return sum(not wants(row["id"]) and not self._bad(row["id"]) for row in self.narrow.to_pylist())

    def _of(self, wants: Wants) -> Digest:
        import pyarrow as pa

        mask = pa.array([wants(row["id"]) for row in self.narrow.to_pylist()], pa.bool_())
        return ArrowBatch(self.narrow.filter(mask)).digest()


def parts_of(identities: tuple[str, ...], division: Division) -> tuple[Part, ...] | None:
    """The same of rows by name, as a history tells it; ``None`` where all sinks get all rows."""
    bad = {identity for identity in identities if division.quarantine and division.bad >> record_of(identity) & 1}
    picked_ids = {identity for identity in identities if division.wanted >> record_of(identity) & 1} - bad
    picked = (Part(PICKED, tuple(sorted(picked_ids))),) if division.pickers else ()
    aside = (Part(BAD, tuple(sorted(bad))),) if division.quarantine else ()
    return (*picked, *aside) or None


def _structure(table: pa.Table, wants: Wants) -> Any:
    """The rows that are wanted as structures, and nulls for all others."""
    import pyarrow as pa

    rows = [row if wants(row["id"]) else None for row in table.to_pylist()]
    return pa.array(rows, pa.struct(list(table.schema)))
