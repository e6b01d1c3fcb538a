"""Epoch, marker, fence and receipt: frozen values with one JSON form.

Every ``to_json`` returns plain JSON types; ``from_json`` is its exact inverse. ``text`` is the canonical one-line
spelling (sorted keys, no blanks) that is hashed and compared. All are in the one form of ``model``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints import model
from onceonly_checkpoints.code_version import Code, PlanFingerprint
from onceonly_checkpoints.digests import SEEN, STATE, Digest, OutputDigest, bad_in, repeated_in
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.model import (
    Adoption,
    AdoptionKind,
    InputFile,
    Slice,
    SourceIdentity,
    SourceOffsets,
    UnreadableMarker,
    canonical,
    known,
    present,
)

if TYPE_CHECKING:
    from typing_extensions import Self


FORMAT = 1
"""Version of the durable marker format. A reader refuses a higher one."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A fencing token: an integer raised at each opening, with the random token of whoever raised it.

    Two openings may pick one generation; it belongs to the one whose owner stands in the sink.

    Attributes:
        generation: greater than every one before.
        owner: a random token; behind it, after a blank, who raised it, for people. Compared as a whole.
    """

    generation: int
    owner: str

    @property
    def who(self) -> str:
        """Who raised it, ``user@host:pid application``; empty where that was not noted."""
        return self.owner.partition(" ")[2]

    @property
    def text(self) -> str:
        """The fence in words: ``generation 4 (ann@host:4711 application_1)``."""
        return f"generation {self.generation} ({self.who or f'owner {self.owner}' if self.owner else 'nobody known'})"

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "generation", "owner")
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
        version: what its user calls the code that ran; empty for nothing. A note: the chain does not hold it.
        plan: fingerprint of that code; ``None`` where nobody can see the plan. A note as well.
    """

    query_id: str
    run_id: str
    checkpoint: str
    batch_id: int
    batch_timestamp_ms: int
    watermark_ms: int
    version: str = ""
    plan: PlanFingerprint | None = None

    @property
    def code(self) -> Code:
        """The code that ran."""
        return Code(self.version, self.plan)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        names = ("query_id", "run_id", "checkpoint", "batch_id", "batch_timestamp_ms", "watermark_ms")
        known(value, *names, *NOTES)
        return cls(
            value["query_id"],
            value["run_id"],
            value["checkpoint"],
            value["batch_id"],
            value["batch_timestamp_ms"],
            value["watermark_ms"],
            value.get("version", ""),
            PlanFingerprint.from_json(value["plan"]) if "plan" in value else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Field names to values; of what the code was, only what is known."""
        return {
            "query_id": self.query_id,
            "run_id": self.run_id,
            "checkpoint": self.checkpoint,
            "batch_id": self.batch_id,
            "batch_timestamp_ms": self.batch_timestamp_ms,
            "watermark_ms": self.watermark_ms,
            **present(version=self.version, plan=self.plan and self.plan.to_json()),
        }


NOTES = ("version", "plan")
"""Members of a lineage that the chain leaves out: another code that gives the same rows makes no other epoch."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What the engine's next batch is compared with: the same for an epoch and for those without a batch after it.

    Attributes:
        lineage: the engine's names for the newest batch; ``None`` before the first.
        accepted: what operators accepted since that batch, oldest first: what is in force.
        offered: the newest batch's own slice, where it is not, or not proven by offsets alone to be, the written one,
            and nobody has moved the position since; else ``None``.
        ids: what made the ids of its rows, as the call said it; empty where they are not kept, or nobody knows.
    """

    lineage: Lineage | None = None
    accepted: tuple[Adoption, ...] = ()
    offered: Slice | None = None
    ids: str = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "lineage", "accepted", "offered", "ids")
        return cls(
            Lineage.from_json(value["lineage"]) if "lineage" in value else None,
            tuple(Adoption.from_json(one) for one in value.get("accepted", ())),
            Slice.from_json(value["offered"]) if "offered" in value else None,
            value.get("ids", ""),
        )

    def to_json(self) -> dict[str, Any]:
        """Field names to values, nested."""
        return present(
            lineage=self.lineage and self.lineage.to_json(),
            accepted=[one.to_json() for one in self.accepted],
            offered=self.offered and self.offered.to_json(),
            ids=self.ids,
        )

    def accepts(self, *kinds: AdoptionKind) -> bool:
        """Whether one of these kinds is in force."""
        return any(one.kind in kinds for one in self.accepted)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch, the same in every sink that holds it.

    Attributes:
        number: dense from 1, owned by the pipeline.
        written: the slice that was written: it starts where the epoch before it ended.
        chain: hash over everything else that the epoch says of itself; see ``chain.link``.
        previous_chain: chain of epoch ``number - 1``; empty for the first.
        digest: of all good rows: what every sink holds that none of ``outputs`` names.
        schema: fingerprint of their columns.
        sinks: ``(sink id, first epoch of that sink)`` for every sink of the epoch.
        lineage: the engine's names for the batch; ``None`` for an adoption, which no batch produced. One that takes an
            older job over names that job's last batch.
        sources: identity of each source.
        manifest: location and hash of the staged bytes; ``None`` where the epoch went to one sink directly.
        adoption: what an operator accepted by this epoch without rows; ``None`` for an ordinary epoch.
        offered: the batch's own slice, where it is not, or not proven by offsets alone to be, the written one;
            ``None`` for an ordinary epoch.
        carried: what the next batch is compared with, where the epoch's own words do not say it; ``None`` for the epoch
            of a batch.
        series: number of the first epoch whose rows stand: 1 until a full refresh was replaced, and copied from epoch
            to epoch.
        replaces: ``(first, last)`` of the epochs whose rows leave in the transaction of this one; ``None`` for none.
        outputs: what some of the sinks hold instead of all rows.
        time: up to when its rows are complete; ``None`` where nobody notes that.
        panes: its windows; ``None`` where rows are written as they come.
        replays: the epochs of another pipeline that it runs again; ``None`` for none.
    """

    number: int
    written: Slice
    chain: str
    previous_chain: str
    digest: Digest
    schema: str
    sinks: tuple[tuple[str, int], ...]
    lineage: Lineage | None
    sources: tuple[SourceIdentity, ...] = ()
    manifest: str | None = None
    adoption: Adoption | None = None
    offered: Slice | None = None
    carried: ResumePoint | None = None
    series: int = 1
    replaces: tuple[int, int] | None = None
    outputs: tuple[OutputDigest, ...] = ()
    time: EpochTime | None = None
    panes: EpochWindows | None = None
    replays: ReplayedEpochs | None = None

    def output(self, sink: str) -> OutputDigest | None:
        """What a sink holds instead of all rows; ``None`` where it holds them all."""
        return next((one for one in self.outputs if sink in one.sinks), None)

    def digest_in(self, sink: str) -> Digest:
        """Digest of the rows that a sink holds of this epoch."""
        output = self.output(sink)
        return output.digest if output else self.digest

    def schema_in(self, sink: str) -> str:
        """Fingerprint of the columns that a sink holds of this epoch."""
        output = self.output(sink)
        return output.schema if output else self.schema

    def only_in(self, sink: str) -> int:
        """Rows that a sink alone holds of this epoch: bad rows, a table of a route; 0 where another sink has them."""
        output = self.output(sink)
        others = (other for other, first in self.sinks if other != sink and first <= self.number)
        return 0 if any(self.output(other) == output for other in others) else self.digest_in(sink).rows

    @property
    def rows(self) -> int:
        """Rows that its sinks got, but for those of state, which are nobody's but ours."""
        return self.digest.rows - sum(output.digest.rows for output in self.outputs if output.name == STATE)

    def rows_in(self, sinks: Sequence[str]) -> int:
        """Rows that these sinks hold of it, those that several hold once; with none named: that its sinks got."""
        outputs = {output.name if (output := self.output(sink)) else "": self.digest_in(sink).rows for sink in sinks}
        return sum(outputs.values()) if sinks else self.rows

    @property
    def came(self) -> int:
        """Rows that its batch gave, before windows took them, or some were set aside or left out."""
        if self.panes:
            return self.panes.rows
        return self.computed.rows + (self.bad.digest.rows if self.bad else 0)

    @property
    def bad(self) -> OutputDigest | None:
        """Its bad rows; ``None`` where nothing was expected of rows."""
        return bad_in(self.outputs)

    @property
    def repeated(self) -> Digest | None:
        """Its rows whose id had been seen before, which no sink got; ``None`` where ids are not kept."""
        return repeated_in(self.outputs)

    @property
    def computed(self) -> Digest:
        """Its good rows and those whose id had been seen before: what the plan gives, whatever ids are known."""
        return self.digest + self.repeated if self.repeated else self.digest

    @property
    def windows_since(self) -> int:
        """The first of the epochs whose windows go on in one another up to this one."""
        return max(self.series, self.panes.since if self.panes else 1)

    @property
    def planned(self) -> Slice:
        """The slice of the batch as the engine planned it."""
        return self.offered or self.written

    @property
    def standing(self) -> ResumePoint:
        """What the next batch is compared with."""
        if self.carried:
            return self.carried
        ids = next((output.said for output in self.outputs if output.name == SEEN), "")
        return ResumePoint(self.lineage, (), self.offered, ids)

    def accepts(self, sink: str) -> bool:
        """Whether an operator took a sink's content as it was by this epoch."""
        return self.adoption is not None and self.adoption.accepts(sink)

    @property
    def reached(self) -> SourceOffsets:
        """Where the next batch starts by the engine's own count."""
        offered = self.standing.offered
        return offered.end if offered else self.written.end

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`.

        Raises:
            UnreadableMarker: a member that this version does not know.
        """
        known(value, *_MEMBERS)
        return cls(
            number=value["number"],
            written=Slice.from_json(value["slice"]),
            chain=value["chain"],
            previous_chain=value.get("previous", ""),
            digest=Digest.from_json(value["digest"]),
            schema=value.get("schema", ""),
            sinks=tuple((sink, first) for sink, first in value.get("sinks", ())),
            lineage=Lineage.from_json(value["lineage"]) if "lineage" in value else None,
            sources=tuple(SourceIdentity.from_json(source) for source in value.get("sources", ())),
            manifest=value.get("manifest"),
            adoption=Adoption.from_json(value["adoption"]) if "adoption" in value else None,
            offered=Slice.from_json(value["offered"]) if "offered" in value else None,
            carried=ResumePoint.from_json(value["standing"]) if "standing" in value else None,
            series=value.get("series", 1),
            replaces=(value["replaces"][0], value["replaces"][1]) if "replaces" in value else None,
            outputs=tuple(OutputDigest.from_json(output) for output in value.get("outputs", ())),
            time=EpochTime.from_json(value["time"]) if "time" in value else None,
            panes=EpochWindows.from_json(value["panes"]) if "panes" in value else None,
            replays=ReplayedEpochs.from_json(value["replays"]) if "replays" in value else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Members to values, nested; ``standing`` only where the epoch's own words do not say it, ``series`` past 1."""
        return present(
            number=self.number,
            slice=self.written.to_json(),
            chain=self.chain,
            previous=self.previous_chain,
            digest=self.digest.to_json(),
            schema=self.schema,
            sinks=[list(pair) for pair in self.sinks],
            lineage=self.lineage and self.lineage.to_json(),
            sources=[source.to_json() for source in self.sources],
            manifest=self.manifest,
            adoption=self.adoption and self.adoption.to_json(),
            offered=self.offered and self.offered.to_json(),
            standing=self.carried and self.carried.to_json(),
            series=self.series if self.series > 1 else None,
            replaces=self.replaces and list(self.replaces),
            outputs=[output.to_json() for output in self.outputs],
            time=self.time and self.time.to_json(),
            panes=self.panes and self.panes.to_json(),
            replays=self.replays and self.replays.to_json(),
        )


_MEMBERS = (
    "number",
    "slice",
    "chain",
    "previous",
    "digest",
    "schema",
    "sinks",
    "lineage",
    "sources",
    "manifest",
    "adoption",
    "offered",
    "standing",
    "series",
    "replaces",
    "outputs",
    "time",
    "panes",
    "replays",
)


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
        known(value, "format", "pipeline", "sink", "fence", "epoch")
        try:
            return cls(
                value["pipeline"],
                value["sink"],
                Fence.from_json(value["fence"]),
                Epoch.from_json(value["epoch"]),
            )
        except UnreadableMarker:
            raise
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

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        said = {**self.to_json(), "position": model.place(self.position)}
        return model.pairs(said.items())


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One row of the ledger: an epoch with everything known about how it was committed.

    Attributes:
        pipeline: the user's stable name.
        fence: whose opening wrote the epoch.
        epoch: the epoch.
        receipts: one per sink.
        files: file lists of file sources, enough to rebuild the engine's source log.
        phases: ``(phase, seconds)``, those that the epoch went through until it was recorded: open, fence, execute,
            intend, fetch, stage, prepare, commit, look up.
        recorded_ms: when the ledger took it, milliseconds since 1970.
    """

    pipeline: str
    fence: Fence
    epoch: Epoch
    receipts: tuple[Receipt, ...]
    files: tuple[InputFile, ...] = ()
    phases: tuple[tuple[str, float], ...] = field(default=())
    recorded_ms: int = 0


def receipts_of(record: EpochRecord | None) -> Mapping[str, Receipt]:
    """What each sink answered, by its id; empty where nothing is recorded."""
    return {receipt.sink: receipt for receipt in record.receipts} if record else {}


# ---- Which epochs of another pipeline an epoch runs again.


@dataclass(frozen=True, slots=True)
class ReplayedEpochs:
    """Epochs in a row whose input an epoch has read again.

    Attributes:
        pipeline: whose they are.
        first: the first of them.
        last: the last one.
        chain: chain of the last: two histories in which anything differs up to there have other ones.
    """

    pipeline: str
    first: int
    last: int
    chain: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "pipeline", "epochs", "chain")
        return cls(value["pipeline"], value["epochs"][0], value["epochs"][1], value["chain"])

    def to_json(self) -> dict[str, Any]:
        """``epochs`` is ``[first, last]``."""
        return {"pipeline": self.pipeline, "epochs": [self.first, self.last], "chain": self.chain}

    @property
    def text(self) -> str:
        """``epoch 7 of orders``, ``epochs 7..9 of orders``."""
        which = f"epoch {self.first}" if self.first == self.last else f"epochs {self.first}..{self.last}"
        return f"{which} of {self.pipeline}"
