"""What a table demands of the values of its columns, looked at wherever the rows are. Picklable; needs only pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly_sinks.delta import lengths
from onceonly_sinks.delta.lengths import Limit

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly_sinks.delta.columns import Column

NULL = "null in a NOT NULL column"

_REMEDIES = {NULL: "filter or fill it before the sink"}
_SHORTEN = "mend such rows before the sink, e.g. with before="


@dataclass(frozen=True, slots=True)
class Demands:
    """What values must be.

    Attributes:
        required: columns that may not be null.
        limits: columns with CHAR or VARCHAR somewhere in them.
    """

    required: tuple[str, ...] = ()
    limits: tuple[tuple[str, Limit], ...] = ()

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Demands:
        """What a table's columns demand.

        Raises:
            lengths.Unread: a CHAR or VARCHAR is spelled in an unknown way.
        """
        required = tuple(column.name for column in columns if not column.nullable)
        return cls(required, lengths.limits({column.name: column.metadata for column in columns}))

    @property
    def read(self) -> tuple[str, ...]:
        """Columns whose values themselves have to be looked at."""
        return tuple(name for name, _ in self.limits)

    def broken(self, rows: pa.Table) -> tuple[str, str] | None:
        """The first column that breaks one, and how, without a value; columns that the rows lack break none."""
        there = set(rows.column_names)
        for name in self.required:
            if name in there and rows.column(name).null_count:
                return name, NULL
        for name, limit in self.limits:
            if name in there and (told := lengths.too_long(rows.column(name), limit)):
                return name, told
        return None


def refusal(sink: str, column: str, reason: str) -> OnceOnlyError:
    """The refusal of a value that a column cannot hold."""
    return refuse("E503", sink=sink, column=column, reason=reason, next=_REMEDIES.get(reason, _SHORTEN))
