"""Random batch boundaries for changes of keys.

The table must not depend on them. The shipped rules are played, and each one broken.

The sink is the reference model of the contract, which real sinks are held to by the conformance suite. Rows of an epoch
come in any order, as tasks finish; an epoch that was written may be offered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from onceonly.errors import DestinationError
from onceonly_sinks.memory.store import Merge, one_per_key, upserted

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "X-CUT"
"""What a finding is called."""

MERGE = Merge(("key",), "place", "gone")

KEYS, PLACES, CHANGES = 2, 3, 6

Row = dict[str, Any]
Newest = Callable[["pa.Table"], "pa.Table"]
Meets = Callable[["pa.Table", "pa.Table"], "pa.Table"]


@dataclass(frozen=True, slots=True)
class Design:
    """How rows of an epoch enter a table.

    Attributes:
        id: ``shipped``, or the number of a mutant.
        broken: what is, in words; empty for what ships.
        newest: keeps the newest change of each key of an epoch, or refuses the epoch.
        meets: the table once these have met it.
        skips: whether an epoch that stands is skipped when it is offered again.
    """

    id: str
    broken: str
    newest: Newest
    meets: Meets
    skips: bool = True


def _newest(rows: pa.Table) -> pa.Table:
    return one_per_key("memory:rows", rows, MERGE)


def _meets(table: pa.Table, rows: pa.Table) -> pa.Table:
    return upserted(table, rows, MERGE)


SHIPPED = Design("shipped", "", _newest, _meets)


def _only_greater(table: pa.Table, rows: pa.Table) -> pa.Table:
    existing = {(row["key"], row["place"]) for row in table.to_pylist()}
    return _meets(table, _kept(rows, lambda row: (row["key"], row["place"]) not in existing))


def _last_to_come(rows: pa.Table) -> pa.Table:
    return _of({row["key"]: row for row in sorted(rows.to_pylist(), key=lambda row: row["place"])}.values())


def _last_of_all(rows: pa.Table) -> pa.Table:
    return _of({row["key"]: row for row in rows.to_pylist()}.values())


def _removes_at_once(table: pa.Table, rows: pa.Table) -> pa.Table:
    gone = {row["key"] for row in rows.to_pylist() if row["gone"]}
    return _meets(_kept(table, lambda row: row["key"] not in gone), rows)


MUTANTS = (
    replace(SHIPPED, id="MC1", broken="a change must be greater than the one that stands", meets=_only_greater),
    replace(SHIPPED, id="MC2", broken="of equal ones in an epoch the last to come wins", newest=_last_to_come),
    replace(SHIPPED, id="MC3", broken="the last row of an epoch wins, whatever its sequence", newest=_last_of_all),
    replace(SHIPPED, id="MC4", broken="a removal does not look at the sequence", meets=_removes_at_once),
    replace(SHIPPED, id="MC5", broken="an epoch that stands is written again", skips=False),
)
"""Each must be called X-CUT."""


def play(design: Design, seed: int) -> str:
    """One run; what does not hold in it, empty where all does. An epoch that is refused ends it."""
    chance = Random(seed)
    table, changes, written = _of(()), list[Row](), list[list[Row]]()
    for part in _cut(chance, _changes(chance)):
        replayed_part = chance.choice([*written, []])
        if replayed_part and not design.skips:
            table = design.meets(table, design.newest(_of(replayed_part)))
        chance.shuffle(shuffled := list(part))
        try:
            table = design.meets(table, design.newest(_of(shuffled)))
        except DestinationError:
            return ""
        written.append(part)
        changes += part
        actual = {row["key"]: row["number"] for row in table.to_pylist()}
        if actual != (expected := left(changes)):
            return f"after {len(written)} epochs changes {actual} stand, and one after the other {expected} would"
    return ""


def left(changes: list[Row]) -> dict[int, int]:
    """Numbers of the changes that stand of each key, once all have come one after the other."""
    newest: dict[int, Row] = {}
    for row in changes:
        if row["key"] not in newest or row["place"] >= newest[row["key"]]["place"]:
            newest[row["key"]] = row
    return {key: row["number"] for key, row in newest.items() if not row["gone"]}


def _changes(chance: Random) -> Iterator[Row]:
    """Changes in the order of the source, none older than a removal before it, of which nothing is left to compare."""
    removed: dict[int, int] = {}
    for number in range(CHANGES):
        key = chance.randrange(KEYS)
        sequence, gone = chance.randrange(removed.get(key, 0), PLACES), chance.random() < 0.25
        if gone:
            removed[key] = sequence
        yield {"key": key, "place": sequence, "number": number, "gone": gone}


def _cut(chance: Random, changes: Iterator[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in changes:
        part.append(row)
        if chance.random() < 0.5:
            yield part
            part = []
    if part:
        yield part


def _kept(rows: pa.Table, keeps: Callable[[Row], bool]) -> pa.Table:
    import pyarrow as pa

    return rows.filter(pa.array([keeps(row) for row in rows.to_pylist()], pa.bool_()))


def _of(rows: Any) -> pa.Table:
    import pyarrow as pa

    fields: list[pa.Field[Any]] = [pa.field(name, pa.int64()) for name in ("key", "place", "number")]
    return pa.Table.from_pylist(list(rows), pa.schema([*fields, pa.field("gone", pa.bool_())]))
