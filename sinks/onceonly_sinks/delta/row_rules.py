"""Derive a batch's row rules from a Delta table.

Covers NOT NULL, CHAR and VARCHAR, the table's constraints and a merge's key. The committer checks the rest. These are
results of a user's own merge, parts of structures and maps, and rows that may be deletes. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from onceonly.protocol.row_rules import Characters, Condition, NotNull, Rule
from onceonly_sinks.delta.columns import Column, Limit, Unread, constraints, limits
from onceonly_sinks.delta.planning import Settings
from onceonly_sinks.delta.schema_compatibility import paired

_INVARIANT = "delta.invariants"


def of(
    settings: Settings, table: Sequence[Column], configuration: Mapping[str, str], batch: Sequence[Column]
) -> tuple[Rule | Condition, ...]:
    """The rules for a batch with these Delta columns. ``table`` is empty without a table."""
    upsert = settings.upsert
    if settings.merge is not None and not upsert.key:
        return ()
    required_names = [column.name for column in batch if column.name in (*upsert.key, upsert.delete)]
    rules: list[Rule | Condition] = [Rule(name, NotNull()) for name in required_names]
    if upsert.delete is None:
        pairs = paired(table, [column.name for column in batch])
        rules += (column for column in _columns(table, pairs) if column not in rules)
        if _alike(table, batch, pairs):
            rules += _conditions(table, configuration)
    return tuple(rules)


def _columns(table: Sequence[Column], pairs: Mapping[str, str]) -> Iterator[Rule]:
    sources = {target: name for name, target in pairs.items()}
    for column in table:
        if column.name in sources:
            name = sources[column.name]
            if not column.nullable:
                yield Rule(name, NotNull())
            yield from (Rule(name, demand, each) for demand, each in _lengths(column))


def _lengths(column: Column) -> Iterator[tuple[Characters, bool]]:
    try:
        for _, limit in limits({column.name: column.metadata}):
            yield from _characters(limit)
    except Unread:
        return


def _characters(limit: Limit) -> Iterator[tuple[Characters, bool]]:
    name, inner = limit
    if isinstance(inner, int):
        yield Characters(inner), False
    elif name == "array":
        yield from ((Characters(most), True) for _, (_, most) in inner if isinstance(most, int))


def _alike(table: Sequence[Column], batch: Sequence[Column], pairs: Mapping[str, str]) -> bool:
    """Whether a condition means the same for batch and table. One depends on the types of the table's columns."""
    types = {column.name: column.type for column in table}
    return all(types[pairs[column.name]] == column.type for column in batch if column.name in pairs)


def _conditions(table: Sequence[Column], configuration: Mapping[str, str]) -> Iterator[Condition]:
    yield from (Condition(name, sql) for name, sql in constraints(configuration).items())
    for column in table:
        if invariant := column.metadata.get(_INVARIANT):
            yield Condition(f"of {column.name}", json.loads(invariant)["expression"]["expression"])
