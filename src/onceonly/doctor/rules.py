"""Rules over a pipeline, its checkpoint and a server's clock. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onceonly.doctor.check import Check, State, spot
from onceonly.doctor.observed import Observed, spell

SKEW_S = 2.0
"""Difference of clocks that is told, seconds."""

_FAR_OFF_S = 60.0
_HEADROOM = 2
"""A limit that batches came within this factor of is told before it is met."""

_ATOMIC = frozenset({"file", "hdfs", "abfss", "abfs", "viewfs", "dbfs", "maprfs"})
_NOT_ATOMIC: Mapping[str, str] = {
    "s3": "S3",
    "s3a": "S3",
    "s3n": "S3",
    "gs": "Google Cloud Storage",
    "wasb": "Azure blobs without a hierarchical namespace",
    "wasbs": "Azure blobs without a hierarchical namespace",
    "oss": "Aliyun OSS",
    "cosn": "Tencent COS",
    "obs": "Huawei OBS",
    "swift": "Swift",
    "ftp": "FTP",
    "sftp": "SFTP",
    "http": "HTTP",
    "https": "HTTP",
}
_NOT_ATOMIC_MOUNTS = ("s3fs", "gcsfuse", "goofys", "rclone", "blobfuse", "mountpoint-s3", "geesefs", "juicefs-s3")


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What a ledger and the sinks say of one pipeline.

    Attributes:
        name: the user's stable name.
        checkpoint: root at the last opening; empty where it is not known.
        generation: newest that the ledger knows.
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
    """A server's clock, asked once.

    Attributes:
        ahead_s: what it shows beyond this machine's; negative where it is behind.
        within_s: how wrong that can be: half of what the answer took.
    """

    ahead_s: float
    within_s: float


def judge_names(facts: PipelineFacts) -> Iterator[Check]:
    """D403, D404: more than one query writes under the name."""
    turns = _taken_in_turns(facts.lineages)
    if turns:
        one, other = turns
        yield spot("D403", facts.name, pipeline=facts.name, one=one, other=other)
    for sink, generation in facts.fences:
        if generation > facts.generation:
            yield spot(
                "D404", facts.name, State.HINT, sink=sink, pipeline=facts.name, theirs=generation, ours=facts.generation
            )


def _taken_in_turns(lineages: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Two queries of which one comes back after the other; a new checkpoint that stays is a restart."""
    seen: set[str] = set()
    before = ""
    for query_id, checkpoint in lineages:
        if query_id in seen and query_id != before:
            place = dict(lineages)
            return f"query id {before} ({place[before]})", f"query id {query_id} ({checkpoint})"
        seen.add(query_id)
        before = query_id
    return None


def judge_checkpoint(url: str, mount: str | None = None) -> Iterator[Check]:
    """D402: whether a file of the checkpoint can be created whole or not at all, and by one driver only.

    Args:
        url: root as Spark spells it.
        mount: type of the file system that a local root lies on, as the kernel calls it; ``None``: not known.
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
    way = "ahead of" if clock.ahead_s > 0 else "behind"
    yield spot("D401", name, state, place=name, skew=spell(abs(clock.ahead_s)), way=way)


def too_short(limit_s: float, observed: Observed) -> State | None:
    """How bad a limit on open transactions is, by what past epochs took; ``None``: far enough away."""
    if not observed.epochs or observed.longest_open_s * _HEADROOM < limit_s:
        return None
    return State.PROBLEM if observed.longest_open_s >= limit_s else State.HINT


def enough_ms(observed: Observed) -> int:
    """A limit with room to spare over what past epochs took, milliseconds, to the full minute."""
    minutes = -(-observed.longest_open_s * 3 // 60)
    return max(1, int(minutes)) * 60_000
