"""What the coordinator asks for and what the runner found: data only, so the machine is tested without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly.facts import Happening, Reading, Refusal
from onceonly.protocol import Disturbance, Sight
from onceonly.trim import Held, Trim
from onceonly_checkpoints.epoch import Digest, Epoch, EpochRecord, Fence, Marker, Receipt


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
    """The newest record (``None``: empty ledger), and generations whose end is on record."""

    head: EpochRecord | None
    ended: frozenset[int] = frozenset()


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

    sights: tuple[Sight, ...]
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
    """Enter this opening into the ledger, and the epochs that only the sinks know. Answer: :class:`Done`."""

    fence: Fence
    epochs: tuple[tuple[Marker, tuple[Receipt, ...]], ...]


@dataclass(frozen=True, slots=True)
class Recollect:
    """Find the epoch that the offered batch id became, with all epochs after it. Answer: :class:`Recollected`."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Recollected:
    """The recorded epoch and the run of epochs from it to the newest; empty if there is none."""

    descent: tuple[Epoch, ...]


@dataclass(frozen=True, slots=True)
class Gather:
    """Find the input files of all recorded epochs. Answer: :class:`Gathered`."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The input files that epochs hold, as far as the ledger knows them."""

    held: Held


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a skipped batch for its state, writing nothing. Answer: :class:`Executed`."""


@dataclass(frozen=True, slots=True)
class Executed:
    """Digest of the rows that the batch gave this time."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class Intend:
    """Note the slice of the epoch about to be written. Answer: :class:`Done`."""

    number: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read the manifest that a marker names. Answer: :class:`Staged` or :class:`Missing`."""

    manifest: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Write the batch once, without what ``trim`` leaves out, with a manifest. Answer: :class:`Staged`."""

    number: int
    trim: Trim | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """The bytes lie still: the reference to their manifest, the rows in them, the digest of the action."""

    manifest: str
    rows: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Missing:
    """The staged bytes are gone or not what they were."""

    reason: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare the batch in ``sink``, without what ``trim`` leaves out; ``Prepared``, ``Overtaken`` or ``Again``."""

    sink: str
    number: int
    trim: Trim | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows counted in the bytes, and the digest of the same action."""

    rows: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit rows and ``marker`` in one transaction. Answer: ``Committed``, ``Overtaken``, ``Unknown``, ``Again``."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Committed:
    """The sink said yes, or was found to hold the epoch; ``passed``: what others did and it let pass before that."""

    receipt: Receipt
    passed: tuple[Disturbance, ...] = ()


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find out whether ``marker`` landed. Answer: ``Committed``, ``Absent``, ``Overtaken`` or ``Unknown``."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Absent:
    """The commit did not land and cannot land any more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait a random while, growing with ``attempt`` (from 1). Answer: :class:`Done`."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Record:
    """Put the epoch with its receipts into the ledger. Answer: :class:`Done`."""

    epoch: Epoch
    receipts: tuple[Receipt, ...]


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
    | Staged
    | Missing
    | Prepared
    | Committed
    | Absent
    | Done
)
