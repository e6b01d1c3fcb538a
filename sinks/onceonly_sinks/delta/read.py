"""Read epochs, receipts and row counts from the Delta log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltalake import DeltaTable

from onceonly.protocol.capabilities import EPOCH
from onceonly.protocol.values import ExternalChange, ToleratedChanges
from onceonly.spark.digest import quote
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.delta import log as loginspect
from onceonly_sinks.delta.head import restored_to
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.log import DeltaLog, LogEntry
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from onceonly_sinks.delta.row_counts import Change


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
    epoch_receipt = note.receipt(sink, version)
    assert epoch_receipt is not None
    return epoch_receipt


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
    epochs: dict[int, tuple[Marker, Receipt]] = {}
    brought: set[int] = set()
    least: int | None = None
    for entry in table.followed.newest_first():
        note = entry.note
        if note is None or (least is not None and note.epoch > least):
            continue
        least = note.epoch
        if least <= after:
            break
        epoch_receipt = note.receipt(sink, entry.version)
        if (
            note.marker is None
            or epoch_receipt is None
            or least in brought
            or not (note.brings_epoch or least not in epochs)
        ):
            continue
        epochs[least] = (note.marker, epoch_receipt)
        brought |= {least} if note.brings_epoch else set()
    return iter([epochs[number] for number in sorted(epochs)])


def absent(table: Table) -> list[str]:
    """Data files of the newest version that are missing, so that no reader gets their rows."""
    return [] if table.reopen() is None else table.absent(table.paths)


def recount(table: Table) -> Mapping[int, int] | None:
    """Rows per epoch that the table still holds, by the log. ``None`` if it cannot tell."""
    from onceonly_sinks.delta import row_counts

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
    external_changes = (
        *loginspect.disturbances(earlier, "", -1, ChangePolicy.CHANGES),
        *loginspect.disturbances(later, "", -1, rung),
    )
    passed = tuple(external_change for external_change in external_changes if external_change.allowed)
    if merged or not passed:
        return ToleratedChanges(passed)
    listed = frozenset(
        entry.version
        for entry in entries
        if entry.note is None
        and entry.effect.rung is not None
        and entry.effect.rung <= (rung if entry.version > judged else ChangePolicy.CHANGES)
    )
    from onceonly_sinks.delta import row_counts

    try:
        return ToleratedChanges(passed, row_counts.count(changes, listed).removed)
    except row_counts.CannotTell:
        # No rung lets these pass, and our next epoch was committed all the same.
        accepted = frozenset(entry.version for entry in earlier if entry.note is None) - listed
        return ToleratedChanges(passed, sums=row_counts.sums(changes, listed, began, accepted))


def beside_ours(table: Table) -> str:
    """Reason why some rows of the table may not be ours. Empty if all are.

    Judged by the log alone, from the table's creation, or from a full refresh that removed all earlier rows.
    """
    changes = changes_of(table)
    undone = {
        change.entry.version: restored_to(table.log, change.entry) for change in changes if change.entry.note is None
    }
    begun = max((at for at, change in enumerate(changes) if _replaced(change.entry, undone)), default=-1)
    if changes and changes[0].entry.version and begun < 0:
        return "its log no longer reaches back to where the table began"
    since = changes[max(begun, 0) :]
    versions = {change.entry.version for change in since}
    # What a RESTORE to one of these versions has brought back, the changes up to that one brought.
    others = (change.entry for change in since if change.entry.note is None)
    strange = (other for other in others if undone[other.version] not in versions)
    strange_entry = next((entry for entry in strange if entry.effect not in (Effect.NONE, Effect.DELETED)), None)
    return (
        f"version {strange_entry.version} ({strange_entry.operation or 'unnamed'}) brought rows of others"
        if strange_entry
        else ""
    )


def _replaced(entry: LogEntry, undone: Mapping[int, int | None]) -> bool:
    """Whether a commit removed all earlier rows, and no later RESTORE has gone back before it.

    ``undone`` maps each version of other writers to the version that its RESTORE leads to. ``None``: no RESTORE, or
    target unknown.
    """
    if entry.note is None or not entry.note.replaces:
        return False
    return all(to is None or to >= entry.version for at, to in undone.items() if at > entry.version)


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
    if (owners := owners_of(table)) is None:
        return None
    named = [(unquote(path).rpartition("/")[2], owner) for path, owner in owners.items()]
    files = spark.createDataFrame(named, f"{quote(_FILE)} string, {quote(EPOCH)} bigint")
    placed = rows.select(*columns, f.col("_metadata.file_name").alias(_FILE))
    return placed.join(f.broadcast(files), _FILE, "left").select(*columns, f.col(quote(EPOCH)))


_FILE = "__onceonly_file"


def owners_of(table: Table) -> Mapping[str, int | None] | None:
    """Data files with the epoch that brought their rows, as ``row_counts.owners``. ``None`` if the log cannot tell."""
    from onceonly_sinks.delta import row_counts

    try:
        return row_counts.owners(changes_of(table))
    except row_counts.CannotTell as reason:
        log.info("rows of the epochs in %s cannot be separated: %s", table.uri, reason)
        return None


def changes_of(table: Table) -> list[Change]:
    """The versions whose commit files still exist, ascending."""
    from onceonly_sinks.delta import row_counts

    texts = ((version, table.log.text(version)) for version in table.log.versions())
    return [
        row_counts.parse(loginspect.parse(version, text, table.log.app), text)
        for version, text in texts
        if text is not None
    ]


def disturbances(table: Table, since: Receipt | None, allowed: ChangePolicy) -> tuple[ExternalChange, ...]:
    """Changes by other writers since a receipt, or since the log's start. ``allowed`` marks permitted ones."""
    judged, held = (_coordinate(since, "read"), _coordinate(since, "version")) if since else (-1, -1)
    versions = range(judged + 1, table.followed.head() + 1)
    entries = [entry for version in versions if (entry := table.log.entry(version)) is not None]
    old_identity = since.identity if since else ""
    changes = loginspect.disturbances(entries, old_identity, held, allowed, partial(restored_to, table.log))
    note = next((entry.note for entry in entries if entry.version == held), None)
    # A log that still has the epoch is that of its table, and the table is not opened to ask.
    same_table = since and note and note.receipt(since.sink, held) == since
    if same_table or not old_identity or any(change.kind == "recreated" for change in changes):
        return changes
    if old_identity == (now := "" if table.reopen() is None else table.identity):
        return changes
    detail = f"table id {now}" if now else "there is no table"
    return (*changes, ExternalChange("recreated", detail, fatal=True, at=table.followed.head()))


def _coordinate(receipt: Receipt, name: str) -> int:
    coordinate = receipt.at(name)
    return coordinate if isinstance(coordinate, int) else -1
