"""Claims: rows replace one another independently of batch boundaries."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError
from onceonly.protocol import ReadsRows
from onceonly.protocol.capabilities import CHANGED, SIGN, NotVersioned
from onceonly.protocol.values import Changes
from onceonly_lab.conformance.harness import NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import Scenario, expect

if TYPE_CHECKING:
    import pyarrow as pa

Change = tuple[int, str, bool]
"""Sequence, note, and whether it removes its key."""

_STORIES: dict[str, tuple[Change, Change, Change]] = {
    "in order": ((1, "a", False), (2, "b", False), (3, "c", False)),
    "late": ((3, "a", False), (1, "b", False), (2, "c", False)),
    "late and newer": ((2, "a", False), (1, "b", False), (3, "c", False)),
    "removed": ((1, "a", False), (2, "b", False), (3, "c", True)),
    "removed late": ((3, "a", False), (1, "b", True), (2, "c", False)),
    "removed and back": ((1, "a", False), (2, "b", True), (3, "c", False)),
    "equal and newer": ((1, "a", False), (1, "b", False), (2, "c", False)),
    "equal": ((1, "a", False), (2, "b", False), (2, "c", False)),
    "equal after a late one": ((2, "a", False), (1, "b", False), (2, "c", False)),
    "removed by an equal one": ((1, "a", False), (2, "b", False), (2, "c", True)),
    "back by an equal one": ((1, "a", False), (2, "b", True), (2, "c", False)),
    "late after a removal": ((1, "a", False), (3, "b", True), (2, "c", False)),
    "one change twice": ((1, "a", False), (2, "b", False), (2, "b", False)),
}
"""Changes of one key, as the source gives them."""

_SINGLE = "one row an epoch"
_CUTS: dict[str, Callable[[list[Change]], list[list[Change]]]] = {
    _SINGLE: lambda rows: [[row] for row in rows],
    "the first two in one epoch": lambda rows: [rows[:2], rows[2:]],
    "the last two in one epoch": lambda rows: [rows[:1], rows[1:]],
    "one epoch": lambda rows: [rows],
}


_NEEDS_MEMORY = "late after a removal"
_SENT_AGAIN = "one change twice"
"""Rows that are equal in every column are one change, and no cut of them is refused."""


def the_cut_of_a_batch_decides_nothing(harness: SinkHarness) -> None:
    """Of changes of a key the newest stands, of equal ones the later, wherever epochs cut them, or a cut is refused."""
    with closing(harness.connect()) as sink:
        changes = sink.capabilities.changes
    if "id" not in changes.key:
        raise NotTested("Rows of the target replace one another by no key that the sink knows of.")
    stories = {name: updates for name, updates in _STORIES.items() if _promised(changes, name, updates)}
    plain = [name for name, updates in stories.items() if len({step for step, *_ in updates}) == len(set(updates))]
    # What is refused of one story is refused of all that share its epochs.
    groups = [plain, *([name] for name in stories if name not in plain)]
    with Scenario(harness) as story:
        player = _Player(story, changes)
        for names, cut in itertools.product(groups, _CUTS):
            actual_rows = player.plays([stories[name] for name in names], cut)
            taken = cut == _SINGLE or (changes.sequence is not None and names is plain)
            expect(actual_rows is not None or not taken, f"{names}, {cut}: refused.")
            for name, actual in zip(names, actual_rows or (), strict=False):
                expected = _left(changes, stories[name])
                expect(
                    actual == expected, f"Of {stories[name]} ({name}), {cut}, stands {actual}; newest is {expected}."
                )


def _promised(changes: Changes, name: str, updates: Iterable[Change]) -> bool:
    if name == _NEEDS_MEMORY and not changes.remembers:
        return False
    if name == _SENT_AGAIN and changes.sequence is None:
        return False
    return changes.delete is not None or not any(gone for *_, gone in updates)


def _left(changes: Changes, updates: Iterable[Change]) -> list[tuple[int, str]]:
    """What stands of a key once its changes have come, one after the other."""
    newest, remaining = 0, list[tuple[int, str]]()
    for step, note, gone in updates:
        if changes.sequence is None or step >= newest:
            newest, remaining = step, [] if gone else [(step, note)]
    return remaining


class _Player:
    """Writes changes to a target, each time under keys of their own."""

    def __init__(self, story: Scenario, changes: Changes) -> None:
        self._changes = changes
        self._rows = story.harness.rows
        self._driver = story.driver()
        self._ids = itertools.count(1)

    def plays(self, stories: list[tuple[Change, ...]], cut: str) -> list[Any] | None:
        """What stands of each story; ``None`` if an epoch was refused, which leaves what stood."""
        ids = [next(self._ids) for _ in stories]
        parts = zip(*(_CUTS[cut](list(updates)) for updates in stories), strict=True)
        stand = self._stand(ids)
        for part in parts:
            rows = [(id_, change) for id_, updates in zip(ids, part, strict=True) for change in updates]
            try:
                self.writes(rows)
            except OnceOnlyError:
                expect(self._stand(ids) == stand, f"An epoch of {part} was refused, and changed {stand}.")
                return None
            stand = self._stand(ids)
        return stand

    def writes(self, rows: list[tuple[int, Change]]) -> None:
        """Write one epoch of changes by key."""
        self._driver.tries(replace(self._driver.plan(rows=len(rows)), table=self._table(rows)))

    def _stand(self, ids: list[int]) -> list[Any]:
        rows = self._rows()
        return [[(row["step"], row["note"]) for row in rows if row["id"] == id_] for id_ in ids]

    def _table(self, rows: list[tuple[int, Change]]) -> pa.Table:
        import pyarrow as pa

        columns: dict[str, pa.Array[Any]] = {
            "id": pa.array([id_ for id_, _ in rows], pa.int64()),
            "step": pa.array([step for _, (step, _, _) in rows], pa.int64()),
            "note": pa.array([note for _, (_, note, _) in rows], pa.string()),
        }
        if delete := self._changes.delete:
            columns[delete] = pa.array([gone for _, (_, _, gone) in rows], pa.bool_())
        return pa.table(columns)


_EPOCHS: tuple[tuple[tuple[int, Change], ...], ...] = (
    ((1, (1, "a", False)), (2, (1, "b", False))),
    ((1, (2, "c", False)), (3, (1, "d", False))),
    ((2, (2, "e", False)), (3, (2, "f", True))),
    ((1, (3, "g", False)), (3, (3, "h", False))),
)
"""Changes of each epoch, by key."""


def signed_changes_add_up_to_the_rows_of_each_epoch(harness: SinkHarness) -> None:
    """Changes that a sink reads back, added to the rows as of an epoch, give the rows as of every later one."""
    with closing(harness.connect()) as sink:
        updates = sink.capabilities.changes
    if "id" not in updates.key:
        raise NotTested("Rows of the target replace one another by no key that the sink knows of.")
    with Scenario(harness) as story:
        player = _Player(story, updates)
        tables = [Counter[Any]()]
        for changes in _EPOCHS:
            player.writes(list(changes))
            tables.append(Counter(map(_image, harness.rows())))
        reader = story.reader()
        if not isinstance(reader, ReadsRows):
            raise NotTested("The sink does not inherit ReadsRows.")
        receipts = [receipt for _, receipt in reader.history()]
        for first, last in itertools.combinations(range(len(tables)), 2):
            since = receipts[first - 1] if first else None
            try:
                changed = reader.read_changes(receipts[last - 1], since).to_pylist()
            except NotVersioned as reason:
                raise NotTested(f"The sink reads no changes back ({reason}).") from reason
            expect(
                all(first < row[CHANGED] <= last for row in changed),
                f"Changes of epochs {first + 1}..{last} are of epochs {sorted({row[CHANGED] for row in changed})}.",
            )
            total = Counter(tables[first])
            for row in changed:
                total[_image(row)] += row[SIGN]
            actual = {image: count for image, count in total.items() if count}
            expected = dict(tables[last])
            expect(
                actual == expected,
                f"Rows as of epoch {first} with the changes up to {last} are {actual}; the table held {expected}.",
            )


def _image(row: Mapping[str, Any]) -> tuple[int, int, str]:
    return row["id"], row["step"], row["note"]


CLAIMS = claims_of(the_cut_of_a_batch_decides_nothing, signed_changes_add_up_to_the_rows_of_each_epoch)
