"""Store markers and claims as records of a compacted Kafka topic.

There is one record per epoch, and one for the newest claim. The newest record fully describes the sink's position: its
fence, and the newest epoch with its offsets. A claim repeats both in full. Keys of epochs are reused in a cycle, so
compaction keeps the newest :data:`REMEMBERED` of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Superseded
from onceonly.protocol.guard import NewestEpoch, check_fence, check_follows
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.model import UnreadableMarker, canonical

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = 1
"""Version of the record's format."""

REMEMBERED = 1 << 16
"""Epochs that the marker topic remembers once it is compacted."""

Offsets = Mapping[str, Mapping[int, int]]
"""``{topic: {partition: offset}}``."""

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_TOPIC = 249


@dataclass(frozen=True, slots=True)
class MarkerScope:
    """Pipeline (the user's stable name) and sink id that own a record."""

    pipeline: str
    sink: str

    @property
    def transactional_id(self) -> str:
        """A stable id: a producer with it ends an earlier driver's open transaction and fences that driver out."""
        return "/".join(("onceonly", quote(self.pipeline, safe=""), quote(self.sink, safe="")))

    @property
    def topic(self) -> str:
        """Default name of the marker topic: readable, with a hash if characters had to be replaced."""
        digest = hashlib.sha256(f"{self.pipeline}\0{self.sink}".encode()).hexdigest()[:8]
        leaf = self.sink.removeprefix("kafka:")
        names = [_UNFIT.sub("_", part)[: (_LONGEST_TOPIC - 20) // 2] for part in (self.pipeline, leaf)]
        return ".".join(("onceonly", *names, digest))

    def key(self, what: str | int) -> bytes:
        """Key of a record."""
        return canonical([self.pipeline, self.sink, what]).encode()


@dataclass(frozen=True, slots=True)
class Written:
    """Rows and offsets of one epoch.

    ``identity`` is the target's. ``topics`` are the ids of topics that the sink has written to. The epoch's rows are
    between ``start`` and ``end``. ``end`` holds every partition of every topic in ``topics``.
    """

    marker: Marker
    rows: int
    identity: str
    topics: Mapping[str, str]
    start: Offsets
    end: Offsets

    @property
    def receipt(self) -> Receipt:
        """The sink's receipt for the epoch."""
        epoch = self.marker.epoch
        position = (("end", offsets_text(self.end)), ("topics", canonical(dict(self.topics))))
        return Receipt(self.marker.sink, epoch.number, epoch.chain, self.identity, position, self.rows)

    def to_json(self) -> dict[str, Any]:
        """Field names to values, nested."""
        return {
            "marker": self.marker.to_json(),
            "rows": self.rows,
            "identity": self.identity,
            "topics": dict(self.topics),
            "start": _spelled(self.start),
            "end": _spelled(self.end),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        marker = Marker.from_json(value["marker"])
        start, end = read_offsets(value["start"]), read_offsets(value["end"])
        return cls(marker, value["rows"], value["identity"], value["topics"], start, end)


@dataclass(frozen=True, slots=True)
class MarkerRecord:
    """One record of the marker topic, with the fence and the newest epoch after it.

    ``written`` is ``None`` before the first epoch. ``claim`` is true if the record only raises the fence.
    """

    fence: Fence
    written: Written | None
    claim: bool

    @property
    def epoch(self) -> int:
        """Number of the newest epoch. 0 before the first."""
        return self.written.marker.epoch.number if self.written else 0

    def key(self, writer: MarkerScope) -> bytes:
        """Key of the record."""
        return writer.key("claim" if self.claim else self.epoch % REMEMBERED)

    @property
    def value(self) -> bytes:
        """The record's bytes."""
        written = self.written.to_json() if self.written else None
        document = {"format": FORMAT, "claim": self.claim, "fence": self.fence.to_json(), "written": written}
        return canonical(document).encode()

    @classmethod
    def parse(cls, value: bytes) -> Self:
        """Inverse of :attr:`value`. Raises ``UnreadableMarker`` for a newer format, or for none of ours."""
        try:
            document = json.loads(value)
            if document["format"] != FORMAT:
                raise UnreadableMarker(f"marker record of format {document['format']!r}; this version reads {FORMAT}")
            written = document["written"]
            fence = Fence.from_json(document["fence"])
            return cls(fence, Written.from_json(written) if written else None, document["claim"])
        except (KeyError, TypeError, AttributeError) as error:
            raise UnreadableMarker(f"damaged marker record: {error!r}") from error


NOTHING = MarkerRecord(Fence(0, ""), None, claim=True)
"""What a topic without any record of ours says."""


def as_java_spells(topic_id: str) -> str:
    """A topic's id as Java's clients, and so Spark, spell it. librdkafka uses the other alphabet of Base64."""
    return topic_id.replace("+", "-").replace("/", "_").rstrip("=")


def is_of(writer: MarkerScope, key: bytes | None) -> bool:
    """Whether a record's key is one of the writer's."""
    try:
        decoded_key = json.loads(key or b"null")
    except ValueError:
        return False
    return isinstance(decoded_key, list) and decoded_key[:2] == [writer.pipeline, writer.sink]


def offsets_text(offsets: Offsets) -> str:
    """Canonical spelling, as in a receipt: ``{"orders":{"0":12}}``, which Spark's Kafka source takes as offsets."""
    return canonical(_spelled(offsets))


def read_offsets(value: Mapping[str, Mapping[str, int]] | str) -> dict[str, dict[int, int]]:
    """Inverse of :func:`offsets_text`, also of its JSON form."""
    offsets = json.loads(value) if isinstance(value, str) else value
    return {topic: {int(part): offset for part, offset in parts.items()} for topic, parts in offsets.items()}


def _spelled(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: {str(part): offset for part, offset in parts.items()} for topic, parts in offsets.items()}


def fenced(record: MarkerRecord, fence: Fence, sink: str) -> Superseded | OnceOnlyError | None:
    """The refusal to go on under ``fence``. ``None`` if it is the installed one."""
    lost = "the marker topic was deleted or created again, or the fence was never installed"
    return check_fence(sink, record.fence, fence, lost=lost)


def judge(record: MarkerRecord, marker: Marker, identity: str) -> Superseded | OnceOnlyError | None:
    """The refusal of the marker's epoch after the found record. ``None`` if it may be committed."""
    written = record.written
    held = NewestEpoch.of(written.marker if written else None)
    refused = fenced(record, marker.fence, marker.sink) or check_follows(marker, held)
    if refused is not None:
        return refused
    if written and written.identity != identity and marker.epoch.adoption is None:
        return refuse("E208", sink=marker.sink, was=written.identity, now=identity, pipeline=marker.pipeline)
    return None
