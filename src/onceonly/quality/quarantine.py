"""Read a quarantine: reasons of its rows by epoch, and rows."""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from onceonly.errors.options import checks_arguments, misused
from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.capabilities import Span
from onceonly.spark import digest
from onceonly.spark.expression_check import first_line
from onceonly_checkpoints.digests import OutputDigest
from onceonly_checkpoints.epoch import Epoch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was set aside. ``row`` is JSON, or ``None`` if values are not kept. ``hash`` has 64 bits.

    Each reason is an object with ``by`` and ``rule``.
    """

    epoch: int
    reasons: tuple[Mapping[str, str], ...]
    row: str | None
    hash: int | None

    @classmethod
    def of(cls, epoch: int, values: Mapping[str, Any]) -> BadRow | None:
        """Decode a bad row from a sink's columns or record, or return ``None`` if it is neither."""
        try:
            parts = values if "reasons" in values and "hash" in values else _of_record(values["value"])
            reasons, row = parts["reasons"], parts.get("row")
            listed = json.loads(reasons) if isinstance(reasons, str) else reasons
            row_text = row if row is None or isinstance(row, str) else json.dumps(row, ensure_ascii=False)
            return cls(epoch, tuple(listed), row_text, parts["hash"])
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the broken rules."""
        return tuple(dict.fromkeys(reason.get("rule", "") for reason in self.reasons))

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {"epoch": self.epoch, "reasons": list(self.reasons), "row": self.row, "hash": self.hash}


_DECODER = json.JSONDecoder()
_NAME = re.compile(r'[\s{,]*("(?:[^"\\]|\\.)*")\s*:\s*')


def _of_record(value: bytes | str) -> Mapping[str, Any]:
    """Parse a record. An object in it stays text, as a parser rounds a decimal. ``ValueError``: it is no JSON."""
    text = value.decode() if isinstance(value, bytes) else value
    parts: dict[str, Any] = {}
    at = 0
    while name := _NAME.match(text, at):
        decoded, at = _DECODER.raw_decode(text, name.end())
        parts[json.loads(name[1])] = text[name.end() : at] if isinstance(decoded, dict) else decoded
    return parts


def set_aside(epochs: Iterable[Epoch], reason: str | None = None) -> tuple[tuple[Epoch, OutputDigest], ...]:
    """Return the epochs with bad rows, or with rows that broke a given rule, each with its output of bad rows."""
    bad_outputs = ((epoch, epoch.bad) for epoch in epochs)
    return tuple((epoch, bad) for epoch, bad in bad_outputs if bad and count(bad, reason))


def count(bad: OutputDigest, reason: str | None = None) -> int:
    """Count bad rows of an epoch, or those that broke a given rule."""
    return dict(bad.reasons).get(reason, 0) if reason else bad.digest.rows


def in_all(aside: Iterable[tuple[Epoch, OutputDigest]]) -> tuple[int, Mapping[str, int]]:
    """Count bad rows of these epochs, in total and by broken rule, the most frequent first."""
    rows, reasons = 0, Counter[str]()
    for _, bad in aside:
        rows += bad.digest.rows
        reasons.update(dict(bad.reasons))
    return rows, dict(reasons.most_common())


def newest(aside: Sequence[tuple[Epoch, OutputDigest]], limit: int, reason: str | None = None) -> Span | None:
    """Return the fewest newest epochs that, by their markers, hold so many rows."""
    first = last = 0
    for epoch, bad in reversed(aside):
        first, last = epoch.number, last or epoch.number
        limit -= count(bad, reason)
        if limit <= 0:
            break
    return (first, last) if last else None


def rows_of(sink: Sink, span: Span, limit: int, reason: str | None = None) -> tuple[BadRow, ...]:
    """Return the newest rows of these epochs in a quarantine, oldest first.

    The sink is opened. ``span`` is the first and last epoch. At most ``limit`` rows are in memory. With ``reason`` only
    rows that broke that rule.

    Raises:
        ConfigurationError: E110, its rows cannot be read by epoch.
        DestinationError: it does not answer.
    """
    rows = sink.read_by_epoch(span) if isinstance(sink, ReadsRows) else None
    if rows is None:
        raise _unreadable(sink)
    bad_rows = (row for row in _parsed(rows) if not reason or reason in row.rules)
    return tuple(sorted(heapq.nlargest(limit, bad_rows, key=attrgetter("epoch")), key=attrgetter("epoch")))


def _parsed(rows: Iterator[tuple[int, Mapping[str, Any]]]) -> Iterator[BadRow]:
    for epoch, values in rows:
        # What is in another form was put there by somebody else.
        if (row := BadRow.of(epoch, values)) is not None:
            yield row


def _unreadable(sink: Sink) -> Exception:
    able = isinstance(sink, ReadsRows)
    rows = "a topic or table that was created again, shares its numbers with another sink, or mixes epochs in its files"
    return misused(
        f"Rows of {sink.id} cannot be shown by epoch.",
        f"the target does not record the epoch of a row: {rows}" if able else "such a sink is only written",
        f"look at columns reasons and row where they lie: {sink.address}",
    )


# ---- Encode bad rows as text for a quarantine, and decode them.


_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    # An old offset from UTC has seconds, which no offset in a text has.
    "timeZone": "UTC",
}
"""Spark's own formats end at the millisecond."""

_WRITTEN = {**_TIMES, "ignoreNullFields": "false"}
"""Else a column that is null would be one that is not there."""


def bad_row_columns(rows: DataFrame, reasons: Column, *, records: bool, values: bool) -> tuple[Column, ...]:
    """Build the columns of a bad row in its output, as one text with ``records``. ``reasons`` is a JSON list.

    With ``values`` the row's own values are kept.
    """
    from pyspark.sql import functions as f

    row = f.to_json(f.struct("*"), _WRITTEN) if values else None
    hashed = digest.row_hash(rows.schema)
    if not records:
        row_text = f.lit(None).cast("string") if row is None else row
        return reasons.alias("reasons"), row_text.alias("row"), hashed.alias("hash")
    parts = [f.lit('{"reasons":'), reasons, *([] if row is None else [f.lit(',"row":'), row])]
    value = f.concat(*parts, f.lit(',"hash":'), hashed.cast("string"), f.lit("}"))
    return hashed.cast("string").alias("key"), value.alias("value"), reasons.alias("reasons")


@checks_arguments
def bad_rows(rows: DataFrame, schema: str | StructType) -> DataFrame:
    """Decode rows of a quarantine, to write them again after repair.

    The query that writes them has a name and a checkpoint of its own. Its epochs record its offsets in the quarantine,
    so no row comes back twice. Read a topic with ``kafka.isolation.level=read_committed``.

    Args:
        rows: read from a quarantine, as a stream or not: with columns ``reasons``, ``row`` and ``hash``, or ``value``
            of a topic.
        schema: columns and types of the rows when they were quarantined, as DDL or a type of Spark's.

    Returns:
        ``row``, a structure of these columns, ``reasons``, a JSON list, and ``intact``, whether by its hash the row has
        all its values. It is false if ``schema`` is another one, a text was no UTF-8, or ``keep_row=False``.

    Raises:
        ConfigurationError: E110, no such columns, or a type that cannot be read from JSON.

    Example:
        ``bad_rows(bad, "id bigint, amount double").where("intact").select("row.*")``
    """
    from pyspark.sql import functions as f

    if {"reasons", "row", "hash"} <= {*rows.columns}:
        reasons, hashed = f.col("reasons"), f.col("hash")
        text, is_record = f.col("row"), False
    elif "value" in rows.columns:
        parts = f.from_json(f.col("value").cast("string"), "reasons string, hash bigint")
        reasons, hashed = parts.getField("reasons"), parts.getField("hash")
        text, is_record = f.col("value").cast("string"), True
    else:
        raise _unread(f"got columns {', '.join(rows.columns)}.", "these are not those of a quarantine", _COLUMNS)
    try:
        columns = _columns(schema)
        form = _within(columns) if is_record else columns
        read = f.from_json(text, form, _TIMES)
        decoded = rows.select(
            (read.getField("row") if is_record else read).alias("row"), reasons.alias("reasons"), hashed.alias("hash")
        )
        intact = f.coalesce(digest.row_hash(columns, within="row") == f.col("hash"), f.lit(False))
        return decoded.select("row", "reasons", intact.alias("intact"))
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise _unread(f"cannot read rows of {schema!r}.", first_line(error), _AS_TEXT) from error


_COLUMNS = "give the columns that you read from the quarantine: reasons, row and hash of a table, value of a topic"
_AS_TEXT = 'correct the schema; a type that JSON lacks is read as text: bad_rows(df, "at string")'


def _columns(schema: str | StructType) -> StructType:
    from pyspark.sql.types import StructType

    if not isinstance(schema, str):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise TypeError(f"{schema} names no column")
    return parsed


def _within(columns: StructType) -> StructType:
    from pyspark.sql.types import StructType

    return StructType().add("row", columns)


def _unread(problem: str, cause: str, remedy: str) -> Exception:
    return misused(f"bad_rows() {problem}", cause, remedy)
