"""Count each epoch's remaining rows from the Delta log. Pure.

The log names the files of every commit with their rows. Following the files through what others did (compaction,
deletes, overwrites, restores) tells how many rows of an epoch still stand, without reading one of them. Where rows of
several epochs were mixed in a file and then some deleted, the log cannot tell whose they were, nor can the census.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceonly.protocol import RowTotals
from onceonly_sinks.delta import ladder
from onceonly_sinks.delta.ladder import ChangeEffect
from onceonly_sinks.delta.log import LogEntry

_OTHERS = -1
"""Owner of rows that no epoch brought."""

_FORGOTTEN = 0
"""Owner of rows whose commit was cleaned away from the log."""


class CannotTell(Exception):
    """The log does not say how many rows of an epoch still stand."""


@dataclass(frozen=True, slots=True)
class File:
    """A data file in an action of the log.

    Attributes:
        path: its name.
        vector: its deletion vector; a file with another one holds other rows.
        rows: rows without deleted ones; ``None`` where the action does not say.
        changes: whether the commit says that data changed.
    """

    path: str
    vector: str
    rows: int | None
    changes: bool

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the same file with other rows deleted."""
        return self.path, self.vector


@dataclass(frozen=True, slots=True)
class Change:
    """One version of a table, as far as its files go.

    Attributes:
        entry: what the commit says of itself.
        adds: files that stand from it on.
        removes: files that stand no more.
    """

    entry: LogEntry
    adds: tuple[File, ...]
    removes: tuple[File, ...]

    @property
    def epoch(self) -> int | None:
        """The epoch that it brought; ``None`` for a fence and for others' commits."""
        note = self.entry.note
        return note.epoch if note and note.brings_epoch else None


def parse(entry: LogEntry, text: str) -> Change:
    """Read the file actions of one commit file."""
    actions = [json.loads(line) for line in text.split("\n") if line.strip()]
    adds = tuple(_file(action["add"]) for action in actions if "add" in action)
    removes = tuple(_file(action["remove"]) for action in actions if "remove" in action)
    return Change(entry, adds, removes)


def _file(action: Mapping[str, Any]) -> File:
    vector = action.get("deletionVector") or {}
    records = json.loads(action.get("stats") or "{}").get("numRecords")
    rows = None if records is None else int(records) - int(vector.get("cardinality", 0))
    name = f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}{vector.get('offset', '')}"
    return File(action["path"], name, rows, bool(action.get("dataChange", True)))


Key = tuple[str, str]


@dataclass(slots=True)
class _Parcel:
    """Files whose rows belong to their owners together; which row lies in which file is not known."""

    files: dict[Key, int]
    owners: Counter[int]


@dataclass(slots=True)
class _Census:
    """Which files stand, and whose rows they hold."""

    at: dict[Key, _Parcel] = field(default_factory=dict)

    def settle(self, files: Mapping[Key, int], owners: Mapping[int, int]) -> None:
        parcel = _Parcel(dict(files), Counter(dict(owners)))
        for key in files:
            self.at[key] = parcel

    def held(self) -> Counter[int]:
        """Rows per owner."""
        found: Counter[int] = Counter()
        for parcel in {id(parcel): parcel for parcel in self.at.values()}.values():
            found.update(parcel.owners)
        return found

    def lift(self, keys: Iterable[Key]) -> tuple[list[_Parcel], bool]:
        """Take the parcels of some files out; also whether a file was not known."""
        asked = list(keys)
        parcels = {id(parcel): parcel for key in asked if (parcel := self.at.get(key)) is not None}
        unknown = any(key not in self.at for key in asked)
        for parcel in parcels.values():
            for key in parcel.files:
                del self.at[key]
        return list(parcels.values()), unknown


@dataclass(frozen=True, slots=True)
class Count:
    """Rows per epoch.

    Attributes:
        rows: that still stand; every epoch whose commit is in the log is named. Under 0: rows of others.
        removed: that the listed commits of others took away.
    """

    rows: Mapping[int, int]
    removed: Mapping[int, int]


def count(changes: Sequence[Change], listed: Collection[int] = (), absent: Collection[str] = ()) -> Count:
    """Rows per epoch that stand, and that others took away.

    Args:
        changes: the versions whose commit files still exist, ascending.
        listed: versions of others whose removals are asked for.
        absent: files that the log names and that are not there: their rows do not stand.

    Raises:
        CannotTell: an epoch was merged, a file does not say its rows, or the log does not show whose rows were taken.
    """
    census, removed = _replay(changes, listed)
    _shrink_each(census, [key for key in census.at if key[0] in absent])
    counted: Counter[int] = Counter({change.epoch: 0 for change in changes if change.epoch is not None})
    held = census.held()
    counted.update({owner: rows for owner, rows in held.items() if owner > 0})
    counted.update({0: held[_OTHERS]} if held[_OTHERS] else {})
    return Count(dict(counted), {owner: rows for owner, rows in removed.items() if owner > 0 and rows})


def sums(
    changes: Sequence[Change], listed: Collection[int], began: int = 0, accepted: Collection[int] = ()
) -> RowTotals | None:
    """Rows in all, where whose they are is not known; ``None`` where the log does not reach back, or tell of each file.

    Args:
        changes: the versions whose commit files still exist, ascending.
        listed: versions of others that were let pass.
        began: version of our first epoch; what stood before it was brought by others.
        accepted: versions of others that stopped us, and that an operator accepted.
    """
    if not changes or changes[0].entry.version or any(one.entry.operation == "RESTORE" for one in changes):
        return None
    files: dict[Key, int | None] = {}
    removed = added = given_up = 0
    for change in changes:
        version = change.entry.version
        gone = [files.pop(file.key, None) for file in change.removes]
        come = [file.rows for file in change.adds]
        files.update({file.key: file.rows for file in change.adds})
        if not (version < began or version in listed or version in accepted) or not (gone or come):
            continue
        if None in gone or None in come:
            return None
        more = sum(rows or 0 for rows in come) - sum(rows or 0 for rows in gone)
        if version < began:
            added += more
        elif version in accepted:
            given_up -= more
        else:
            removed, added = removed + max(-more, 0), added + max(more, 0)
    if None in files.values():
        return None
    return RowTotals(sum(rows or 0 for rows in files.values()), removed, added, given_up)


def owners(changes: Sequence[Change]) -> Mapping[str, int | None]:
    """Whose rows each file holds: an epoch's number; 0: others'; ``None``: not known, or several epochs'.

    Where some rows of an epoch lie in a file with those of another, ``None`` stands for its other files, too.

    Args:
        changes: the versions whose commit files still exist, ascending.

    Raises:
        CannotTell: as for :func:`count`.
    """
    census, _ = _replay(changes)
    holding = {key: [owner for owner, rows in parcel.owners.items() if rows] for key, parcel in census.at.items()}
    mixed = {owner for owners in holding.values() for owner in owners if len(owners) > 1}
    return {path: _owner(owners, mixed) for (path, _), owners in holding.items()}


def _owner(owners: Sequence[int], mixed: Collection[int]) -> int | None:
    if len(owners) != 1 or owners[0] in mixed or owners[0] == _FORGOTTEN:
        return None
    return max(owners[0], 0)


def _replay(changes: Sequence[Change], listed: Collection[int] = ()) -> tuple[_Census, Counter[int]]:
    census, removed = _Census(), Counter[int]()
    for index, change in enumerate(changes):
        if change.entry.operation == "RESTORE":
            census, removed = _replay(_until(changes[: index + 1]), listed)
            continue
        before = census.held() if change.entry.version in listed and change.removes else None
        _apply(census, change)
        if before is not None:
            removed += before - census.held()
    return census, removed


def restored_to(changes: Iterable[Change]) -> int | None:
    """The newest version that held the files that stand after a RESTORE.

    Not by what the commit says: whoever restores to a moment leaves it in words of his own, and each writer has a rule
    of its own for the version that this moment meant.

    Args:
        changes: that of the RESTORE, and those below it, newest first.

    Returns:
        ``None`` where the log no longer reaches down to that version.
    """
    apart = Counter[Key]()
    for change in changes:
        apart.update(file.key for file in change.adds)
        apart.subtract(file.key for file in change.removes)
        if not any(apart.values()):
            return change.entry.version - 1
    return None


def _until(changes: Sequence[Change]) -> Sequence[Change]:
    """What brought the files that stand after a RESTORE, which is the last of these changes."""
    target = restored_to(reversed(changes))
    if target is None or target < changes[0].entry.version:
        raise CannotTell("a RESTORE went back to a version that the log no longer holds")
    return [change for change in changes if change.entry.version <= target]


def _apply(census: _Census, change: Change) -> None:
    added = {file.key: _rows(file) for file in change.adds}
    epoch = change.epoch
    if epoch is not None:
        if change.entry.note and change.entry.note.mode == "merge":
            raise CannotTell("an epoch was merged")
        if change.removes:
            _shrink_each(census, [file.key for file in change.removes])
        for key, rows in added.items():
            census.settle({key: rows}, {epoch: rows})
        return
    # A file that comes back with other rows deleted is its own successor, whatever else the commit did.
    by_path = {file.path: file for file in change.adds}
    successors = [(old, by_path[old.path]) for old in change.removes if old.path in by_path]
    for old, new in successors:
        _rewrite(census, [old.key], {new.key: added.pop(new.key)}, change)
    renewed = {old.key for old, _ in successors}
    removed = [file.key for file in change.removes if file.key not in renewed]
    if removed:
        _rewrite(census, removed, added, change)
    else:
        _settle_others(census, added)


def _rows(file: File) -> int:
    if file.rows is None:
        raise CannotTell(f"{file.path} does not say how many rows it holds")
    return file.rows


def _settle_others(census: _Census, added: Mapping[Key, int]) -> None:
    for key, rows in added.items():
        census.settle({key: rows}, {_OTHERS: rows})


def _rewrite(census: _Census, removed: Sequence[Key], added: Mapping[Key, int], change: Change) -> None:
    """Files were taken away, others came: move the rows from parcel to parcel."""
    operation = change.entry.operation
    does = ladder.way(operation)
    unchanged = not any(file.changes for file in (*change.adds, *change.removes))
    keeps = unchanged or does in (ChangeEffect.UPDATES, ChangeEffect.REWRITES)
    if not keeps and does is ChangeEffect.REPLACES and not change.entry.parameters.get("predicate"):
        _shrink_each(census, removed)
        _settle_others(census, added)
    elif not keeps and not added:
        _shrink_each(census, removed)
    elif keeps or does is ChangeEffect.DELETES:
        _merge(census, removed, added, keeps=keeps)
    else:
        raise CannotTell(f"{operation or 'an unnamed operation'} took rows away and brought others")


def _shrink_each(census: _Census, removed: Sequence[Key]) -> None:
    """Files are gone with all their rows."""
    gone = set(removed)
    for parcel in census.lift(removed)[0]:
        rest = {key: rows for key, rows in parcel.files.items() if key not in gone}
        if rest:
            census.settle(rest, _shrunk(parcel.owners, sum(rest.values())))


def _merge(census: _Census, removed: Sequence[Key], added: Mapping[Key, int], *, keeps: bool) -> None:
    """Rows of some files lie in others now; all of them, or those that are left."""
    gone = set(removed)
    parcels, unknown = census.lift(removed)
    files = {key: rows for parcel in parcels for key, rows in parcel.files.items() if key not in gone} | dict(added)
    owners: Counter[int] = Counter()
    for parcel in parcels:
        owners.update(parcel.owners)
    if unknown:
        owners[_FORGOTTEN] += max(0, sum(files.values()) - sum(owners.values()))
    census.settle(files, owners if keeps else _shrunk(owners, sum(files.values()), mixed=unknown))


def _shrunk(owners: Counter[int], left: int, *, mixed: bool = False) -> Mapping[int, int]:
    if not mixed and sum(owners.values()) == left:
        return owners
    holding = [owner for owner, rows in owners.items() if rows]
    if left == 0:
        return {}
    if mixed or len(holding) != 1:
        raise CannotTell("rows of several epochs lay in one file when some of them were deleted")
    return {holding[0]: left}
