"""Check that a batch fits a Delta table's columns.

Covers columns, lengths of texts, and one row per key for a merge. Pure. Executors have pyarrow, and need no deltalake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from onceonly.errors import refuse
from onceonly.spark.frames import stands_for
from onceonly_checkpoints.model import shorten_list
from onceonly_sinks.delta.merge import Upsert

if TYPE_CHECKING:
    from deltalake import Schema

# ---- CHAR(n) and VARCHAR(n): Spark keeps them beside a string column, and only its own writer looks at them. Pure.

METADATA_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""Field of a column's metadata with its type as SQL; of a nested one all of it, and its parts say nothing."""

Limit = tuple[str, int] | tuple[str, tuple["Part", ...]]
Part = tuple[int, "Limit"]
"""Which child of a nested type, and its limit."""

_WORD = re.compile(r"\s*([a-z_]+)\s*(\([^)]*\))?\s*", re.IGNORECASE)
_NAME = re.compile(r"\s*(`(?:[^`]|``)*`|[^:,<>]*)\s*:")


class Unread(ValueError):
    """A type that is not spelled as Spark spells them."""


def parse(text: str) -> Limit | None:
    """Parse the limits in a SQL type. ``None`` if it has none. Raises :class:`Unread`."""
    limit, end = _limit(text, 0)
    if text[end:].strip():
        raise Unread(text)
    return limit


def _limit(text: str, at: int) -> tuple[Limit | None, int]:
    word = _WORD.match(text, at)
    if word is None:
        raise Unread(text)
    name, at = word[1].lower(), word.end()
    if name in ("char", "character", "varchar"):
        return (f"{name}{word[2]}", int((word[2] or "").strip("( )"))), at
    if text[at : at + 1] != "<":
        return None, at
    return _parts(text, at + 1, name)


def _parts(text: str, at: int, outer: str) -> tuple[Limit | None, int]:
    limited_parts: list[Part] = []
    for index in range(len(text)):
        if outer == "struct":
            name = _NAME.match(text, at)
            if name is None:
                raise Unread(text)
            at = name.end()
        limit, at = _limit(text, at)
        if limit is not None:
            limited_parts.append((index, limit))
        sign, at = text[at : at + 1], at + 1
        if sign == ">":
            return (outer, tuple(limited_parts)) if limited_parts else None, at
        if sign != ",":
            break
    raise Unread(text)


def limits(metadata: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, Limit], ...]:
    """Limits of columns, from each column's metadata. Raises :class:`Unread`."""
    texts = (
        (name, column_metadata[METADATA_KEY])
        for name, column_metadata in metadata.items()
        if METADATA_KEY in column_metadata
    )
    return tuple((name, limit) for name, text in texts if (limit := parse(text)) is not None)


def too_long(values: pa.ChunkedArray[Any], limit: Limit) -> str | None:
    """Describe texts of a column beyond their limit, without a value. ``None`` if every text fits."""
    for chunk in values.chunks:
        for texts, (name, most) in _texts(chunk, limit):
            if problem := _length_problem(texts, name, most):
                return problem
    return None


def _texts(values: Any, limit: Limit) -> Iterator[tuple[Any, tuple[str, int]]]:
    name, inner = limit
    if isinstance(inner, int):
        yield values, (name, inner)
        return
    parts = _flat(name, values)
    for index, part in inner:
        yield from _texts(parts[index], part)


def _flat(name: str, values: Any) -> list[Any]:
    """The parts of nested values, without those that a null covers."""
    if name == "struct":
        return list(values.flatten())
    if name == "map":
        # Keys and items are those of the whole buffer, of which this may be a part: a copy holds no others.
        own = values.take(pa.array(range(len(values)), pa.int64()))
        return [own.keys, own.items]
    return [values.flatten()]


def _length_problem(texts: Any, name: str, most: int) -> str | None:
    lengths = pc.utf8_length(texts)
    longest = pc.max(lengths).as_py()
    if longest is None or longest <= most:
        return None
    count = pc.sum(pc.greater(lengths, pa.scalar(most))).as_py()
    return (
        f"{count} {'text is' if count == 1 else 'texts are'} longer than {name}, the longest has {longest} characters"
    )


# ---- Whether a batch fits a table, and the one row per key that a merge needs: rules over Arrow data.

_PLACEHOLDER = "_no_epoch_yet"
_PLACEHOLDER_MARK = {"onceonly": "placeholder"}

_UNREADABLE = ("timestamp_nanos", "timestamp_nanos_ntz", "void")
"""Types that deltalake writes and Spark's Delta does not read."""

_WRITTEN_ALIKE = ("string", "long", "integer", "short", "byte", "date", "boolean", "timestamp_ntz")
"""Types of partition columns whose values deltalake writes as Spark's Delta reads them."""

_EXPRESSION = "delta.generationExpression"
_FILLED = frozenset({_EXPRESSION, "delta.identity.start", "delta.identity.step", "CURRENT_DEFAULT"})
"""Metadata of columns that Delta fills in where they are not given."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, from its log. ``type`` is its Delta type as canonical JSON, without nullability."""

    name: str
    type: str
    nullable: bool
    metadata: dict[str, Any]

    @property
    def generated(self) -> bool:
        """Whether Delta computes it from other columns."""
        return _EXPRESSION in self.metadata

    @property
    def takes_values(self) -> bool:
        """Whether a batch may contain it. False for an identity that is always generated."""
        return self.metadata.get("delta.identity.allowExplicitInsert") in (None, True, "true")

    @property
    def filled(self) -> bool:
        """Whether Delta fills it in if a batch lacks it: a generated column, an identity, or one with a default."""
        return not _FILLED.isdisjoint(self.metadata)


def constraints(properties: Mapping[str, str]) -> dict[str, str]:
    """Constraints in a table's properties, in Spark SQL, by name."""
    prefix = "delta.constraints."
    return {name.removeprefix(prefix): sql for name, sql in sorted(properties.items()) if name.startswith(prefix)}


def placeholder() -> Schema:
    """Schema of a table that was created for its fence, before a batch defined its columns."""
    from deltalake import Field, Schema
    from deltalake.schema import PrimitiveType

    return Schema([Field(_PLACEHOLDER, PrimitiveType("long"), metadata=dict(_PLACEHOLDER_MARK))])


def is_placeholder(columns: Sequence[Column]) -> bool:
    """Whether the table still waits for its first batch."""
    return len(columns) == 1 and columns[0].metadata == _PLACEHOLDER_MARK


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow columns of a Delta schema."""
    # The typed interface of pyarrow does not know that it takes any Arrow schema, deltalake's too.
    return pa.schema(cast("Any", schema.to_arrow()))


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Columns of a Delta schema, in order."""
    fields = json.loads(schema.to_json())["fields"]
    return tuple(
        Column(
            f["name"],
            json.dumps(_without_nullability(f["type"]), sort_keys=True),
            f["nullable"],
            f.get("metadata") or {},
        )
        for f in fields
    )


def _without_nullability(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    attributes = {
        name: inner
        for name, inner in value.items()
        if name not in ("containsNull", "valueContainsNull", "nullable", "metadata")
    }
    if "fields" in attributes:
        attributes["fields"] = [_without_nullability(field) for field in attributes["fields"]]
    return {name: _without_nullability(inner) for name, inner in attributes.items()}


def delta_schema(sink: str, schema: pa.Schema) -> Schema:
    """Delta schema of a batch. Raises E506 for a type that Delta lacks.

    Every column is nullable, since a later batch may have nulls where this one has none.
    """
    _check_names(sink, schema.names)
    nullable = [field.with_nullable(True).remove_metadata() for field in schema]
    _check_types(sink, schema, nullable)

    from deltalake import Schema

    return Schema.from_arrow(pa.schema(nullable))


def _check_names(sink: str, names: Sequence[str]) -> None:
    spellings: dict[str, str] = {}
    for name in names:
        if (other := spellings.setdefault(name.lower(), name)) != name:
            difference = f"{other} and {name} are one name to a Delta table"
            words = {"because": "the query delivers both", "next": "rename one of them with transform="}
            raise refuse("E506", sink=sink, mismatch="cannot tell two columns apart", difference=difference, **words)


def _check_types(sink: str, schema: pa.Schema, nullable: Sequence[pa.Field[Any]]) -> None:
    """Refuse types that Delta lacks, and those that both committers would write as their carrier, as a VARIANT."""
    differences, carried, unknown = list[str](), list[str](), list[str]()
    for field, plain in zip(schema, nullable, strict=True):
        if (kind := stands_for(field)) is not None:
            differences.append(f"column {field.name} is {kind}, which cannot be written as it is")
            carried.append(field.name)
        elif not _is_held(plain):
            differences.append(f"column {field.name} is {field.type}, which a Delta table cannot hold")
            unknown.append(field.name)
    if differences:
        mismatch, cause = "cannot hold a type of the batch", "Delta lacks a type that Spark has"
        plain_columns = f"turn {shorten_list(carried)} into plain columns with transform="
        ways = {plain_columns: carried, f"cast {shorten_list(unknown)} with transform=": unknown}
        details = {"because": cause, "next": "; ".join(way for way, names in ways.items() if names)}
        raise refuse("E506", sink=sink, mismatch=mismatch, difference=shorten_list(differences, 4, "; "), **details)


def _is_held(field: pa.Field[Any]) -> bool:
    from deltalake import Schema

    try:
        held = columns_of(Schema.from_arrow(pa.schema([field])))[0].type
    except Exception:  # noqa: BLE001  deltalake raises a bare Exception for a type it does not know
        return False
    return not any(json.dumps(name) in held for name in _UNREADABLE)


def select(schema: Schema, names: Collection[str]) -> Schema:
    """Select columns of a Delta schema by name."""
    from deltalake import Schema

    return Schema([field for field in schema.fields if field.name in names])


def joined(schema: Schema, other: Schema) -> Schema:
    """Concatenate the columns of two schemas."""
    from deltalake import Schema

    return Schema([*schema.fields, *other.fields])


def written_otherwise(columns: Sequence[Column], partition_by: Sequence[str]) -> str | None:
    """Find a partition column that Spark would read differently than deltalake wrote it, with its type.

    deltalake omits the zone of a timestamp and escapes bytes. It may fail to write decimals and doubles.
    """
    types = {column.name: json.loads(column.type) for column in columns}
    other = next((name for name in partition_by if types.get(name) not in _WRITTEN_ALIKE), None)
    return None if other is None else f"partition column {other} of type {types.get(other)}"


def with_epoch(rows: pa.Table, column: str | None, epoch: int) -> pa.Table:
    """Append the epoch's number as a column. ``None`` adds none."""
    if column is None:
        return rows
    return rows.append_column(pa.field(column, pa.int64()), pa.repeat(pa.scalar(epoch, pa.int64()), rows.num_rows))


def without_empty_texts(rows: pa.Table, partition_by: Sequence[str]) -> pa.Table:
    """Replace empty texts in partition columns by null. The log cannot tell them apart, so no key may."""
    compute: Any = pc
    for name in (column for column in partition_by if column in rows.column_names):
        values: Any = rows.column(name)
        if pa.types.is_string(values.type) and compute.any(compute.equal(values, "")).as_py():
            index = rows.column_names.index(name)
            rows = rows.set_column(
                index, rows.schema.field(index), compute.if_else(compute.equal(values, ""), None, values)
            )
    return rows


def one_per_key(sink: str, rows: pa.Table, upsert: Upsert) -> pa.Table:
    """Keep the newest row of each key. With ``sequence``, rows that are equal in every column count as one change.

    Raises E503 for a null in the ``delete`` column, E504 for a null key, and E505 if the newest row is ambiguous.
    """
    if upsert.delete:
        check_flag(sink, upsert.delete, rows.column(upsert.delete).null_count)
    check_keys(sink, upsert, sum([rows.column(name).null_count for name in upsert.key]), None)
    count = rows.group_by(list(upsert.key)).aggregate([([], "count_all")])
    if count.num_rows == rows.num_rows:
        return rows
    if upsert.sequence is None:
        check_keys(sink, upsert, 0, _example(count, upsert))
        return rows
    return _newest(sink, rows, upsert, upsert.sequence)


def _newest(sink: str, rows: pa.Table, upsert: Upsert, sequence: str) -> pa.Table:
    key = list(upsert.key)
    values = rows.column(sequence)
    # By places, as a maximum of values leaves out NaN, which equals nothing: its key would be gone. A null comes first.
    places = pc.if_else(pc.is_null(values), 0, pc.rank(values, sort_keys="ascending", tiebreaker="dense"))
    numbered = rows.select(key).append_column("#", pa.array(range(rows.num_rows), pa.int64()))
    numbered = numbered.append_column("place", places)
    joined = numbered.join(numbered.group_by(key).aggregate([("place", "max")]), key, join_type="inner")
    joined = joined.filter(pc.equal(joined.column("place"), joined.column("place_max")))
    newest = rows.take(joined.column("#"))
    if newest.group_by(key).aggregate([]).num_rows < newest.num_rows:
        # By text, in which NaN equals itself: Arrow groups by no list, struct or map.
        first = {repr(row): at for at, row in reversed(list(enumerate(newest.to_pylist())))}
        newest = newest.take(sorted(first.values()))
    check_keys(sink, upsert, 0, _example(newest.group_by(key).aggregate([([], "count_all")]), upsert))
    return newest


def _example(counts: pa.Table, upsert: Upsert) -> tuple[Any, ...] | None:
    several = counts.filter(pc.field("count_all") > 1).slice(0, 1).to_pylist()
    return tuple(several[0][name] for name in upsert.key) if several else None


def check_flag(sink: str, column: str, nulls: int) -> None:
    """Refuse (E503) nulls in the column that marks rows as deletes."""
    if nulls:
        reason = f"{nulls} nulls, and delete_flag= asks it what to do"
        details = {"column": column, "reason": reason, "next": f"fill {column}, e.g. with transform="}
        raise refuse("E503", sink=sink, **details, because="the query leaves it null in some rows")


def check_keys(sink: str, upsert: Upsert, nulls: int, example: tuple[Any, ...] | None) -> None:
    """Refuse null keys (E504), and keys without a newest row (E505). ``example`` is such a key."""
    names = ", ".join(upsert.key)
    if nulls:
        raise refuse("E504", sink=sink, key=names, count=nulls)
    if example is not None:
        unordered = "name the column that orders them: sequence=..."
        hint = f"{upsert.sequence} is equal in them" if upsert.sequence else unordered
        raise refuse(
            "E505", sink=sink, key=names, example=example, next=f"{hint}; or keep one row per key with transform="
        )
