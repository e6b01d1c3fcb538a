"""Rows that a table refuses: rules beforehand, and the search for one.

They are the refusals of the lanes and of the server. Left to the server: CHECK, foreign and unique keys, valid JSON,
the calendar's ends. It then refuses a row. Pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyarrow import types
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from onceonly.errors import OnceOnlyError
from onceonly.protocol import row_rules
from onceonly_checkpoints.epoch import Marker
from onceonly_sinks.postgres import copy, schema, staging, upsert
from onceonly_sinks.postgres.errors import Failure, Refused, read
from onceonly_sinks.postgres.load import PostgresPrepared, Target
from onceonly_sinks.postgres.server import quote
from onceonly_sinks.postgres.transaction import Transactions
from onceonly_sinks.postgres.upsert import Waiting

if TYPE_CHECKING:
    from onceonly_sinks.postgres.lanes import ColumnEncoder
    from onceonly_sinks.postgres.type_mapping import TypeMapping
    from onceonly_sinks.postgres.upsert import Merge


def of(plan: TypeMapping, batch: pa.Schema, merge: Merge) -> tuple[row_rules.Rule, ...]:
    """The rules for a batch with these columns and its plan."""
    required_names = {*merge.key, merge.sequence, merge.delete} if merge.key else set[str | None]()
    rules: list[row_rules.Rule] = []
    for field, lane in zip(batch, plan.lanes, strict=True):
        if field.nullable and (lane.required or lane.target in required_names):
            rules.append(row_rules.Rule(field.name, row_rules.NotNull()))
        column = plan.table.by_name.get(lane.target)
        labels = tuple(column.labels) if column else ()
        came, goes, each = _types(field.type, lane.arrow)
        rules += [row_rules.Rule(field.name, demand, each) for demand in _demands(lane, came, goes, labels)]
    return tuple(rules)


def _types(came: Any, goes: Any) -> tuple[Any, Any, bool]:
    """Types of the values before and in the table, and whether they are elements of arrays."""
    return (came.value_type, goes.value_type, True) if types.is_list(goes) else (came, goes, False)


def _demands(lane: ColumnEncoder, came: Any, goes: Any, labels: tuple[str, ...]) -> Iterator[row_rules.Demand]:
    if lane.how in ("text", "texts"):
        yield row_rules.PlainText()
    if lane.length is not None:
        yield row_rules.Characters(lane.length)
    if labels:
        yield row_rules.OneOf(labels)
    if lane.how == "uuid":
        yield row_rules.Uuid()
    elif types.is_fixed_size_binary(goes) and not types.is_fixed_size_binary(came):
        yield row_rules.Bytes(goes.byte_width)
    if types.is_decimal(goes):
        yield from _digits(came, goes)
    elif types.is_integer(goes) and goes.bit_width < came.bit_width:
        yield row_rules.Between(-(2 ** (goes.bit_width - 1)), 2 ** (goes.bit_width - 1) - 1)
    if lane.unit > 1:
        yield row_rules.Ticks(lane.unit)


def _digits(came: Any, goes: Any) -> Iterator[row_rules.Demand]:
    precision, scale = _INTEGERS.get(came.bit_width, 19), 0
    if types.is_decimal(came):
        precision, scale = came.precision, came.scale
    if goes.scale < scale or goes.precision - goes.scale < precision - scale:
        yield row_rules.Digits(goes.precision, goes.scale)


_INTEGERS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Digits of the largest whole number, by bits."""

# ---- Find the refused row among staged rows by sending parts again.
#
# Nothing of it commits. The server names the constraint, and of an INSERT no row. Only a refused epoch is searched,
# so an accepted one costs nothing. Rows in a failed transaction are gone with it: this is for rows that executors
# staged.

SECONDS = 5.0
"""How long a search may take, and hold locks that others may wait for."""

_LOCK_SECONDS = 1.0

_OFFSET_BITS = 11
"""A page of 32 kB, the largest that a server can be built with, has fewer rows than this many bits count."""

_NEWEST = "onceonly_newest"


@dataclass(frozen=True, slots=True)
class BadRowSearch:
    """Searches the first waiting row that is refused with the same error as all of them.

    ``connection`` is to be rolled back. ``waiting`` has all rows, or the newest of each key, and ``insert`` takes a
    part of it. ``until`` is a deadline by the monotonic clock.
    """

    connection: Connection
    failure: Failure
    rows: PostgresPrepared
    waiting: Waiting
    insert: Callable[[Waiting], object]
    until: float

    def first(self) -> int | None:
        """Bisect for the row's position. Accepted rows stay, so that each row meets those before it.

        Raises ``DBAPIError`` if a part is refused in another way, or the time is over.
        """
        has_bad_row, low, high = False, 0, self._pages() << _OFFSET_BITS
        while high - low > 1:
            middle = (low + high) // 2
            if self._refused(low, middle):
                has_bad_row, high = True, middle
            else:
                low = middle
        return low if has_bad_row else None

    def _pages(self) -> int:
        query = "SELECT pg_catalog.pg_relation_size(%(name)s::regclass) / current_setting('block_size')::int"
        name = self.waiting.relation.replace("%%", "%")
        return int(self.connection.exec_driver_sql(query, {"name": name}).scalar_one())

    def _refused(self, low: int, high: int) -> bool:
        _limit(self.connection, self.until)
        try:
            with self.connection.begin_nested():
                self.insert(self._part(low, high))
        except DBAPIError as error:
            failure = read(error)
            if failure is None or (failure.state, failure.constraint) != (self.failure.state, self.failure.constraint):
                raise
            return True
        return False

    def _part(self, low: int, high: int) -> Waiting:
        # From Postgres 14 on a range of positions reads its own pages only; 13 reads the table each time.
        within = f"{self.waiting.winners} AND s.ctid >= %(low)s::tid AND s.ctid < %(high)s::tid"
        return replace(
            self.waiting, winners=within, parameters={**self.waiting.parameters, "low": _tid(low), "high": _tid(high)}
        )

    def described(self, at: int) -> Failure:
        """The failure with place and shape of the row at a position."""
        failure, plan = self.failure, self.rows.plan
        lane = next((lane for lane in plan.lanes if lane.target == failure.column), None)
        value = "NULL"
        if lane is not None and copy.counted(lane.arrow) and lane.how != "uuid":
            value = f"s.{quote(lane.target)}" + ("::text" if lane.how in ("text", "json") else "")
        null = f"s.{quote(lane.target)} IS NULL" if lane else "false"
        kafka_columns = copy.KAFKA if copy.from_kafka(plan.columns, failure.column) else ()
        expressions = [f"s.{staging.PARTITION}", value, null, *(f"s.{quote(name)}" for name in kafka_columns)]
        query = f"SELECT {', '.join(expressions)} FROM {self.waiting.relation} s WHERE s.ctid = %(at)s::tid"
        partition, row_value, is_null, *position = self.connection.exec_driver_sql(query, {"at": _tid(at)}).one()
        shape = copy.shape(row_value) if is_null or row_value is not None else ""
        location = copy.describe_row(self._line(at), staging.spoken(partition), position)
        return replace(failure, row_text=location, shape=shape)

    def _line(self, at: int) -> int | None:
        """The row's number, if one task alone has written: parallel tasks fill a table in no order."""
        if self.waiting is not self.rows.waiting or len(self.waiting.parameters["partitions"]) > 1:
            return None
        return upsert.count(self.connection, self._part(0, at + 1))


def find_bad_row(
    transactions: Transactions, target: Target, rows: PostgresPrepared | None, marker: Marker, error: DBAPIError
) -> Refused | None:
    """The refusal of an epoch, with place and shape of the refused row, or ``None`` if they cannot be found.

    The search begins a transaction of its own in ``transactions``: the failed one is over.
    """
    failure = read(error)
    if failure is None or not failure.quotes or target.apply is not None:
        return None
    if rows is None or rows.waiting is None or rows.connection is not None:
        return None
    with suppress(SQLAlchemyError, psycopg.Error, OnceOnlyError):
        connection = transactions.begin(target.writer.session(marker.fence), _LOCK_SECONDS)
        try:
            return _searched(connection, target, rows, marker.epoch.number, failure)
        finally:
            transactions.drop(connection)
    return None


def _searched(
    connection: Connection, target: Target, rows: PostgresPrepared, epoch: int, failure: Failure
) -> Refused | None:
    assert rows.waiting is not None
    waiting, merge = rows.waiting, target.merge
    until = time.monotonic() + SECONDS
    _limit(connection, until)
    if failure.constraint:
        columns, definition, inward = schema.constraint(connection, failure.table, failure.constraint)
        # A row may point at one that comes after it: parts of the batch would be refused where all of it is not.
        if inward:
            return None
        failure = replace(failure, column=failure.column or columns, definition=definition)
    table = target.lock_table(connection, rows.plan)
    upsert.remove(connection, table, waiting, merge)
    if merge.sequence:
        waiting = _newest_of(connection, waiting, merge)

    def insert(part: Waiting) -> int:
        return upsert.insert(connection, table, part, merge, epoch)

    search = BadRowSearch(connection, failure, rows, waiting, insert, until)
    at = search.first()
    return None if at is None else Refused(search.described(at))


def _newest_of(connection: Connection, waiting: Waiting, merge: upsert.Merge) -> Waiting:
    """Copy the newest rows. A part of all rows would hold changes that a newer one outside of it replaces."""
    rows = upsert.newest(waiting, merge)
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {_NEWEST} ON COMMIT DROP AS {rows}", dict(waiting.parameters))
    return Waiting(f"pg_temp.{_NEWEST}", "true", {}, waiting.columns)


def _limit(connection: Connection, until: float) -> None:
    left = max(1, int((until - time.monotonic()) * 1000))
    connection.exec_driver_sql("SELECT set_config('statement_timeout', %(left)s, true)", {"left": f"{left}ms"})


def _tid(at: int) -> str:
    return f"({at >> _OFFSET_BITS},{at & ((1 << _OFFSET_BITS) - 1)})"
