"""Epoch, marker, fence and receipt: frozen values with one JSON form.

Every ``to_json`` returns plain JSON types; ``from_json`` is its exact inverse. ``text`` is the canonical one-line
spelling (sorted keys, no blanks) that is hashed and compared. All are in the one form of ``model``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly_checkpoints import model
from onceonly_checkpoints.code_version import Code, PlanFingerprint
from onceonly_checkpoints.digests import (
    SEEN_IDS,
    STATE,
    WINDOWS,
    Digest,
    OutputDigest,
    bad_in,
    beside_windows,
    repeated_in,
)
from onceonly_checkpoints.epoch_time import EpochTime, EpochWindows

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = 1
"""Version of the durable marker format. A reader refuses a higher one."""


@dataclass(frozen=True, slots=True)
class Fence(model.Record):
    """A fencing token: an integer raised at each opening, with the random token of the opening that raised it.

    Two openings may pick one generation. It belongs to the owner that the sink has installed.

    Attributes:
        generation: greater than every one before.
        owner: a random token, then a blank and the user and process, for people. Compared as a whole.
    """

    generation: int
    owner: str

    @property
    def who(self) -> str:
        """User and process that raised it: ``user@host:pid application``, or empty if not noted."""
        return self.owner.partition(" ")[2]

    @property
    def text(self) -> str:
        """The fence in words: ``generation 4 (ann@host:4711 application_1)``."""
        return f"generation {self.generation} ({self.who or f'owner {self.owner}' if self.owner else 'nobody known'})"


@dataclass(frozen=True, slots=True)
class StateVersion(model.Record):
    """A version of Spark's state as its files show it. Bytes are not read.

    Attributes:
        version: number of the batch that begins with it.
        operators: stateful operator, its stores with the version, and a digest of the names and sizes of their files.
        lacking: stores without the version, ``operator/partition/store``.
    """

    version: int
    operators: tuple[tuple[str, int, str], ...]
    lacking: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """It in words: ``version 7; operator 0: 4 stores, 58f1c0ad91f3``. Equal texts are equal versions."""
        operators = (f"operator {name}: {stores} stores, {digest}" for name, stores, digest in self.operators)
        lacking = f"missing in {model.shorten_list(self.lacking, 3)}" if self.lacking else ""
        files = filter(None, (*operators, lacking)) if self.operators else ("no files",)
        return "; ".join((f"version {self.version}", *files))


@dataclass(frozen=True, slots=True)
class Lineage(model.Record):
    """The engine's names for an epoch's batch. Recorded and compared, never an identity.

    Attributes:
        query_id: Spark's query id, from the checkpoint's ``metadata`` file.
        run_id: Spark's id of one start of the query.
        checkpoint: resolved checkpoint root, a URI.
        batch_id: the engine's number. It restarts, repeats with other content, and has legal gaps.
        batch_timestamp_ms: clock reading that the engine logged for the batch, milliseconds since 1970.
        watermark_ms: event-time watermark in force during the batch, milliseconds since 1970.
        version: the user's name for the code, or empty. A note, not part of the chain.
        plan: fingerprint of that code, ``None`` if the plan is hidden. A note as well.
        state: what the batch left, ``None`` for a plan without state. A note: a replay leaves other bytes of the same.
    """

    query_id: str
    run_id: str
    checkpoint: str
    batch_id: int
    batch_timestamp_ms: int
    watermark_ms: int
    version: str = ""
    plan: PlanFingerprint | None = None
    state: StateVersion | None = None

    @property
    def code(self) -> Code:
        """The code that ran."""
        return Code(self.version, self.plan)


NOTES = ("version", "plan", "state")
"""Members of a lineage that the chain leaves out: another code that gives the same rows makes no other epoch."""


@dataclass(frozen=True, slots=True)
class ResumePoint(model.Record):
    """What the engine's next batch is compared with: the same for an epoch and for those without a batch after it.

    Attributes:
        lineage: the engine's names for the newest batch; ``None`` before the first.
        accepted: what operators accepted since that batch, oldest first: what is in force.
        offered: the newest batch's own slice, where it is not, or not proven by offsets alone to be, the written one,
            and nobody has moved the position since; else ``None``.
        ids: what made the ids of its rows, as the call said it; empty where they are not kept, or nobody knows.
    """

    lineage: Lineage | None = None
    accepted: tuple[model.Adoption, ...] = ()
    offered: model.Slice | None = None
    ids: str = ""

    def accepts(self, *kinds: model.AdoptionKind) -> bool:
        """Whether one of these kinds is in force."""
        return any(adoption.kind in kinds for adoption in self.accepted)


Columns = tuple[tuple[str, str, bool], ...]
"""Name, Spark's type, and whether a value may be null, of each column in order."""


@dataclass(frozen=True, slots=True)
class OutputColumns(model.Record):
    """Columns of all rows (``output`` is empty) or of one output, from an epoch on.

    ``before`` has those until then. It is empty if they are the same, or not known.
    """

    output: str = field(metadata=model.OPTIONAL)
    columns: Columns
    before: Columns = ()

    @property
    def text(self) -> str:
        """Each column that differs, with both sides: ``id: int null -> bigint null; note: none -> string null``."""
        if not self.before:
            return ""
        old, new = _types(self.before), _types(self.columns)
        differences = [
            f"{name}: {old.get(name, 'none')} -> {new.get(name, 'none')}"
            for name in {**old, **new}
            if old.get(name) != new.get(name)
        ]
        return "; ".join(differences) or f"order: {', '.join(old)} -> {', '.join(new)}"


def _types(columns: Columns) -> dict[str, str]:
    return {name: f"{kind} {'null' if nullable else 'not null'}" for name, kind, nullable in columns}


@dataclass(frozen=True, slots=True)
class Epoch(model.Record):
    """One epoch, the same in every sink that holds it.

    Attributes:
        number: dense from 1, owned by the pipeline.
        written: the slice that was written. It starts at the end of the epoch before.
        chain: hash over all other content of the epoch (see ``chain.link``).
        previous_chain: chain of epoch ``number - 1``, empty for the first.
        digest: of all good rows, which every sink holds that none of ``outputs`` names.
        schema: fingerprint of their columns.
        sinks: ``(sink id, first epoch of that sink)`` for every sink of the epoch.
        lineage: the engine's names for the batch. ``None`` for an adoption, which no batch produced, but a takeover of
            an older job names that job's last batch.
        manifest: location and hash of the staged bytes, ``None`` if the epoch went to one sink directly.
        adoption: an operator's decision, recorded by this epoch without rows. ``None`` for an ordinary epoch.
        offered: the batch's own slice, if it is not the written one, or offsets alone do not prove that it is.
        carried: reference for the next batch, if the epoch's own members do not give it.
        series: number of the first epoch whose rows are current: 1 before any full refresh, and copied from epoch to
            epoch.
        replaces: ``(first, last)`` of the epochs whose rows leave in the transaction of this one.
        outputs: rows of the sinks that do not hold all rows.
        time: event-time limits of its rows, ``None`` if they are not tracked.
        windows: its windows, ``None`` if rows are written as they come.
        replays: the epochs of another pipeline that it runs again.
        columns: columns of its rows and outputs, if any of them differ from the newest recorded ones.
        columns_since: the newest epoch before it that has ``columns``, or 0 if it has some, or none does.
    """

    RENAMED: ClassVar[Mapping[str, str]] = {"written": "slice", "previous_chain": "previous", "carried": "resume"}

    number: int
    written: model.Slice
    chain: str
    previous_chain: str = field(metadata=model.OPTIONAL)
    digest: Digest
    schema: str = field(metadata=model.OPTIONAL)
    sinks: tuple[tuple[str, int], ...] = field(metadata=model.OPTIONAL)
    lineage: Lineage | None = field(metadata=model.OPTIONAL)
    sources: tuple[model.SourceIdentity, ...] = ()
    manifest: str | None = None
    adoption: model.Adoption | None = None
    offered: model.Slice | None = None
    carried: ResumePoint | None = None
    series: int = 1
    replaces: tuple[int, int] | None = None
    outputs: tuple[OutputDigest, ...] = ()
    time: EpochTime | None = None
    windows: EpochWindows | None = None
    replays: ReplayedEpochs | None = None
    columns: tuple[OutputColumns, ...] = ()
    columns_since: int = 0

    @property
    def columns_epoch(self) -> int:
        """The epoch that has the columns of this one, or 0 if none does."""
        return self.number if self.columns else self.columns_since

    @property
    def changed_columns(self) -> str:
        """The columns that changed with it, by output, with both sides. Empty for none."""
        texts = ((part.output, part.text) for part in self.columns)
        return "; ".join(f"output {output}: {text}" if output else text for output, text in texts if text)

    def output(self, sink: str) -> OutputDigest | None:
        """The output of a sink, or ``None`` if it holds all rows."""
        return next((output for output in self.outputs if sink in output.sinks), None)

    def digest_in(self, sink: str) -> Digest:
        """Digest of the rows that a sink holds of this epoch."""
        output = self.output(sink)
        return output.digest if output else self.digest

    def schema_in(self, sink: str) -> str:
        """Fingerprint of the columns that a sink holds of this epoch."""
        output = self.output(sink)
        return output.schema if output else self.schema

    def only_in(self, sink: str) -> int:
        """Rows of this epoch that no other sink holds (bad rows, a table of a route), 0 if another sink has them."""
        output = self.output(sink)
        others = (other for other, first in self.sinks if other != sink and first <= self.number)
        return 0 if any(self.output(other) == output for other in others) else self.digest_in(sink).rows

    @property
    def rows(self) -> int:
        """Rows that its sinks got, without rows of state, which are ours alone. Good rows, if windows took them."""
        if beside_windows(self.outputs):
            return self.digest.rows
        unseen = (part for part in self.outputs if part.name == STATE or (part.name == WINDOWS and not part.sinks))
        return self.digest.rows - sum(part.digest.rows for part in unseen)

    def rows_in(self, sinks: Sequence[str]) -> int:
        """Rows of it that these sinks hold, counted once if several hold them. Without sinks, as :attr:`rows`."""
        outputs = {output.name if (output := self.output(sink)) else "": self.digest_in(sink).rows for sink in sinks}
        return sum(outputs.values()) if sinks else self.rows

    @property
    def came(self) -> int:
        """Rows of its batch, before any were aggregated into windows, set aside or left out."""
        if self.windows and not beside_windows(self.outputs):
            return self.windows.rows
        return self.computed.rows + (self.bad.digest.rows if self.bad else 0)

    @property
    def bad(self) -> OutputDigest | None:
        """Its bad rows, or ``None`` without expectations."""
        return bad_in(self.outputs)

    @property
    def repeated(self) -> Digest | None:
        """Its rows whose id had been seen before, which no sink got, or ``None`` if ids are not kept."""
        return repeated_in(self.outputs)

    @property
    def computed(self) -> Digest:
        """Its good rows and those whose id had been seen before. The plan gives them, whichever ids are known."""
        return self.digest + self.repeated if self.repeated else self.digest

    @property
    def windows_since(self) -> int:
        """The first epoch of the unbroken run of window state up to this one."""
        return max(self.series, self.windows.since if self.windows else 1)

    @property
    def planned(self) -> model.Slice:
        """The slice of the batch as the engine planned it."""
        return self.offered or self.written

    @property
    def resume_point(self) -> ResumePoint:
        """Reference for the next batch."""
        if self.carried:
            return self.carried
        ids = next((output.definition for output in self.outputs if output.name == SEEN_IDS), "")
        return ResumePoint(self.lineage, (), self.offered, ids)

    def accepts(self, sink: str) -> bool:
        """Whether this epoch records that an operator accepted a sink's content as it was."""
        return self.adoption is not None and self.adoption.accepts(sink)

    @property
    def reached(self) -> model.SourceOffsets:
        """Start of the next batch by the engine's own count."""
        offered = self.resume_point.offered
        return offered.end if offered else self.written.end


@dataclass(frozen=True, slots=True)
class Marker(model.Record):
    """Record inside a sink, in the transaction of its epoch's rows.

    ``sink`` is the id of one logical write, unique in the pipeline. ``fence`` is that of the opening that wrote it.
    """

    pipeline: str
    sink: str
    fence: Fence
    epoch: Epoch

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`. Raises :class:`UnreadableMarker` for a newer format, or if it is not a marker."""
        if value.get("format") != FORMAT:
            raise model.UnreadableMarker(f"marker format {value.get('format')!r}; this version reads {FORMAT}")
        try:
            return cls(**model.values_of(cls, {name: member for name, member in value.items() if name != "format"}))
        except model.UnreadableMarker:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise model.UnreadableMarker(f"damaged marker: {error!r}") from error

    def to_json(self) -> dict[str, Any]:
        """Members to values, nested, with the format version."""
        return {"format": FORMAT, **model.members_of(self)}

    @property
    def text(self) -> str:
        """Canonical spelling, as stored in sinks that keep text."""
        return model.canonical(self.to_json())


@dataclass(frozen=True, slots=True)
class Receipt(model.Record):
    """A sink's answer to the commit of an epoch.

    Attributes:
        identity: of the target (Delta table id, or Postgres system identifier and table oid). A restored or recreated
            target changes it.
        position: coordinates of the epoch in the sink, e.g. ``{"version": 12}`` or ``{"timeline": 1}``.
        rows: rows that the sink reports as written, for an upsert rows offered.
    """

    sink: str
    epoch: int
    chain: str
    identity: str
    position: tuple[tuple[str, int | str], ...] = field(metadata=model.BY_NAME)
    rows: int

    def __repr__(self) -> str:
        position = model.position_text(self.position)
        return model.one_line(f"{self.sink} epoch {self.epoch}: {self.rows} rows{', ' * bool(position)}{position}")

    def at(self, name: str) -> int | str | None:
        """Return one coordinate of the position. ``None`` if the sink has no such coordinate."""
        return dict(self.position).get(name)

    def _repr_html_(self) -> str:
        fields = {**self.to_json(), "position": model.position_text(self.position)}
        return model.pairs(fields.items())


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One row of the ledger: an epoch with all facts of its commit.

    Attributes:
        fence: that of the opening that wrote the epoch.
        files: file lists of file sources, enough to rebuild the engine's source log.
        phases: ``(phase, seconds)`` of the phases until it was recorded: open, fence, execute, intend, fetch, stage,
            prepare, commit, look up.
        recorded_ms: time of recording, milliseconds since 1970.
    """

    pipeline: str
    fence: Fence
    epoch: Epoch
    receipts: tuple[Receipt, ...]
    files: tuple[model.InputFile, ...] = ()
    phases: tuple[tuple[str, float], ...] = field(default=())
    recorded_ms: int = 0

    @property
    def lacking(self) -> tuple[str, ...]:
        """Sinks that have not confirmed the epoch under its chain. Without any, it is sealed."""
        confirmed = {receipt.sink for receipt in self.receipts if receipt.chain == self.epoch.chain}
        return tuple(sink for sink, _ in self.epoch.sinks if sink not in confirmed)


def receipts_of(record: EpochRecord | None) -> Mapping[str, Receipt]:
    """Receipts by sink id, empty without a record."""
    return {receipt.sink: receipt for receipt in record.receipts} if record else {}


# ---- Which epochs of another pipeline an epoch runs again.


@dataclass(frozen=True, slots=True)
class ReplayedEpochs(model.SpanRecord):
    """Epochs in a row whose input an epoch has read again.

    ``chain`` is that of ``last``: two histories in which anything differs up to there have other ones.
    """

    pipeline: str
    first: int
    last: int
    chain: str

    @property
    def text(self) -> str:
        """``epoch 7 of orders``, ``epochs 7..9 of orders``."""
        which = f"epoch {self.first}" if self.first == self.last else f"epochs {self.first}..{self.last}"
        return f"{which} of {self.pipeline}"
