"""Doctor rules for a pipeline, its checkpoint and servers, with facts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from onceonly.protocol.health import Check, Observed, State, spell, spot
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.epoch_time import EpochTime, WriterProgress
from onceonly_checkpoints.ledger import Ledger, Pipeline
from onceonly_checkpoints.ledger.location import place_of, unavailable
from onceonly_checkpoints.storage import is_local, local_path

# ---- Rules over a pipeline, its checkpoint and a server's clock. Pure.

SKEW_S = 2.0
"""Difference of clocks that is told, seconds."""

_FAR_OFF_S = 60.0
_HEADROOM = 2
"""A limit that batches came within this factor of is told before it is met."""

_ATOMIC = frozenset({"file", "hdfs", "abfss", "abfs", "viewfs", "dbfs", "maprfs"})
_NOT_ATOMIC: Mapping[str, str] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "S3"),
    "gs": "Google Cloud Storage",
    **dict.fromkeys(("wasb", "wasbs"), "Azure blobs without a hierarchical namespace"),
    "oss": "Aliyun OSS",
    "cosn": "Tencent COS",
    "obs": "Huawei OBS",
    "swift": "Swift",
    "ftp": "FTP",
    "sftp": "SFTP",
    **dict.fromkeys(("http", "https"), "HTTP"),
}
_NOT_ATOMIC_MOUNTS = ("s3fs", "gcsfuse", "goofys", "rclone", "blobfuse", "mountpoint-s3", "geesefs", "juicefs-s3")


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """Facts about one pipeline from a ledger and the sinks.

    Attributes:
        checkpoint: root at the last opening, or empty if unknown.
        lineages: ``(query id, checkpoint)`` of recorded epochs, oldest first, each run of equal ones once.
        fences: ``(sink id, newest generation there)``.
    """

    name: str
    checkpoint: str
    generation: int
    lineages: tuple[tuple[str, str], ...]
    fences: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """A server's clock against this machine's, read once. ``ahead_s`` is negative if it is behind.

    The possible error ``within_s`` is half of the time of the answer.
    """

    ahead_s: float
    within_s: float


def judge_names(facts: PipelineFacts) -> Iterator[Check]:
    """D403, D404: more than one query writes under the name."""
    turns = _taken_in_turns(facts.lineages)
    if turns:
        previous, other = turns
        yield spot("D403", facts.name, pipeline=facts.name, one=previous, other=other)
    for sink, generation in facts.fences:
        if generation > facts.generation:
            yield spot(
                "D404", facts.name, State.HINT, sink=sink, pipeline=facts.name, theirs=generation, ours=facts.generation
            )


def _taken_in_turns(lineages: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Check for two queries that alternate. A new checkpoint that stays is a restart."""
    query_ids: set[str] = set()
    before = ""
    for query_id, checkpoint in lineages:
        if query_id in query_ids and query_id != before:
            checkpoints = dict(lineages)
            return f"query id {before} ({checkpoints[before]})", f"query id {query_id} ({checkpoint})"
        query_ids.add(query_id)
        before = query_id
    return None


_ROOM = 3
"""A time-out is as many times what the writers' epochs take."""


def judge_timeout(pipeline: str, times: Sequence[EpochTime]) -> Iterator[Check]:
    """D405: a writer was left out after a time that its own pace will exceed again.

    ``timeout=`` is an argument of the query and not on record. A left-out writer is: its time-out is then at most the
    time since its newest observed epoch. ``times`` are of the epochs of ``pipeline``, oldest first.
    """
    waited = _waited(times)
    for writer, at_most_ms in sorted(waited.items()):
        usual_ms = _usual_gap(writer, times)
        if usual_ms is not None and at_most_ms < _ROOM * usual_ms:
            durations = {"waited": spell(at_most_ms / 1000), "usual": spell(usual_ms / 1000)}
            enough_s = -(-_ROOM * usual_ms // 1000)
            yield spot("D405", pipeline, State.HINT, pipeline=pipeline, writer=writer, **durations, enough_s=enough_s)


def _waited(times: Sequence[EpochTime]) -> Mapping[str, int]:
    """Return the shortest wait, in milliseconds, after which each writer was left out."""
    waits: dict[str, int] = {}
    before: tuple[str, ...] = ()
    for epoch_time in times:
        for mark in epoch_time.writers:
            if mark.writer in epoch_time.timed_out and mark.writer not in before:
                passed = epoch_time.batch_timestamp_ms - mark.batch_timestamp_ms
                waits[mark.writer] = min(passed, waits.get(mark.writer, passed))
        before = epoch_time.timed_out
    return waits


def _usual_gap(writer: str, times: Sequence[EpochTime]) -> int | None:
    """Return the time within which 99 of 100 epochs of a writer follow the one before, or ``None`` if unknown.

    Of fewer than a hundred the longest is left out: one outage does not show a pace. Unobserved epochs count as planned
    at even distances.
    """
    marks: dict[tuple[int, int], WriterProgress] = {}
    for mark in (mark for epoch_time in times for mark in epoch_time.writers if mark.writer == writer and mark.epoch):
        marks[mark.resets, mark.epoch] = mark
    pairs = pairwise(marks[key] for key in sorted(marks))
    gaps = [
        (two.batch_timestamp_ms - earlier.batch_timestamp_ms) // (two.epoch - earlier.epoch)
        for earlier, two in pairs
        if two.resets == earlier.resets
    ]
    return sorted(gaps)[99 * (len(gaps) - 1) // 100] if len(gaps) > 1 else None


def judge_checkpoint(url: str, mount: str | None = None) -> Iterator[Check]:
    """D402: whether a file of the checkpoint can be created atomically, by one driver only.

    ``url`` is the root as Spark spells it. ``mount`` is the kernel's name of a local root's file system, ``None`` if
    unknown.
    """
    scheme = url.partition(":")[0].lower() if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", url) else "file"
    kind = _NOT_ATOMIC.get(scheme)
    if scheme == "file" and mount and any(word in mount for word in _NOT_ATOMIC_MOUNTS):
        kind = f"an object store behind a mount ({mount})"
    if kind:
        yield spot("D402", "checkpoint", checkpoint=url, kind=f"{kind}, where a file cannot be created atomically")
    elif scheme not in _ATOMIC:
        kind = f"{scheme}://, of which it is not known whether a file can be created atomically"
        yield spot("D402", "checkpoint", State.HINT, checkpoint=url, kind=kind)
    else:
        yield Check("checkpoint", State.OK, f"{url} ({mount or scheme})")


def judge_clock(name: str, clock: Clock) -> Iterator[Check]:
    """D401: a clock that certainly differs from ours."""
    certain = abs(clock.ahead_s) - clock.within_s
    if certain < SKEW_S:
        return
    state = State.PROBLEM if certain >= _FAR_OFF_S else State.HINT
    direction = "ahead of" if clock.ahead_s > 0 else "behind"
    yield spot("D401", name, state, place=name, skew=spell(abs(clock.ahead_s)), way=direction)


def too_short(limit_s: float, observed: Observed) -> State | None:
    """Return the severity of a limit on open transactions by past epochs, or ``None`` if it is far enough."""
    if not observed.epochs or observed.longest_open_s * _HEADROOM < limit_s:
        return None
    return State.PROBLEM if observed.longest_open_s >= limit_s else State.HINT


def enough_ms(observed: Observed) -> int:
    """Return a limit with room to spare over past epochs, in milliseconds, to the full minute."""
    minutes = -(-observed.longest_open_s * 3 // 60)
    return max(1, int(minutes)) * 60_000


# ---- Gathers what the doctor judges of a pipeline: the ledger's records, the sinks' fences, the checkpoint's mount.

LOOKED_AT = 2000
"""Newest epochs that are looked at."""

_MOUNTS = Path("/proc/self/mounts")


def records_of(ledger: Ledger, entry: Pipeline) -> Sequence[EpochRecord]:
    """The newest recorded epochs of a pipeline, oldest first."""
    return ledger.epochs(entry.name, max(1, entry.epoch - LOOKED_AT + 1))


def facts_of(entry: Pipeline, records: Sequence[EpochRecord], fences: Sequence[tuple[str, int]]) -> PipelineFacts:
    """Gather the known facts about a pipeline."""
    recorded_lineages = [record.epoch.lineage for record in records if record.epoch.lineage]
    lineages = tuple(
        pair for pair, _ in groupby((lineage.query_id, lineage.checkpoint) for lineage in recorded_lineages)
    )
    return PipelineFacts(entry.name, entry.checkpoint, entry.generation, lineages, tuple(fences))


def mount_of(url: str) -> str | None:
    """Return the type of a local checkpoint's file system, or ``None`` if unknown."""
    if not is_local(url) or not _MOUNTS.exists():
        return None
    path = os.path.realpath(local_path(url))
    mount = ("", "")
    for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, kind, *_ = line.split(" ")
        # The kernel writes blanks in names as octal escapes.
        mount_point = point.encode().decode("unicode_escape")
        inside = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(mount[0]):
            mount = (mount_point, kind)
    return mount[1] or None


# ---- A Postgres server, as a sink or a ledger needs it: its settings and its clock, read and judged.

_SETTINGS = """
SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN (
    'server_version', 'fsync', 'synchronous_commit', 'synchronous_standby_names', 'full_page_writes',
    'transaction_read_only', 'statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
"""

_TIMEOUTS = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server as seen by a session with the user's own parameters. Times are in milliseconds, 0 for none."""

    settings: Mapping[str, str]
    clock: Clock


def read_server(url: str) -> ServerFacts:
    """Read the facts of a server.

    Raises:
        LedgerUnavailable: it does not answer.
        ValueError: not an address.
    """
    address = place_of(url)
    engine = address.engine()
    try:
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(_SETTINGS)
            return ServerFacts({str(name): str(setting) for name, setting in rows}, _clock(connection))
    except SQLAlchemyError as error:
        raise unavailable(address, error) from error
    finally:
        engine.dispose()


def _clock(connection: Connection) -> Clock:
    started = time.time()
    theirs = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one()
    answered = time.time()
    return Clock(float(theirs) - (started + answered) / 2, (answered - started) / 2)


def judge_settings(name: str, settings: Mapping[str, str]) -> Iterator[Check]:
    """D201 to D205: settings under which a confirmed commit can vanish, or none can be made."""
    for setting, code in (("fsync", "D201"), ("full_page_writes", "D202"), ("synchronous_commit", "D203")):
        if settings.get(setting) == "off":
            yield spot(code, name)
    commit, standbys = settings.get("synchronous_commit", ""), settings.get("synchronous_standby_names", "")
    if standbys and commit in ("local", "remote_write"):
        yield spot("D204", name, State.HINT, found=commit, standbys=standbys)
    if settings.get("transaction_read_only") == "on":
        yield spot("D205", name)


def judge_timeouts(name: str, settings: Mapping[str, str], observed: Observed) -> Iterator[Check]:
    """D206, D214: limits of the server that past epochs came near to, or that have no past epochs to compare with."""
    for setting in _TIMEOUTS:
        limit = int(settings.get(setting, "0")) / 1000
        if limit and not observed.epochs:
            yield spot("D214", name, State.HINT, setting=setting, limit=spell(limit))
        elif limit and (state := too_short(limit, observed)):
            longest, enough = spell(observed.longest_open_s), enough_ms(observed)
            yield spot("D206", name, state, setting=setting, limit=spell(limit), longest=longest, enough_ms=enough)
