"""The nouns of a commit: frozen values, each with one JSON form that is stored in sinks and ledgers.

Every ``to_json`` returns plain JSON types; ``from_json`` is its exact inverse. ``text`` is the canonical one-line
spelling (sorted keys, no blanks) that is hashed and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from onceonly_checkpoints.slices import InputFile, Slice, SourceIdentity, canonical

FORMAT = 1
"""Version of the durable marker format. A reader refuses a higher one."""


class UnreadableMarker(ValueError):
    """A stored marker, receipt or record cannot be understood by this version."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Row count and an order-free fingerprint of the rows.

    The fingerprint is the sum of a 64-bit row hash, kept as the sums of its high and low 32-bit halves: addition sees a
    doubled pair, which XOR does not, and halves cannot overflow a 64-bit sum below 2**31 rows.
    """

    rows: int
    high: int = 0
    low: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, int]) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(value["rows"], value["high"], value["low"])

    def to_json(self) -> dict[str, int]:
        """Field names to values."""
        return {"rows": self.rows, "high": self.high, "low": self.low}

    def __add__(self, other: Digest) -> Digest:
        """Digest of both sets of rows."""
        return Digest(self.rows + other.rows, self.high + other.high, self.low + other.low)

    @property
    def text(self) -> str:
        """Canonical spelling, hashed into the chain."""
        return f"{self.rows}:{self.high}:{self.low}"


@dataclass(frozen=True, slots=True)
class Fence:
    """A fencing token: an integer raised at each opening, with the random token of whoever raised it.

    Two openings may pick one generation; it belongs to the one whose owner token stands in the sink.
    """

    generation: int
    owner: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(value["generation"], value["owner"])

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {"generation": self.generation, "owner": self.owner}


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where an epoch came from in the engine. Recorded and compared, never an identity.

    Attributes:
        query_id: Spark's query id, from the checkpoint's ``metadata`` file.
        run_id: Spark's id of one start of the query.
        checkpoint: resolved checkpoint root, a URI.
        batch_id: the engine's number; restarts, repeats with other content, has legal gaps.
        batch_timestamp_ms: clock reading that the engine logged for the batch, milliseconds since 1970.
        watermark_ms: event-time watermark in force during the batch, milliseconds since 1970.
    """

    query_id: str
    run_id: str
    checkpoint: str
    batch_id: int
    batch_timestamp_ms: int
    watermark_ms: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(
            value["query_id"],
            value["run_id"],
            value["checkpoint"],
            value["batch_id"],
            value["batch_timestamp_ms"],
            value["watermark_ms"],
        )

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {
            "query_id": self.query_id,
            "run_id": self.run_id,
            "checkpoint": self.checkpoint,
            "batch_id": self.batch_id,
            "batch_timestamp_ms": self.batch_timestamp_ms,
            "watermark_ms": self.watermark_ms,
        }


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch, the same in every sink that holds it.

    Attributes:
        number: dense from 1, owned by the pipeline.
        slice: what was written: it starts where the epoch before it ended.
        chain: hash over ``previous_chain``, slice, digest and schema; see ``chain.link``.
        previous_chain: chain of epoch ``number - 1``; empty for the first.
        digest: what was written.
        schema: fingerprint of the written columns.
        sinks: ``(sink id, first epoch of that sink)`` for every sink of the epoch.
        lineage: the engine's names for the batch; ``None`` for an adoption, which no batch produced. One that takes an
            older job over names that job's last batch.
        sources: identity of each source.
        manifest: location and hash of the staged bytes; ``None`` where the epoch went to one sink directly.
        adoption: why an operator moved the pipeline's position without rows; ``None`` for an ordinary epoch.
        offered: the batch's own slice, where it is not, or not proven by offsets alone to be, the written one;
            ``None`` for an ordinary epoch.
    """

    number: int
    slice: Slice
    chain: str
    previous_chain: str
    digest: Digest
    schema: str
    sinks: tuple[tuple[str, int], ...]
    lineage: Lineage | None
    sources: tuple[SourceIdentity, ...] = ()
    manifest: str | None = None
    adoption: str | None = None
    offered: Slice | None = None

    @property
    def planned(self) -> Slice:
        """The slice of the batch as the engine planned it."""
        return self.offered or self.slice

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        lineage = value["lineage"]
        offered = value.get("offered")
        return cls(
            number=value["number"],
            slice=Slice.from_json(value["slice"]),
            chain=value["chain"],
            previous_chain=value["previous_chain"],
            digest=Digest.from_json(value["digest"]),
            schema=value["schema"],
            sinks=tuple((sink, first) for sink, first in value["sinks"]),
            lineage=None if lineage is None else Lineage.from_json(lineage),
            sources=tuple(SourceIdentity.from_json(source) for source in value["sources"]),
            manifest=value["manifest"],
            adoption=value["adoption"],
            offered=None if offered is None else Slice.from_json(offered),
        )

    def to_json(self) -> dict[str, Any]:
        """Field names to values, nested; ``offered`` only where there is one, so that other epochs keep their text."""
        offered = {} if self.offered is None else {"offered": self.offered.to_json()}
        return {
            "number": self.number,
            "slice": self.slice.to_json(),
            "chain": self.chain,
            "previous_chain": self.previous_chain,
            "digest": self.digest.to_json(),
            "schema": self.schema,
            "sinks": [list(pair) for pair in self.sinks],
            "lineage": None if self.lineage is None else self.lineage.to_json(),
            "sources": [source.to_json() for source in self.sources],
            "manifest": self.manifest,
            "adoption": self.adoption,
            **offered,
        }


@dataclass(frozen=True, slots=True)
class Marker:
    """What lies inside a sink, written in the same transaction as the rows of its epoch.

    Attributes:
        pipeline: the user's stable name.
        sink: id of one logical write, unique in the pipeline.
        fence: whose opening wrote it.
        epoch: the epoch it vouches for.
    """

    pipeline: str
    sink: str
    fence: Fence
    epoch: Epoch

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`.

        Raises:
            UnreadableMarker: a newer format, or not a marker at all.
        """
        if value.get("format") != FORMAT:
            raise UnreadableMarker(f"marker format {value.get('format')!r}; this version reads {FORMAT}")
        try:
            return cls(
                value["pipeline"],
                value["sink"],
                Fence.from_json(value["fence"]),
                Epoch.from_json(value["epoch"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableMarker(f"damaged marker: {error!r}") from error

    def to_json(self) -> dict[str, Any]:
        """Field names to values, nested, with the format version."""
        return {
            "format": FORMAT,
            "pipeline": self.pipeline,
            "sink": self.sink,
            "fence": self.fence.to_json(),
            "epoch": self.epoch.to_json(),
        }

    @property
    def text(self) -> str:
        """Canonical spelling, as stored in sinks that keep text."""
        return canonical(self.to_json())


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a sink answered when an epoch was committed.

    Attributes:
        sink: sink id.
        epoch: epoch number.
        chain: the epoch's chain.
        identity: what the sink *is* (Delta table id; Postgres system identifier and table oid): a restored or re-
            created target changes it.
        position: where the epoch lies in the sink, e.g. ``{"version": 12}`` or ``{"timeline": 1}``.
        rows: rows that the sink says it wrote; for an upsert, rows offered.
    """

    sink: str
    epoch: int
    chain: str
    identity: str
    position: tuple[tuple[str, int | str], ...]
    rows: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        position = tuple(sorted(value["position"].items()))
        return cls(value["sink"], value["epoch"], value["chain"], value["identity"], position, value["rows"])

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {
            "sink": self.sink,
            "epoch": self.epoch,
            "chain": self.chain,
            "identity": self.identity,
            "position": dict(self.position),
            "rows": self.rows,
        }

    def at(self, name: str) -> int | str | None:
        """Return one coordinate of the position, or ``None`` where the sink has no such coordinate."""
        return dict(self.position).get(name)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One row of the ledger: an epoch with everything known about how it was committed.

    Attributes:
        pipeline: the user's stable name.
        fence: whose opening wrote the epoch.
        epoch: the epoch.
        receipts: one per sink.
        files: file lists of file sources, enough to rebuild the engine's source log.
        phases: ``(phase, seconds)``: discover, prepare, commit, record.
        recorded_ms: when the ledger took it, milliseconds since 1970.
    """

    pipeline: str
    fence: Fence
    epoch: Epoch
    receipts: tuple[Receipt, ...]
    files: tuple[InputFile, ...] = ()
    phases: tuple[tuple[str, float], ...] = field(default=())
    recorded_ms: int = 0
