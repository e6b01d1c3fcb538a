"""Commands of the coordinator and the runner's answers, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.machine.facts import Happening, Reading, Refusal
from onceonly.machine.writer_progress import RewoundPosition, TimedMarker
from onceonly.protocol import Peek
from onceonly.protocol.batch import AsOf, Bound, RecordedInputFiles, Trim
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, OutputColumns, Receipt, StateVersion
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Slice

if TYPE_CHECKING:
    from onceonly.protocol.row_rules import BrokenCheck


class Command:
    """What the runner is to do next."""

    __slots__ = ()


class Answer:
    """What came of a command. A :class:`Reading` is another one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Probe(Command):
    """Open every sink and read its newest fence. Answer: :class:`Probed`."""


@dataclass(frozen=True, slots=True)
class Probed(Answer):
    """Newest fence per sink, in order, or ``None`` for none."""

    fences: tuple[Fence | None, ...]


@dataclass(frozen=True, slots=True)
class Recall(Command):
    """Read the ledger's head. Answer: :class:`Recalled`."""


@dataclass(frozen=True, slots=True)
class Recalled(Answer):
    """The ledger's newest record with the generations whose end it has. ``cut``: a rewind put the ledger there.

    ``left`` has the states that replays left.
    """

    head: EpochRecord | None
    ended: frozenset[int] = frozenset()
    cut: RewoundPosition | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look(Command):
    """Peek at every sink without a fence. Answer: :class:`Looked`."""


@dataclass(frozen=True, slots=True)
class Looked(Answer):
    """Contents of each sink, in order. They are stale, so they can only refuse.

    ``ahead`` has the epochs in the sinks past the newest one in the ledger. ``None`` if not read, as only the newest
    epoch can be among them.
    """

    sights: tuple[Peek, ...]
    ahead: tuple[Epoch, ...] | None = None


@dataclass(frozen=True, slots=True)
class Install(Command):
    """Install ``fence`` in ``sink``. Answer: :class:`Installed`, :class:`Overtaken` or :class:`Unknown`."""

    sink: str
    fence: Fence


@dataclass(frozen=True, slots=True)
class Installed(Answer):
    """The sink has our fence."""


@dataclass(frozen=True, slots=True)
class Overtaken(Answer):
    """Another fence, not lower than ours, was read in the sink."""

    current_fence: Fence


@dataclass(frozen=True, slots=True)
class Unknown(Answer):
    """The answer was lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class RolledBack(Answer):
    """The sink rolled back for another writer's sake. It holds nothing of the transaction, which may be retried."""

    reason: str
    blocker: str


@dataclass(frozen=True, slots=True)
class Read(Command):
    """Read the position of ``sink`` and the epochs after ``after``. Answer: :class:`Reading` or :class:`Overtaken`."""

    sink: str
    since: Receipt | None
    after: int


@dataclass(frozen=True, slots=True)
class Index(Command):
    """Record this opening in the ledger, with epochs that only the sinks know, and sweep. Answer: :class:`Indexed`.

    ``lineage`` is of the batch, or of the newest known one. The sweep keeps ``newest_manifest``. ``columns_epoch`` is
    the epoch whose columns are wanted, or 0.
    """

    fence: Fence
    epochs: tuple[tuple[Marker, tuple[Receipt, ...]], ...]
    lineage: Lineage | None = None
    newest_manifest: str | None = None
    columns_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Indexed(Answer):
    """The ledger has them. ``columns`` are empty if it lacks the epoch."""

    columns: tuple[OutputColumns, ...] = ()


@dataclass(frozen=True, slots=True)
class Recollect(Command):
    """Find the epoch of the offered batch id, with all later ones. ``newest`` is 0 if no batch became an epoch."""

    query_id: str
    batch_id: int
    newest: int


@dataclass(frozen=True, slots=True)
class Recollected(Answer):
    """The recorded epoch and all after it up to the newest, empty if there is none, and the one before it."""

    descent: tuple[Epoch, ...]
    preceding: Epoch | None = None


@dataclass(frozen=True, slots=True)
class Gather(Command):
    """Find the input files of all recorded epochs, up to ``newest``. Answer: :class:`Gathered`."""

    newest: Epoch


@dataclass(frozen=True, slots=True)
class Gathered(Answer):
    """Input files of recorded epochs, as far as the ledger has them."""

    held: RecordedInputFiles


@dataclass(frozen=True, slots=True)
class Execute(Command):
    """Run a skipped batch for its state, and write nothing. Answer: :class:`Executed`.

    ``aside``: the checks for which all of its rows are bad.
    """

    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Executed(Answer):
    """Digest of the rows from this run of the batch, and the state that it left."""

    digest: Digest
    state: StateVersion | None = None


@dataclass(frozen=True, slots=True)
class Intend(Command):
    """Note the slice of the epoch about to be written. Answer: :class:`Done`.

    ``replaces`` has the first and last of the epochs whose rows the epoch replaces. Every sink must be able to replace.
    """

    number: int
    fence: Fence
    slice: Slice
    replaces: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Poll(Command):
    """Read the newest epochs of ``writers`` and of any other writer in a target, unfenced. Answer: :class:`Polled`."""

    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Polled(Answer):
    """Newest epoch of each other writer. ``unanswered`` is the reason if some could not be read, else empty."""

    timed: tuple[TimedMarker, ...]
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class Fetch(Command):
    """Read the manifest that a marker names. Answer: :class:`Staged` or :class:`Missing`."""

    manifest: str


@dataclass(frozen=True, slots=True)
class Stage(Command):
    """Stage the batch: written once, with a manifest, or in memory. Answer: ``Staged`` or ``Overtaken``.

    Attributes:
        trim: rows of the batch that are left out.
        healing: whether it is computed again for sinks that were behind, so that no marker will name the bytes.
        lasting: whether the rows must outlive this process. Otherwise its memory is enough.
        as_of: epoch to compare ids with, where a batch leaves out rows whose id was seen before.
        bound: state that windows continue from, or ``None`` if rows are written without windows.
        aside: the checks for which all rows are bad.
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
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged(Answer):
    """The bytes are final. ``manifest`` is ``None`` for rows in the memory of this process.

    ``digest`` is of the one action that also gave ``outputs``. ``times`` are from rows and the user's function.
    ``broken``: the checks that do not hold.
    ``columns`` are those that only the rows show. ``state`` is what the batch left.
    """

    manifest: str | None
    rows: int
    digest: Digest
    outputs: tuple[OutputDigest, ...] = ()
    times: RowTimes | None = None
    panes: EpochWindows | None = None
    broken: tuple[BrokenCheck, ...] = ()
    columns: tuple[OutputColumns, ...] = ()
    state: StateVersion | None = None


@dataclass(frozen=True, slots=True)
class Missing(Answer):
    """The staged bytes are gone or changed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Prepare(Command):
    """Prepare the batch in ``sink``. Answer: ``Prepared``, ``Overtaken`` or ``Again``.

    Attributes:
        trim: rows of the batch that are left out.
        replaces: first and last of the epochs whose rows this transaction replaces.
        output: name of the output for this sink, or ``None`` for all rows.
        sibling_sinks: sinks that are prepared already and commit in the same transaction.
        clock: event times to read from the rows. ``None`` for none, and if the rows were staged.
    """

    sink: str
    number: int
    trim: Trim | None = None
    replaces: tuple[int, int] | None = None
    output: str | None = None
    sibling_sinks: tuple[str, ...] = ()
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class Prepared(Answer):
    """Rows counted in the bytes, with digest and times of the same action. For an output, the digest of its rows."""

    rows: int
    digest: Digest
    times: RowTimes | None = None
    state: StateVersion | None = None


@dataclass(frozen=True, slots=True)
class Commit(Command):
    """Commit rows, ``marker`` and ``sibling_markers``, of sinks in the same transaction.

    Answer: ``Committed``, ``Overtaken``, ``Unknown`` or ``Again``.
    """

    marker: Marker
    sibling_markers: tuple[Marker, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed(Answer):
    """The sink confirmed the commit, or was found to hold the epoch. ``passed``: accepted changes by others."""

    receipt: Receipt
    passed: tuple[ExternalChange, ...] = ()
    sibling_receipts: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class LookUp(Command):
    """Find out whether these were committed. Answer: ``Committed``, ``Absent``, ``Overtaken`` or ``Unknown``."""

    marker: Marker
    sibling_markers: tuple[Marker, ...] = ()


@dataclass(frozen=True, slots=True)
class Absent(Answer):
    """The commit did not happen and cannot happen any more."""


@dataclass(frozen=True, slots=True)
class Wait(Command):
    """Wait for a random time that grows with ``attempt`` (from 1). Answer: :class:`Done`."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Record(Command):
    """Put the epoch with its receipts, one per sink, into the ledger. Answer: :class:`Done`.

    If it was ``skipped``, only missing parts of its record are added. ``replaced`` is the manifest of the epoch before,
    whose bytes no sink needs any more.
    """

    epoch: Epoch
    fence: Fence
    receipts: tuple[Receipt, ...] = ()
    skipped: bool = False
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class Note(Command):
    """Append to the ledger's event log. Answer: :class:`Done`."""

    happenings: tuple[Happening, ...]


@dataclass(frozen=True, slots=True)
class Done(Answer):
    """A command without an answer was carried out."""


@dataclass(frozen=True, slots=True)
class Return(Command):
    """The callback may return: Spark writes its commit log only now."""


@dataclass(frozen=True, slots=True)
class Refuse(Command):
    """The callback must raise."""

    refusal: Refusal


Outcome = Answer | Reading
