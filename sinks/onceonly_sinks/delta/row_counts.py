"""Count each epoch's rows from the Delta log.

The log names the files of every commit with their row counts. Other writers compact, delete, overwrite and restore.
Following the files through these shows the rows of an epoch that remain, without reading one. If a file mixed rows of
several epochs and some were deleted, the log cannot tell whose they were. Then the count cannot either. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceonly.protocol.values import RowTotals
from onceonly_sinks.delta import ladder
from onceonly_sinks.delta.ladder import ChangeEffect
from onceonly_sinks.delta.log import LogEntry

_OTHERS = -1
"""Owner of rows that no epoch brought."""

_FORGOTTEN = 0
"""Owner of rows whose commit was cleaned away from the log."""


class CannotTell(Exception):
    """The log does not show how many rows of an epoch remain."""


@dataclass(frozen=True, slots=True)
class File:
    """A data file in an action of the log.

    With another deletion ``vector`` a file holds other rows. ``rows`` are without deleted ones. ``None`` if the action
    has no count. ``changes`` is the action's ``dataChange``.
    """

    path: str
    vector: str
    rows: int | None
    changes: bool

    @property
    def key(self) -> tuple[str, str]:
        """Path and deletion vector: the same file with other rows deleted has another key."""
        return self.path, self.vector


@dataclass(frozen=True, slots=True)
class Change:
    """Files that one version of a table adds and removes."""

    entry: LogEntry
    adds: tuple[File, ...]
    removes: tuple[File, ...]

    @property
    def epoch(self) -> int | None:
        """The epoch that it brought. ``None`` for a fence and for commits of other writers."""
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
    """Files that share their owners. Which row is in which file is unknown."""

    files: dict[Key, int]
    owners: Counter[int]


@dataclass(slots=True)
class _Census:
    """Current files and the owners of their rows."""

    at: dict[Key, _Parcel] = field(default_factory=dict)

    def settle(self, files: Mapping[Key, int], owners: Mapping[int, int]) -> None:
        parcel = _Parcel(dict(files), Counter(dict(owners)))
        for key in files:
            self.at[key] = parcel

    def held(self) -> Counter[int]:
        rows_by_owner: Counter[int] = Counter()
        for parcel in {id(parcel): parcel for parcel in self.at.values()}.values():
            rows_by_owner.update(parcel.owners)
        return rows_by_owner

    def lift(self, keys: Iterable[Key]) -> tuple[list[_Parcel], bool]:
        """Remove the parcels of some files. The flag is true if a file was unknown."""
        file_keys = list(keys)
        parcels = {id(parcel): parcel for key in file_keys if (parcel := self.at.get(key)) is not None}
        unknown = any(key not in self.at for key in file_keys)
        for parcel in parcels.values():
            for key in parcel.files:
                del self.at[key]
        return list(parcels.values()), unknown


@dataclass(frozen=True, slots=True)
class Count:
    """Rows per epoch.

    ``rows`` are current, for every epoch whose commit is in the log. Key 0: rows of other writers. The listed commits
    of other writers took ``removed``.
    """

    rows: Mapping[int, int]
    removed: Mapping[int, int]


def count(changes: Sequence[Change], listed: Collection[int] = (), absent: Collection[str] = ()) -> Count:
    """Count per epoch the current rows, and those that other writers removed.

    ``changes`` are the versions whose commit files still exist, ascending. ``listed`` are versions of other writers
    whose removals are counted. Rows of ``absent`` files, which the log names and that are missing, do not count. Raises
    ``CannotTell`` if an epoch was merged, a file has no row count, or the log hides whose rows were removed.
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
    """Count rows in total, if their owners are unknown. ``None`` if the log is incomplete or a file has no count.

    ``changes`` are as for :func:`count`. ``listed`` are permitted versions of other writers, ``accepted`` those that
    stopped us and that an operator accepted. Rows before ``began``, the version of our first epoch, are from others.
    """
    if not changes or changes[0].entry.version or any(commit.entry.operation == "RESTORE" for commit in changes):
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
    """Map each file to the owner of its rows: an epoch's number, 0 for other writers, ``None`` if unknown or mixed.

    If some rows of an epoch share a file with another epoch, its other files map to ``None``, too. Parameter and error
    are those of :func:`count`.
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
    """Find the newest version with the same files as the table had after a RESTORE.

    Not by the commit's parameters: each writer spells a moment in its own words, and resolves it by its own rule.
    ``changes`` begin with the RESTORE, newest first. ``None`` if the log no longer reaches down to that version.
    """
    apart = Counter[Key]()
    for change in changes:
        apart.update(file.key for file in change.adds)
        apart.subtract(file.key for file in change.removes)
        if not any(apart.values()):
            return change.entry.version - 1
    return None


def _until(changes: Sequence[Change]) -> Sequence[Change]:
    """Changes up to the target of a RESTORE, which is the last change given."""
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
    operation = change.entry.operation
    does = ladder.CHANGE_EFFECTS.get(operation)
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
    gone = set(removed)
    for parcel in census.lift(removed)[0]:
        rest = {key: rows for key, rows in parcel.files.items() if key not in gone}
        if rest:
            census.settle(rest, _shrunk(parcel.owners, sum(rest.values())))


def _merge(census: _Census, removed: Sequence[Key], added: Mapping[Key, int], *, keeps: bool) -> None:
    """Move rows of some files into others: all of them, or those that are left."""
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
