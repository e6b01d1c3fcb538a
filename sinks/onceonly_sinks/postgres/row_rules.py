"""Derive a Postgres table's constraints on batch values as rules.

They are the refusals of the lanes and of the server. Left to the server: CHECK, foreign and unique keys, valid JSON,
the calendar's ends. It then refuses a row. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onceonly.protocol.row_rules import (
    Between,
    Bytes,
    Characters,
    Demand,
    Digits,
    NotNull,
    OneOf,
    PlainText,
    Rule,
    Ticks,
    Uuid,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly_sinks.postgres.lanes import ColumnEncoder
    from onceonly_sinks.postgres.type_mapping import TypeMapping
    from onceonly_sinks.postgres.upsert import Merge


def of(plan: TypeMapping, batch: pa.Schema, merge: Merge) -> tuple[Rule, ...]:
    """The rules for a batch with these columns and its plan."""
    asked = {*merge.key, merge.sequence, merge.delete} if merge.key else set[str | None]()
    rules: list[Rule] = []
    for field, lane in zip(batch, plan.lanes, strict=True):
        if field.nullable and (lane.required or lane.target in asked):
            rules.append(Rule(field.name, NotNull()))
        column = plan.table.by_name.get(lane.target)
        labels = tuple(column.labels) if column else ()
        came, goes, each = _types(field.type, lane.arrow)
        rules += [Rule(field.name, demand, each) for demand in _demands(lane, came, goes, labels)]
    return tuple(rules)


def _types(came: Any, goes: Any) -> tuple[Any, Any, bool]:
    """Types of the values before and in the table, and whether they are elements of arrays."""
    from pyarrow import types

    return (came.value_type, goes.value_type, True) if types.is_list(goes) else (came, goes, False)


def _demands(lane: ColumnEncoder, came: Any, goes: Any, labels: tuple[str, ...]) -> Iterator[Demand]:
    from pyarrow import types

    if lane.how in ("text", "texts"):
        yield PlainText()
    if lane.length is not None:
        yield Characters(lane.length)
    if labels:
        yield OneOf(labels)
    if lane.how == "uuid":
        yield Uuid()
    elif types.is_fixed_size_binary(goes) and not types.is_fixed_size_binary(came):
        yield Bytes(goes.byte_width)
    if types.is_decimal(goes):
        yield from _digits(came, goes)
    elif types.is_integer(goes) and goes.bit_width < came.bit_width:
        yield Between(-(2 ** (goes.bit_width - 1)), 2 ** (goes.bit_width - 1) - 1)
    if lane.unit > 1:
        yield Ticks(lane.unit)


def _digits(came: Any, goes: Any) -> Iterator[Demand]:
    from pyarrow import types

    precision, scale = _INTEGERS.get(came.bit_width, 19), 0
    if types.is_decimal(came):
        precision, scale = came.precision, came.scale
    if goes.scale < scale or goes.precision - goes.scale < precision - scale:
        yield Digits(goes.precision, goes.scale)


_INTEGERS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Digits of the largest whole number, by bits."""
