"""Read epochs, receipts and row counts from the Delta log.

Also checks that the place is fit for a sink.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from onceonly.doctor import Check, Observed, State, spot
from onceonly.protocol import EPOCH, ExternalChange, ToleratedChanges
from onceonly.protocol.health import spell
from onceonly.spark.digest import quote
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.delta import log as loginspect
from onceonly_sinks.delta import row_counts
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.log import DeltaLog, LogEntry
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.restored_version import restored_to
from onceonly_sinks.delta.table import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


# ---- Whether a place can be written, a table remembers what was written, and who can commit to it. Rules are pure.

_TRANSACTIONS = "delta.setTransactionRetentionDuration"
_LOG = "delta.logRetentionDuration"
_LOG_DEFAULT = "interval 30 days"
_FILES = "delta.deletedFileRetentionDuration"
_FILES_DEFAULT = "interval 1 week"
_APPEND_ONLY = "delta.appendOnly"
_MANY_FILES = 1000
_SMALL = 4 * 1024 * 1024
_DAY_S = 86400.0
_HEADROOM = 2

_PART = re.compile(r"(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?")
_SECONDS: Mapping[str, float] = {
    "week": 7 * _DAY_S,
    "day": _DAY_S,
    "hour": 3600.0,
    "minute": 60.0,
    "second": 1.0,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
}


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """The nearest existing directory at or above the place, and whether this user may create files in it."""

    nearest: str
    writable: bool


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Version, set properties, number of data files and their bytes.

    ``beyond`` is the reason why deltalake cannot commit to the table. ``None`` if it can.
    """

    version: int
    properties: Mapping[str, str]
    beyond: str | None = None
    files: int = 0
    size: int = 0


def read(table: Table) -> tuple[PlaceFacts | None, TableFacts | None]:
    """Look at the place, if it is local, and at the table in it, if there is one."""
    place = None
    if table.is_local:
        root = Path(table.root)
        nearest = next(path for path in (root, *root.parents) if path.exists())
        place = PlaceFacts(str(nearest), os.access(nearest, os.W_OK | os.X_OK))
    handle = table.reopen()
    if handle is None:
        return place, None
    sizes = handle.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    properties = dict(handle.metadata().configuration)
    return place, TableFacts(handle.version(), properties, table.needs_spark(), len(sizes), sum(sizes))


def judge(
    name: str, place: PlaceFacts | None, table: TableFacts | None, observed: Observed, *, merges: bool
) -> Iterator[Check]:
    """Run the checks D301 to D307.

    ``place`` is ``None`` if it cannot be judged, and ``table`` before the first epoch. ``observed`` holds durations of
    past epochs.
    """
    if place is not None and place.writable:
        yield Check(name, State.OK, f"{place.nearest} can be written")
    elif place is not None:
        yield spot("D303", name, place=place.nearest)
    if table is None:
        yield Check(name, State.HINT, "there is no such table yet; the first epoch creates it")
        return
    yield Check(name, State.OK, f"readable at version {table.version}")
    yield from _remembering(name, table.properties, observed)
    yield from _outlasting(name, table.properties, observed)
    if table.beyond:
        yield spot("D304", name, State.HINT, beyond=table.beyond)
    else:
        yield Check(name, State.OK, "deltalake can commit there")
    if merges and table.properties.get(_APPEND_ONLY) == "true":
        yield spot("D305", name)
    if table.files >= _MANY_FILES and table.size < table.files * _SMALL:
        yield spot(
            "D306", name, State.HINT, files=f"{table.files:,}", size=f"{table.size // table.files // 1024:,} KiB"
        )


def _remembering(name: str, properties: Mapping[str, str], observed: Observed) -> Iterator[Check]:
    """Compare the table's retention of markers with the pipeline's longest pause."""
    if kept := properties.get(_TRANSACTIONS):
        yield spot("D301", name, retention=kept)
    else:
        yield Check(name, State.OK, "application versions are kept for ever")
    retention = properties.get(_LOG, _LOG_DEFAULT)
    seconds = interval_s(retention)
    if seconds is not None and observed.epochs and observed.longest_gap_s * _HEADROOM >= seconds:
        state = State.PROBLEM if observed.longest_gap_s >= seconds else State.HINT
        days = max(30, int(-(-observed.longest_gap_s * 3 // _DAY_S)))
        yield spot("D302", name, state, retention=retention, longest=spell(observed.longest_gap_s), enough_days=days)


def _outlasting(name: str, properties: Mapping[str, str], observed: Observed) -> Iterator[Check]:
    """Check that files of a version are retained for as long as readers need it."""
    kept = properties.get(_FILES, _FILES_DEFAULT)
    seconds = interval_s(kept)
    if seconds is not None and observed.longest_pin_s * _HEADROOM >= seconds:
        state = State.PROBLEM if observed.longest_pin_s >= seconds else State.HINT
        hours = max(1, int(-(-observed.longest_pin_s * 3 // 3600)))
        yield spot("D307", name, state, kept=kept, pinned=spell(observed.longest_pin_s), enough_hours=hours)


def interval_s(text: str) -> float | None:
    """Seconds of an interval in Delta's spelling, ``interval 2 weeks 1 day``. ``None`` for anything else."""
    parts = _PART.findall(text.lower())
    return sum(int(number) * _SECONDS[unit] for number, unit in parts) if parts else None


# ---- Epochs, receipts and counts out of the log. Needs no fence, no Spark and no handle.

log = logging.getLogger(__name__)


class NotInLog(Exception):
    """A commit succeeded by its answer, and its entry is not in the log."""


def landed(log: DeltaLog, first: int, token: str) -> int:
    """Find the version with a commit's token, from ``first`` on.

    Raises :class:`NotInLog` if no version has it. Some writers answer yes without writing anything.
    """
    for entry in log.since(first):
        if entry.note and entry.note.token == token:
            return entry.version
    raise NotInLog(token)


def receipt(sink: str, note: Note, version: int) -> Receipt:
    """Receipt of an epoch that was just committed."""
    found = note.receipt(sink, version)
    assert found is not None
    return found


def find(log: DeltaLog, handle: DeltaTable | None, marker: Marker) -> Receipt | None:
    """Receipt of a marker, if the log holds that exact marker, fence included."""
    head = -1 if handle is None else handle.version()
    for entry in log.before(head):
        note = entry.note
        if note is None or note.marker is None:
            continue
        if note.marker == marker:
            return note.receipt(marker.sink, entry.version)
        if note.marker.epoch.number < marker.epoch.number:
            return None
    return None


def history(sink: str, table: Table, after: int) -> Iterator[tuple[Marker, Receipt]]:
    """Markers with receipts, oldest first: from the commits that brought them, else from a fence that repeats one.

    A fence may have reset the table to an older epoch. Later epochs below that fence in the log are skipped, as their
    rows are gone.
    """
    found: dict[int, tuple[Marker, Receipt]] = {}
    brought: set[int] = set()
    least: int | None = None
    for entry in _ours(table):
        note = entry.note
        if note is None or (least is not None and note.epoch > least):
            continue
        least = note.epoch
        if least <= after:
            break
        stands = note.receipt(sink, entry.version)
        if note.marker is None or stands is None or least in brought or not (note.brings_epoch or least not in found):
            continue
        found[least] = (note.marker, stands)
        brought |= {least} if note.brings_epoch else set()
    return iter([found[number] for number in sorted(found)])


def absent(table: Table) -> list[str]:
    """Data files of the newest version that are missing, so that no reader gets their rows."""
    return [] if table.refreshed() is None else table.absent(table.paths)


def recount(table: Table) -> Mapping[int, int] | None:
    """Rows per epoch that the table still holds, by the log. ``None`` if it cannot tell."""
    try:
        return row_counts.count(changes_of(table), absent=absent(table)).rows
    except row_counts.CannotTell as reason:
        log.info("rows of the epochs in %s cannot be counted: %s", table.uri, reason)
        return None


def allowed(table: Table, rung: ChangePolicy, *, merged: bool) -> ToleratedChanges:
    """Permitted changes by other writers since our first epoch. After the newest epoch, ``rung`` decides."""
    changes = changes_of(table)
    judged = max((change.entry.note.judged for change in changes if change.entry.note), default=-1)
    began = min(
        (change.entry.version for change in changes if change.entry.note and change.entry.note.epoch), default=0
    )
    entries = [change.entry for change in changes if change.entry.version > began]
    earlier = [entry for entry in entries if entry.version <= judged]
    later = [entry for entry in entries if entry.version > judged]
    told = (
        *loginspect.disturbances(earlier, "", -1, ChangePolicy.CHANGES),
        *loginspect.disturbances(later, "", -1, rung),
    )
    passed = tuple(one for one in told if one.allowed)
    if merged or not passed:
        return ToleratedChanges(passed)
    listed = frozenset(
        entry.version
        for entry in entries
        if entry.note is None and _passes(entry, rung if entry.version > judged else ChangePolicy.CHANGES)
    )
    try:
        return ToleratedChanges(passed, row_counts.count(changes, listed).removed)
    except row_counts.CannotTell:
        # No rung lets these pass, and our next epoch was committed all the same.
        accepted = frozenset(one.version for one in earlier if one.note is None) - listed
        return ToleratedChanges(passed, sums=row_counts.sums(changes, listed, began, accepted))


def beside_ours(table: Table) -> str:
    """Reason why some rows of the table may not be ours. Empty if all are.

    Judged by the log alone, from the table's creation, or from a full refresh that removed all earlier rows.
    """
    changes = changes_of(table)
    undone = {
        change.entry.version: restored_to(table.log, change.entry) for change in changes if change.entry.note is None
    }
    begun = max((at for at, one in enumerate(changes) if _replaced(one.entry, undone)), default=-1)
    if changes and changes[0].entry.version and begun < 0:
        return "its log no longer reaches back to where the table began"
    since = changes[max(begun, 0) :]
    versions = {one.entry.version for one in since}
    # What a RESTORE to one of these versions has brought back, the changes up to that one brought.
    others = (one.entry for one in since if one.entry.note is None)
    strange = (other for other in others if undone[other.version] not in versions)
    found = next((one for one in strange if one.effect not in (Effect.NONE, Effect.DELETED)), None)
    return f"version {found.version} ({found.operation or 'unnamed'}) brought rows of others" if found else ""


def _replaced(entry: LogEntry, undone: Mapping[int, int | None]) -> bool:
    """Whether a commit removed all earlier rows, and no later RESTORE has gone back before it.

    ``undone`` maps each version of other writers to the version that its RESTORE leads to. ``None``: no RESTORE, or
    target unknown.
    """
    if entry.note is None or not entry.note.replaces:
        return False
    return all(to is None or to >= entry.version for at, to in undone.items() if at > entry.version)


def _passes(entry: LogEntry, rung: ChangePolicy) -> bool:
    return entry.effect.rung is not None and entry.effect.rung <= rung


def read_back(table: Table, epoch_column: str | None, spark: SparkSession) -> DataFrame | None:
    """Read the current rows with their epochs: by the epoch column, else by the file that holds each row.

    ``None`` if there is no table, or if the log cannot tell.
    """
    from pyspark.sql import functions as f

    if table.reopen() is None:
        return None
    rows = spark.read.format("delta").load(table.uri)
    columns = [f.col(quote(name)) for name in rows.columns if name != epoch_column]
    if epoch_column:
        return rows.select(*columns, f.col(quote(epoch_column)).cast("bigint").alias(EPOCH))
    try:
        owners = row_counts.owners(changes_of(table))
    except row_counts.CannotTell as reason:
        log.info("rows of the epochs in %s cannot be told apart: %s", table.uri, reason)
        return None
    named = [(unquote(path).rpartition("/")[2], owner) for path, owner in owners.items()]
    files = spark.createDataFrame(named, f"{quote(_FILE)} string, {quote(EPOCH)} bigint")
    placed = rows.select(*columns, f.col("_metadata.file_name").alias(_FILE))
    return placed.join(f.broadcast(files), _FILE, "left").select(*columns, f.col(quote(EPOCH)))


_FILE = "__onceonly_file"


def changes_of(table: Table) -> list[row_counts.Change]:
    """The versions whose commit files still exist, ascending."""
    texts = ((version, table.log.text(version)) for version in table.log.versions())
    return [
        row_counts.parse(loginspect.parse(version, text, table.log.app), text)
        for version, text in texts
        if text is not None
    ]


def disturbances(table: Table, since: Receipt | None, allowed: ChangePolicy) -> tuple[ExternalChange, ...]:
    """Changes by other writers since a receipt, or since the log's start. ``allowed`` marks permitted ones."""
    handle = table.refreshed()
    judged, held = (_coordinate(since, "read"), _coordinate(since, "version")) if since else (-1, -1)
    versions = range(judged + 1, table.followed.head() + 1)
    entries = [entry for version in versions if (entry := table.log.entry(version)) is not None]
    was, now = since.identity if since else "", "" if handle is None else table.identity
    found = loginspect.disturbances(entries, was, held, allowed, partial(restored_to, table.log))
    if was and was != now and all(one.kind != "recreated" for one in found):
        return (
            *found,
            ExternalChange(
                "recreated", f"table id {now}" if now else "there is no table", fatal=True, at=table.followed.head()
            ),
        )
    return found


def _coordinate(receipt: Receipt, name: str) -> int:
    found = receipt.at(name)
    return found if isinstance(found, int) else -1


def _ours(table: Table) -> Iterator[LogEntry]:
    return (entry for entry in table.followed.newest_first() if entry.note is not None)
