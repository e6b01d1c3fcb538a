"""How rows of an epoch meet those of a memory store: rules over keys, their order and removal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlencode

from onceonly.errors import refuse

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Merge:
    """How rows enter the table: added, or replacing rows of the same key.

    Attributes:
        key: columns that identify a row; empty for an append.
        sequence: column that orders the changes of a key; without, a later epoch wins.
        delete: boolean column of the batch; a row with true removes its key. It is not kept.
    """

    key: tuple[str, ...] = ()
    sequence: str | None = None
    delete: str | None = None

    def kept(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a batch that the table keeps."""
        return schema if self.delete is None else schema.remove(schema.get_field_index(self.delete))

    @property
    def query(self) -> str:
        """The same in the form of an address's query; empty for an append."""
        said = [*(("key", name) for name in self.key), ("sequence", self.sequence), ("delete", self.delete)]
        return urlencode([(name, value) for name, value in said if value])

    @classmethod
    def parse(cls, query: str) -> Self:
        """Read what :attr:`query` says."""
        said = parse_qs(query)
        return cls(tuple(said.get("key", [])), said.get("sequence", [None])[0], said.get("delete", [None])[0])

    def check(self) -> None:
        """Refuse columns that do not go together.

        Raises:
            ConfigurationError: E110.
        """
        names = [*self.key, *(name for name in (self.sequence, self.delete) if name is not None)]
        if (names and not self.key) or len(set(names)) < len(names) or not all(names):
            said = f"key={self.key!r}, sequence={self.sequence!r}, delete={self.delete!r}"
            raise refuse(
                "E110",
                problem=f"MemorySink cannot work with {said}.",
                cause="sequence= and delete= belong to a key, and each names another column",
                next="MemorySink(key=['id'], sequence='at', delete='gone')",
            )

    def check_columns(self, sink: str, schema: pa.Schema) -> None:
        """Refuse a batch without a boolean column to delete by.

        Raises:
            DestinationError: E506.
        """
        if self.delete is None:
            return
        index = schema.get_field_index(self.delete)
        kind = str(schema.field(index).type) if index >= 0 else "not there"
        if kind != "bool":
            difference = f"column {self.delete}, which delete= names, is {kind} in the batch; it must be boolean"
            raise refuse("E506", sink=sink, difference=difference, next="name a boolean column of the batch")


def upserted(table: pa.Table, rows: pa.Table, merge: Merge) -> pa.Table:
    """The table once the rows, one per key, have met it."""
    import pyarrow as pa

    merged = {_key(row, merge): row for row in table.to_pylist()}
    for row in rows.to_pylist():
        key = _key(row, merge)
        standing = merged.get(key)
        if standing is not None and merge.sequence is not None and not _newer(row, standing, merge.sequence):
            continue
        if merge.delete and row.pop(merge.delete):
            merged.pop(key, None)
        else:
            merged[key] = row
    return pa.Table.from_pylist(list(merged.values()), schema=merge.kept(rows.schema))


def _key(row: Row, merge: Merge) -> tuple[Any, ...]:
    return tuple(row[column] for column in merge.key)


def _newer(row: Row, standing: Row, sequence: str) -> bool:
    """Whether a row replaces one that stands; a null that somebody else left is replaced by anything."""
    return standing[sequence] is None or row[sequence] > standing[sequence]


def one_per_key(sink: str, table: pa.Table, merge: Merge) -> pa.Table:
    """Keep the newest row of each key.

    Raises:
        DestinationError: E503, a sequence or the delete column is null; E504, a key is; E505, which row of a key is
            newest is open.
    """
    import pyarrow as pa

    rows: list[Row] = table.to_pylist()
    _no_nulls(sink, rows, merge)
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_key.setdefault(_key(row, merge), []).append(row)
    newest = [_newest(sink, key, changes, merge) for key, changes in by_key.items()]
    return pa.Table.from_pylist(newest, schema=table.schema)


def _no_nulls(sink: str, rows: list[Row], merge: Merge) -> None:
    if nulls := sum(None in _key(row, merge) for row in rows):
        raise refuse("E504", sink=sink, key=", ".join(merge.key), count=nulls)
    uses = {merge.sequence: "sequence= orders the changes of a row by it", merge.delete: "delete= asks it what to do"}
    for column, use in uses.items():
        if column and (nulls := sum(row[column] is None for row in rows)):
            reason = f"{nulls} nulls, and {use}"
            raise refuse("E503", sink=sink, column=column, reason=reason, next=f"fill {column}, e.g. with before=")


def _newest(sink: str, key: tuple[Any, ...], changes: list[Row], merge: Merge) -> Row:
    """The newest change of a key. Changes equal in every column are one that was told twice."""
    if merge.sequence is None:
        newest = changes
    else:
        highest = max(row[merge.sequence] for row in changes)
        newest = [row for row in changes if row[merge.sequence] == highest]
    if len(newest) > 1 and (merge.sequence is None or any(row != newest[0] for row in newest)):
        raise refuse("E505", sink=sink, key=", ".join(merge.key), example=key, next=_ORDER_THEM)
    return newest[0]


_ORDER_THEM = "name a column that orders the changes of a row: sequence=...; or keep one row per key with before="
