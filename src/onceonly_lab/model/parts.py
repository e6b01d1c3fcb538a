"""Frozen parts of a simulated world: targets, staging, ledger, budget.

Also holds functions over offsets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from onceonly.machine.facts import Offer
from onceonly.machine.overlap import held_files
from onceonly.machine.source_order import kafka_identity
from onceonly.protocol.batch import FileTrim, Trim, plain
from onceonly.protocol.batch import RecordedInputFiles as HeldFiles
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest, bad_in
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.ledger import RemovedEpoch
from onceonly_checkpoints.model import InputFile, SourceIdentity, SourceKind, SourceOffsets, canonical
from onceonly_lab.strenum import StrEnum

PIPELINE = "orders"
_TOPIC = "events"
SOURCE = SourceIdentity("0", kafka_identity("cluster", {_TOPIC: "the topic"}))
IDENTITY = "the first one"
"""What every simulated target is until it is replaced."""

NOBODY = Fence(0, "")


class Kind(StrEnum):
    """Which real sink a target is like."""

    POSTGRES = "postgres"
    DELTA = "delta"
    KAFKA = "kafka"
    PUTS = "puts"


KEEPERS = (Kind.POSTGRES, Kind.DELTA)
"""Kinds of sinks that keep seen keys and the state of windows. Of several the first kind does."""


def keeper_of(kinds: Sequence[str]) -> int | None:
    """Place of the sink that keeps seen keys or the state of windows; ``None``: none of them does."""
    return next((kinds.index(kind) for kind in KEEPERS if kind in kinds), None)


TRANSACTIONAL = (Kind.POSTGRES, Kind.DELTA, Kind.KAFKA)
"""Those that commit rows and marker together; the other one takes rows one by one."""

KEYS = 2
"""How many keys the records have in turn, in a target that takes rows one by one."""


class Harm(StrEnum):
    """What can happen to a target; the value says it in words."""

    PICKY = "one that refuses a row from now on"
    REPLACED = "replaced by an empty one"
    HOLLOW = "ill: it says yes and holds nothing"
    BACK_ONE = "set back by one epoch"
    BACK_TWO = "set back by two epochs"
    ASTRAY = "set back by three epochs to a backup of before the newest one that it holds was written again"
    ALTERED = "one in which somebody has changed every row"
    ROWS_ONE = "set back by one epoch, and its markers stay"
    ROWS_TWO = "set back by two epochs, and their markers stay"


MARKERS_LEFT = {Harm.ROWS_ONE: 1, Harm.ROWS_TWO: 2}
"""How many epochs each takes the rows of, as a RESTORE of Delta does: it writes the log on, and no marker leaves."""

DRAWN = tuple(sorted(set(Harm) - {Harm.ASTRAY, Harm.ALTERED}))
"""What random schedules draw. The other two make up rows, and know of no batch that is dealt out to several sinks."""


@cache
def offsets(record: int | None) -> SourceOffsets:
    """Where a topic stands that has given ``record`` records; ``None`` where the engine has no offset yet."""
    return SourceOffsets.of({"0": None if record is None else canonical({_TOPIC: {"0": record}})})


def record_at(source_offsets: SourceOffsets) -> int:
    """Inverse of :func:`offsets`; 0 where there is no offset yet."""
    text = source_offsets.entries[0][1]
    return int(json.loads(text)[_TOPIC]["0"]) if text else 0


@cache
def entries(batches: int) -> SourceOffsets:
    """Where a directory stands in the log that one checkpoint keeps of it, after so many batches."""
    return SourceOffsets.of({"0": canonical({"logOffset": batches - 1}) if batches else None})


_FILE = "file:///events/"


@cache
def files(start: int, end: int) -> tuple[InputFile, ...]:
    """The files of a directory, one for each record."""
    return tuple(InputFile(f"{_FILE}{record}", 1, 0) for record in range(start, end))


@cache
def directory(listed: tuple[InputFile, ...]) -> SourceIdentity:
    """A directory, with the list of the files that a batch reads."""
    return SourceIdentity(SOURCE.source, SourceKind.FILES.named("events"), chain.inputs(listed))


Records = int
"""A set of records: bit ``n`` stands for the record that ``n`` others come before."""


def between(start: int, end: int) -> Records:
    """Records from ``start`` to before ``end``."""
    return (1 << end) - (1 << start) if end > start else 0


def spelled(records: Records) -> str:
    """A set of records for a sentence, counted from 1."""
    numbers = [number for number in range(1, records.bit_length() + 1) if records >> (number - 1) & 1]
    if not numbers:
        return "none"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def kept(records: Records, trim: Trim | None) -> Records:
    """What of a batch is written when a part is left out."""
    if trim is None:
        return records
    if isinstance(trim, FileTrim):
        return sum(1 << _numbered(path) for path in trim.fresh) & records
    (span,) = trim.spans
    return records & ~between(0, span.fresh)


def missing(offered: Offer) -> Records:
    """Records of a batch whose files are gone."""
    return sum(1 << _numbered(path) for path in offered.missing)


def is_there(path: str, gone: Records) -> bool:
    """Whether an input file is there."""
    return not gone >> _numbered(path) & 1


def _numbered(path: str) -> int:
    return int(path.removeprefix(plain(_FILE)).removeprefix(_FILE))


def computed(records: Records, salt: int = 0) -> Digest:
    """The rows of records. ``salt`` tells one computation from another, where a plan is not deterministic."""
    return Digest(records.bit_count(), records, salt)


def records_in(content: Digest | None) -> Records:
    """Inverse of :func:`computed`, without the salt."""
    return content.high if content else 0


_COLUMNS = 1_000_000
"""Tells the columns of one call from those of another, beside any salt."""

_CHANGED = 500_000
"""Tells rows that somebody has changed from those that were computed, beside any salt."""


PICKED = "picked"
"""Name of the lab's one output beside that of bad rows."""


def picked(content: Digest, records: Records, *sinks: str) -> OutputDigest:
    """What sinks get instead of all rows: of the records that are wanted, in columns that no other call has."""
    digest = computed(records_in(content) & records, content.low + _COLUMNS * records)
    return OutputDigest(PICKED, sinks, "", digest, content.rows - digest.rows)


def computation(content: Digest) -> int:
    """Which computation rows are of, whichever of its columns they have."""
    return content.low % _COLUMNS


def set_aside(content: Digest, bad: Records, sink: str) -> tuple[Digest, OutputDigest]:
    """What the good records of rows are, and the output of the others, whose columns no other call has."""
    good = computed(records_in(content) & ~bad, content.low)
    bad_digest = computed(records_in(content) & bad, content.low + _COLUMNS * bad)
    return good, OutputDigest(
        BAD, (sink,), "", bad_digest, good.rows, (("expected", bad_digest.rows),) if bad_digest.rows else ()
    )


def together(content: Digest, outputs: tuple[OutputDigest, ...]) -> Digest:
    """Inverse of :func:`set_aside`: the rows as they were computed."""
    bad = bad_in(outputs)
    return computed(records_in(content) | records_in(bad.digest), content.low) if bad else content


def brought(content: Digest | None, outputs: tuple[OutputDigest, ...], sink: str) -> Digest | None:
    """What a sink gets of rows that lie ready with their outputs."""
    return next((output.digest for output in outputs if sink in output.sinks), content)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of one epoch as they lie in a target.

    Attributes:
        epoch: the epoch; its slice says which records of the source these rows are.
        marker: the marker beside them; ``None`` where it was not written yet.
        content: which computation of the slice they are.
        whole: whether all of them are there.
        stale: whether they landed under a fence that was not the newest of the target.
        replaced: whether they have left with the rows of an epoch that replaces theirs; the marker stays.
        seen: whether their keys stand in the catalogue, where the target keeps one.
        back: whether somebody has taken them back; the marker stays.
    """

    epoch: Epoch
    marker: Marker | None
    content: Digest | None
    whole: bool = True
    stale: bool = False
    replaced: bool = False
    seen: bool = True
    back: bool = False


def records_of(epoch: Epoch) -> Records:
    """The records that an epoch brought, good and bad."""
    return records_in(together(epoch.digest, epoch.outputs))


def good_of(epoch: Epoch) -> Records:
    """The records that an epoch brought, without those that were set aside."""
    return records_in(epoch.digest)


def accounted(held: Held, sink: str) -> Records:
    """Records that stand in a sink, and those that are not for it."""
    epoch = held.epoch
    unwanted = records_of(epoch) & ~records_in(epoch.digest_in(sink))
    return records_in(held.content) | unwanted


@dataclass(frozen=True, slots=True)
class Flight:
    """A change that was sent and not answered, which may land yet.

    Attributes:
        fence: whose change it is; the fence itself, where it brings no rows.
        held: the rows it brings; ``None`` for a fence.
        decided: it has been decided and is only hidden (Kafka); it lands before anybody who waits for it reads.
        turn: the target's turn that it was made for.
        clears: whether rows that its epoch replaces leave with it.
        beside: the other sinks of its transaction: it lands while it is in flight in all of them, and in all at once.
    """

    fence: Fence
    held: Held | None
    decided: bool = False
    turn: int = 0
    clears: bool = True
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What one sink writes to.

    Attributes:
        name: the sink's id.
        kind: which real sink it is like.
        fence: the newest fence.
        held: rows, in the order in which they landed.
        flights: changes without an answer.
        turn: length of the Delta log, epoch of the Kafka producer; counted only where steps are fine.
        half: rows in an open Kafka transaction that an older end may yet commit.
        lowered: whether a fence was ever replaced by a lower one.
        stopped_by: owner of the fence that a driver met here last, and stopped.
        barren: owner of a fence who was refused himself, though he could have known before.
        harm: what has happened to it; empty: nothing.
        rows: the record that stands under each key, counted from 1, 0 for none; only where rows are taken one by one.
        changed: the fence that stood when somebody took rows back, while no epoch and no fence has settled that.
    """

    name: str
    kind: Kind
    fence: Fence | None = None
    held: tuple[Held, ...] = ()
    flights: tuple[Flight, ...] = ()
    turn: int = 0
    half: Held | None = None
    lowered: bool = False
    stopped_by: str = ""
    barren: str = ""
    harm: str = ""
    rows: tuple[int, ...] = (0,) * KEYS
    changed: Fence | None = None

    def __hash__(self) -> int:
        # The rest is told apart by equality, which is quick where values share their parts.
        newest = self.held[-1].marker if self.held else None
        owned = newest.fence.generation if newest else 0
        chains = tuple([held.epoch.chain for held in self.held])
        return hash((self.name, self.fence, self.harm, chains, owned, len(self.flights), self.turn))

    @property
    def broken(self) -> bool:
        """Whether what it has confirmed may be gone."""
        return self.harm not in ("", Harm.PICKY)

    @property
    def identity(self) -> str:
        """What its receipts say that it is."""
        return "another one" if self.harm == Harm.REPLACED else IDENTITY

    @property
    def content(self) -> int:
        """The epoch whose rows stand: that of the newest marker, but where rows were taken back; 0 for none."""
        return next((held.epoch.number for held in reversed(self.held) if not held.back), 0)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Markers, oldest first."""
        return tuple(held.marker for held in self.held if held.marker)

    @property
    def newest(self) -> Marker | None:
        """The newest marker."""
        markers = self.markers
        return markers[-1] if markers else None


def newest_of_each_key(records: Records) -> tuple[int, ...]:
    """Of a set of records the newest of each key, counted from 1; 0 for none."""
    there = [number for number in range(1, records.bit_length() + 1) if records >> (number - 1) & 1]
    return tuple(max((number for number in there if (number - 1) % KEYS == key), default=0) for key in range(KEYS))


def fenced(target: Target, fence: Fence) -> Target:
    """The target with another newest fence."""
    lowered = target.fence is not None and fence.generation < target.fence.generation
    return replace(target, fence=fence, lowered=target.lowered or lowered)


def cleared(target: Target, replaces: tuple[int, int] | None) -> Target:
    """The target without the rows of these epochs."""
    if replaces is None:
        return target
    first, last = replaces
    left = tuple(
        replace(held_epoch, content=None, replaced=True) if first <= held_epoch.epoch.number <= last else held_epoch
        for held_epoch in target.held
    )
    return replace(target, held=left)


DROPPED = "taken out of the pipeline"
"""What ``recover drop-sink`` makes of a target: it keeps what it holds, and nothing is promised of it."""

RESTORED = frozenset({Harm.BACK_ONE, Harm.BACK_TWO})
RESTORING = RESTORED | {Harm.ASTRAY}
"""These are done by somebody who has stopped every driver before, since they bring an older fence back."""

STOPPING = RESTORED.union(MARKERS_LEFT)
"""Before these somebody stops every driver, or random schedules say so: no look can tell who would be refused."""


def harmed(target: Target, harm: Harm) -> Target | None:
    """The target afterwards; ``None`` where there is nothing to harm in this way.

    One that is restored from a backup brings the fence of that day back.
    """
    if harm is Harm.REPLACED:
        return Target(target.name, target.kind, harm=harm) if target.held else None
    if harm in {Harm.HOLLOW, Harm.PICKY}:
        return replace(target, harm=harm)
    if harm is Harm.ALTERED:
        return replace(target, harm=harm, held=tuple(map(_altered, target.held)))
    if harm in MARKERS_LEFT:
        return _taken_back(target, harm)
    back = {Harm.BACK_ONE: 1, Harm.BACK_TWO: 2, Harm.ASTRAY: 3}[harm]
    if len(target.held) < back + (harm is Harm.ASTRAY):
        return None
    held = target.held[:-back]
    if harm is Harm.ASTRAY:
        held = (*held[:-1], _of_before(held[-1]))
    fence = held[-1].marker.fence if held and held[-1].marker else None
    return Target(target.name, target.kind, fence, held, harm=harm)


def _taken_back(target: Target, harm: Harm) -> Target | None:
    """The target without the rows of its newest epochs; ``None`` where nothing of the kind can be done to it."""
    count = MARKERS_LEFT[harm]
    stays, leaves = target.held[:-count], target.held[-count:]
    if target.kind is not Kind.DELTA or len(leaves) < count or any(entry.epoch.replaces for entry in leaves):
        return None
    held = (*stays, *(replace(entry, content=None, back=True) for entry in leaves))
    fence, turn = target.fence or NOBODY, target.turn + 1
    return replace(target, held=held, flights=(), harm=harm, changed=fence, turn=turn)


def stood(target: Target, epoch: int) -> Target:
    """The target whose newest epoch is an older one, by a fence that has just been installed."""
    return replace(
        target, held=tuple(held_epoch for held_epoch in target.held if held_epoch.epoch.number <= epoch), changed=None
    )


def _of_before(held: Held) -> Held:
    """The epoch of its number that was cut off: it has other rows of the same slice, and so another chain."""
    content = replace(held.epoch.digest, low=held.epoch.digest.low + _CHANGED)
    epoch = chain.linked(replace(held.epoch, digest=content))
    return replace(held, epoch=epoch, content=content, marker=held.marker and replace(held.marker, epoch=epoch))


def _altered(held: Held) -> Held:
    content = held.content
    return replace(held, content=replace(content, low=content.low + _CHANGED) if content and content.rows else content)


def receipt(marker: Marker, identity: str = IDENTITY) -> Receipt:
    """What a target answers for an epoch. Positions are left out: no decision reads them."""
    epoch = marker.epoch
    return Receipt(marker.sink, epoch.number, epoch.chain, identity, (), epoch.digest_in(marker.sink).rows)


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """One directory below staging.

    Attributes:
        reference: what markers carry.
        number: of the epoch.
        generation: of the opening that staged it.
        content: which computation it is.
        flushed: whether it survives a power failure.
        torn: whether a power failure took some of it.
        outputs: what some of the sinks get of it.
    """

    reference: str
    number: int
    generation: int
    content: Digest
    flushed: bool = True
    torn: bool = False
    outputs: tuple[OutputDigest, ...] = ()


@dataclass(frozen=True, slots=True)
class StagingArea:
    """Everything staged, by reference."""

    epochs: tuple[StagedEpoch, ...] = ()

    def holds(self, reference: str) -> StagedEpoch | None:
        """What a reference leads to."""
        return next((staged for staged in self.epochs if staged.reference == reference), None)

    def add(self, staged: StagedEpoch) -> StagingArea:
        """One epoch more."""
        epochs = self.drop(staged.reference).epochs
        return StagingArea(tuple(sorted((*epochs, staged), key=lambda epoch: epoch.reference)))

    def drop(self, reference: str | None) -> StagingArea:
        """Without that epoch."""
        return StagingArea(tuple(staged for staged in self.epochs if staged.reference != reference))

    def sweep(self, generation: int, keep: str | None) -> StagingArea:
        """Without what lower generations left; ``keep`` stays."""
        stays = (epoch for epoch in self.epochs if epoch.generation >= generation or epoch.reference == keep)
        return StagingArea(tuple(stays))

    def after_power_failure(self) -> StagingArea:
        """Torn, as far as it was not flushed."""
        return StagingArea(tuple(epoch if epoch.flushed else replace(epoch, torn=True) for epoch in self.epochs))


class Conflict(Exception):
    """The ledger holds another epoch under the same number."""


@dataclass(frozen=True, slots=True)
class SimulatedLedger:
    """Records by number; the fence that wrote one is left out, because no decision reads it.

    Attributes:
        records: oldest first.
        generation: the newest one that was entered; kept only where generations are taken from the ledger.
        aside: epochs that were set aside by a rewind, oldest first.
    """

    records: tuple[EpochRecord, ...] = ()
    generation: int = 0
    aside: tuple[Epoch, ...] = ()

    def __hash__(self) -> int:
        return hash((self.generation, tuple([record.epoch.chain for record in self.records])))

    @property
    def head(self) -> EpochRecord | None:
        """The newest record."""
        return self.records[-1] if self.records else None

    def record(self, epoch: Epoch, receipts: tuple[Receipt, ...], files: tuple[InputFile, ...] = ()) -> SimulatedLedger:
        """One record more, or the same one with its receipts and files replaced where some are given.

        Raises:
            Conflict: another chain is recorded under this number.
        """
        records_by_number = {record.epoch.number: record for record in self.records}
        earlier = records_by_number.get(epoch.number)
        if earlier and earlier.epoch.chain != epoch.chain:
            raise Conflict(epoch.number)
        if earlier:
            receipts, files = receipts or earlier.receipts, files or earlier.files
        records_by_number[epoch.number] = EpochRecord(PIPELINE, NOBODY, epoch, receipts, files)
        return replace(self, records=tuple(records_by_number[number] for number in sorted(records_by_number)))

    def supersede(self, first: int) -> SimulatedLedger:
        """With the epochs from ``first`` on set aside."""
        epochs = tuple(record.epoch for record in self.records if record.epoch.number >= first)
        return replace(self, records=self.records[: len(self.records) - len(epochs)], aside=(*self.aside, *epochs))

    def superseded(self, after: int) -> tuple[RemovedEpoch, ...]:
        """What was ever set aside of epochs beyond ``after``."""
        return tuple(RemovedEpoch(PIPELINE, epoch, "cut back") for epoch in self.aside if epoch.number > after)

    def completed(self, number: int, files: tuple[InputFile, ...]) -> SimulatedLedger:
        """With the files of an epoch whose record was read back from a marker, which names none."""
        match = next((record for record in self.records if record.epoch.number == number), None)
        return self if match is None or match.files or not files else self.record(match.epoch, (), files)

    def descent(self, query_id: str, batch_id: int, last: int) -> tuple[Epoch, ...]:
        """The newest epoch that a batch of a query became, with those after it up to ``last``."""
        numbers = [
            record.epoch.number
            for record in self.records
            if record.epoch.lineage
            and (record.epoch.lineage.query_id, record.epoch.lineage.batch_id) == (query_id, batch_id)
        ]
        if not numbers:
            return ()
        return tuple(record.epoch for record in self.records if numbers[-1] <= record.epoch.number <= last)

    def held(self, last: Epoch) -> HeldFiles:
        """The input files of all recorded epochs, as far as they are known."""
        return held_files([record for record in self.records if record.epoch.number <= last.number], last)

    def alike(self, offered: Offer, last: int) -> tuple[Epoch, ...]:
        """What a ledger answers that goes by the text of a slice: the epoch, whichever batch it was."""
        numbers = [record.epoch.number for record in self.records if record.epoch.written == offered.slice]
        return tuple(record.epoch for record in self.records if numbers and numbers[-1] <= record.epoch.number <= last)


@dataclass(frozen=True, slots=True)
class Desk:
    """What is known outside of drivers and stores.

    Attributes:
        gone: records whose input files are gone.
        lost: records that accepted commands have given up, by sink; empty name: in every sink.
        doubled: records that accepted commands allow to be written again.
        program: what the user's program does with a batch.
        obeyed: how many printed commands were obeyed.
        cut: how many of the operator's commands were killed before their end.
        left_out: the sink that the program's call does not name any more.
    """

    gone: Records = 0
    lost: tuple[tuple[str, Records], ...] = ()
    doubled: Records = 0
    program: str = ""
    obeyed: int = 0
    cut: int = 0
    left_out: str = ""

    def given_up(self, sink: str) -> Records:
        """Records that a sink need not hold."""
        lost_records = 0
        for name, records in self.lost:
            lost_records |= records if name in ("", sink) else 0
        return lost_records


@dataclass(frozen=True, slots=True)
class Left:
    """How often something may still happen.

    Attributes:
        times: 0: not any more.
    """

    times: int

    @property
    def less(self) -> Left:
        """One time less."""
        return Left(self.times - 1)
