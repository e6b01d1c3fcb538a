"""Which way an epoch's rows take to a table: decided before the action from their size, table and settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from onceonly.estimate import schema_width
from onceonly.protocol import Estimate

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_OF_UNKNOWN_WIDTH = 40


class Way(Enum):
    """How rows reach the table."""

    DRIVER = "through the driver, committed by deltalake"
    EXECUTORS = "files written by the executors, committed by deltalake"
    SPARK = "committed by Spark's Delta"


def size_of(estimate: Estimate, schema: pa.Schema) -> int | None:
    """Expected bytes of a batch in Arrow form; ``None`` where nothing is known."""
    if estimate.size is not None or estimate.rows is None:
        return estimate.size
    return estimate.rows * schema_width(schema, _BYTES_OF_UNKNOWN_WIDTH)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the way of an epoch depends on.

    Attributes:
        merge: whether rows replace others.
        size: expected bytes; ``None``: not known.
        limit: what the driver may hold, bytes.
        committer: ``auto``, ``log`` or ``spark``, as the user chose.
        log_refuses: why deltalake cannot commit to the table; ``None``: it can.
        takes_files: whether files may be added without Delta's own writer.
        spark: whether Spark's Delta can be used here.
    """

    merge: bool
    size: int | None
    limit: int
    committer: str
    log_refuses: str | None
    takes_files: bool
    spark: bool

    @property
    def way(self) -> Way:
        """The way; unknown size counts as large."""
        if self.committer == "spark" or self.log_refuses:
            return Way.SPARK
        small = self.size is not None and self.size <= self.limit
        if not small and not self.merge and self.takes_files:
            return Way.EXECUTORS
        if not small and self.committer == "auto" and self.spark:
            return Way.SPARK
        return Way.DRIVER
