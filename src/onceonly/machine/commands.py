"""Commands of the coordinator and the runner's answers, as data."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly.machine.facts import Happening, Reading, Refusal
from onceonly.machine.writer_progress import RewoundPosition, TimedMarker
from onceonly.protocol import ExternalChange, Peek
from onceonly.protocol.batch import AsOf, Bound, RecordedInputFiles, Trim
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.model import Slice


@dataclass(frozen=True, slots=True)
class Probe:
    """Open every sink and read its newest fence. Answer: :class:`Probed`."""


@dataclass(frozen=True, slots=True)
class Probed:
    """Newest fence per sink, in order; ``None`` where there is none."""

    fences: tuple[Fence | None, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Read the ledger's head. Answer: :class:`Recalled`."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """The newest record (``None``: empty ledger), generations whose end is on record, whether a rewind put it there."""

    head: EpochRecord | None
    ended: frozenset[int] = frozenset()
    cut: RewoundPosition | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Look at every sink, without a fence. Answer: :class:`Looked`."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What stands in each sink, in order; stale, and reason enough only to refuse.

    Attributes:
        sights: of the sinks.
        ahead: the epochs past the newest one in the ledger that sinks tell of; ``None`` where that was not asked, as
            only the newest one can be among them.
    """

    sights: tuple[Peek, ...]
    ahead: tuple[Epoch, ...] | None = None


@dataclass(frozen=True, slots=True)
class Install:
    """Install ``fence`` in ``sink``. Answer: :class:`Installed`, :class:`Overtaken` or :class:`Unknown`."""

    sink: str
    fence: Fence


@dataclass(frozen=True, slots=True)
class Installed:
    """The fence stands and is ours."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another fence, not lower than ours, was read in the sink."""

    found: Fence


@dataclass(frozen=True, slots=True)
class Unknown:
    """The answer was lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class Again:
    """The sink took the transaction back for another writer's sake: nothing of it stands, and it may be tried again."""

    reason: str
    blocker: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read the position of ``sink`` and the epochs after ``after``. Answer: :class:`Reading` or :class:`Overtaken`."""

    sink: str
    since: Receipt | None
    after: int


@dataclass(frozen=True, slots=True)
class Index:
    """Enter this opening into the ledger, and the epochs that only the sinks know; sweep. Answer: :class:`Done`.

    Attributes:
        fence: ours.
        epochs: those that the ledger has to learn.
        lineage: the engine's names for the batch, or for the newest one that is known.
        kept: the manifest that the newest epoch names, which is not swept.
    """

    fence: Fence
    epochs: tuple[tuple[Marker, tuple[Receipt, ...]], ...]
    lineage: Lineage | None = None
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class Recollect:
    """Find the epoch that the offered batch id became, with all epochs after it. Answer: :class:`Recollected`.

    Attributes:
        query_id: of the offered batch.
        batch_id: of the offered batch.
        newest: number of the newest epoch that the sinks hold; 0 for none, and then no batch became one.
    """

    query_id: str
    batch_id: int
    newest: int


@dataclass(frozen=True, slots=True)
class Recollected:
    """The recorded epoch and the run of epochs from it to the newest; empty if there is none."""

    descent: tuple[Epoch, ...]


@dataclass(frozen=True, slots=True)
class Gather:
    """Find the input files of all recorded epochs, up to ``newest``. Answer: :class:`Gathered`."""

    newest: Epoch


@dataclass(frozen=True, slots=True)
class Gathered:
    """The input files that epochs hold, as far as the ledger knows them."""

    held: RecordedInputFiles


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a skipped batch for its state, writing nothing. Answer: :class:`Executed`."""


@dataclass(frozen=True, slots=True)
class Executed:
    """Digest of the rows that the batch gave this time."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class Intend:
    """Note the slice of the epoch about to be written. Answer: :class:`Done`.

    Attributes:
        number: of the epoch.
        fence: ours.
        slice: what is written.
        replaces: first and last of the epochs whose rows leave with it, which every sink must be able to do.
    """

    number: int
    fence: Fence
    slice: Slice
    replaces: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """Read the newest epochs of the dataset's other writers, without a fence. Answer: :class:`Polled`.

    Attributes:
        writers: names that are known; whoever else is found in a sink's target is read as well.
    """

    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Polled:
    """What other writers said last.

    Attributes:
        timed: a newest epoch of each that was found.
        unanswered: why some could not be read; empty where all could.
    """

    timed: tuple[TimedMarker, ...]
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read the manifest that a marker names. Answer: :class:`Staged` or :class:`Missing`."""

    manifest: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Have the batch lie still: written once, with a manifest, or in memory. Answer: ``Staged`` or ``Overtaken``.

    Attributes:
        number: of the epoch.
        fence: ours.
        slice: what is written.
        trim: which rows of the batch are left out.
        healing: whether it is computed again for sinks that were behind, so that no marker will name the bytes.
        lasting: whether the rows must outlive this process; else its memory will do.
        as_of: what ids are compared with, where a batch leaves out rows whose id was seen before.
        clock: what the rows are asked of time; ``None`` for nothing.
        bound: what windows go on from; ``None`` where rows are written as they come.
    """

    number: int
    fence: Fence
    slice: Slice
    trim: Trim | None = None
    healing: bool = False
    lasting: bool = True
    as_of: AsOf | None = None
    clock: Clock | None = None
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """The bytes lie still.

    Attributes:
        manifest: the reference to their manifest; ``None`` for rows in the memory of this process.
        rows: how many there are.
        digest: of the action.
        outputs: of the same action.
        times: what rows, and the user's function, say of time; ``None`` where they were not asked.
        panes: of windows; ``None`` where rows are written as they come.
    """

    manifest: str | None
    rows: int
    digest: Digest
    outputs: tuple[OutputDigest, ...] = ()
    times: RowTimes | None = None
    panes: EpochWindows | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """The staged bytes are gone or not what they were."""

    reason: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare the batch in ``sink``; answer: ``Prepared``, ``Overtaken`` or ``Again``.

    Attributes:
        sink: which.
        number: of the epoch.
        trim: which rows of the batch are left out.
        replaces: first and last of the epochs whose rows leave in the transaction that brings these.
        output: name of what the sink gets instead of all rows; ``None`` where it gets them all.
        beside: sinks that are prepared already and commit in the same transaction.
        clock: what the rows are asked of time; ``None`` for nothing, and where they were staged.
    """

    sink: str
    number: int
    trim: Trim | None = None
    replaces: tuple[int, int] | None = None
    output: str | None = None
    beside: tuple[str, ...] = ()
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows counted in the bytes, and digest and times of the same action; of an output, the digest of its rows."""

    rows: int
    digest: Digest
    times: RowTimes | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit rows and ``marker`` in one transaction. Answer: ``Committed``, ``Overtaken``, ``Unknown``, ``Again``.

    Attributes:
        marker: of the sink.
        beside: of other sinks, whose rows are in the same transaction.
    """

    marker: Marker
    beside: tuple[Marker, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The sink said yes, or was found to hold the epoch.

    Attributes:
        receipt: of the sink.
        passed: what others did and it let pass before that.
        beside: receipts of the other sinks in the transaction.
    """

    receipt: Receipt
    passed: tuple[ExternalChange, ...] = ()
    beside: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find out whether ``marker`` landed, and those ``beside``.

    Answer: ``Committed``, ``Absent``, ``Overtaken`` or ``Unknown``.
    """

    marker: Marker
    beside: tuple[Marker, ...] = ()


@dataclass(frozen=True, slots=True)
class Absent:
    """The commit did not land and cannot land any more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait a random while, growing with ``attempt`` (from 1). Answer: :class:`Done`."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Record:
    """Put the epoch with its receipts into the ledger. Answer: :class:`Done`.

    Attributes:
        epoch: the epoch.
        fence: ours.
        receipts: one per sink.
        skipped: whether it was recorded before: only what its record lacks is put there.
        replaced: the manifest of the epoch before, whose bytes no sink needs any more.
    """

    epoch: Epoch
    fence: Fence
    receipts: tuple[Receipt, ...] = ()
    skipped: bool = False
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Append to the ledger's event log. Answer: :class:`Done`."""

    happenings: tuple[Happening, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A command without an answer was carried out."""


@dataclass(frozen=True, slots=True)
class Return:
    """The callback may return: Spark writes its commit log only now."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The callback must raise."""

    refusal: Refusal


Command = (
    Probe
    | Recall
    | Look
    | Install
    | Read
    | Index
    | Recollect
    | Gather
    | Execute
    | Intend
    | Poll
    | Fetch
    | Stage
    | Prepare
    | Commit
    | LookUp
    | Wait
    | Record
    | Note
    | Return
    | Refuse
)
Outcome = (
    Probed
    | Recalled
    | Looked
    | Installed
    | Overtaken
    | Unknown
    | Again
    | Reading
    | Recollected
    | Gathered
    | Executed
    | Polled
    | Staged
    | Missing
    | Prepared
    | Committed
    | Absent
    | Done
)
