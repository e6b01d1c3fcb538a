"""The state of the coordinator: frozen, hashable, everything the machine knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from onceonly.facts import Adopt, Happening, Offer, Overlap, Reading, Refusal, Seen
from onceonly.trim import Held, Trim
from onceonly_checkpoints.adoption import Adoption
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.slices import Slice

MAX_OPENINGS = 5
"""How often an opening starts again higher: it met an equal generation, a commit was found absent, or taken back."""

MAX_UNKNOWN = 5
"""How often a lost answer is looked up before the query stops."""


class Phase(Enum):
    """Where the machine stands; see the module's text."""

    PROBE = "probe"
    RECALL = "recall"
    LOOK = "look"
    INSTALL = "install"
    READ = "read"
    INDEX = "index"
    COMPARE = "compare"
    RECOLLECT = "recollect"
    GATHER = "gather"
    EXECUTE = "execute"
    INTEND = "intend"
    FETCH = "fetch"
    STAGE = "stage"
    PREPARE = "prepare"
    COMMIT = "commit"
    LOOK_UP = "look up"
    RECORD = "record"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class State:
    """Everything the machine knows. Built by ``coordinator.start`` and ``coordinator.resume``.

    Attributes:
        pipeline: its name.
        sinks: sink ids in commit order.
        owner: this opening's random token.
        offer: the engine's batch; ``None`` when a pipeline is only opened (``txn resolve``, ``queries adopt``).
        adopt: where a target stands that we have never written.
        accepted: what the opening accepts (``queries adopt``); ``None`` for an ordinary one.
        dropped: the sink that the opening takes out of the pipeline (``queries drop-sink``).
        heals: whether a sink is brought to the epoch of the others although it once held it (``txn resolve``).
        overlap: what becomes of a batch that offers rows of recorded epochs.
        stages: epochs are staged although there is one sink.
        floor: the next generation must be greater than this; of whoever was refused by a look, the one it proposed.
        seen: what a look showed, while the batch is compared with it; ``None`` before and after.
        last: the newest epoch that every sink holds; while ``seen`` is there, the newest one that was seen.
        before: the newest fence that was found before ours; ``None`` if there was none.
        ended: generations of openings that are known to have ended.
        fence: our fence; ``None`` until proposed.
        index: which sink is next in a phase that goes through several of them.
        healing: sinks that are brought to the epoch of the others; empty while a new epoch is written.
        healed: number of the last epoch that sinks were brought to, so that a sink that stays behind is noticed.
        lost: the epoch that sinks could not be brought to, when that loss is accepted; 0 for none.
        readings: what the sinks said under our fence.
        head: the ledger's newest record.
        unindexed: epochs that the ledger has to learn.
        descent: recorded epochs from the offered batch id on; ``None``: not looked up.
        held: input files of recorded epochs; ``None``: not looked up. What this opening adds to them is left out: a
            checkpoint hands out no file twice.
        slice: what is written of the offered batch, where that is not plainly its own slice.
        trim: what of the offered batch is left out.
        epoch: the epoch being written, or the one that was proven to be written.
        number: number of the epoch being written; 0 for none.
        receipts: answers so far.
        openings: how often a generation was proposed.
        unknowns: lost answers in a row.
        conflicts: how often a sink took the batch's epoch back for the sake of others.
        waiting: whether to wait before the next command.
        happenings: events not yet noted.
        skipped: whether the batch was proven to be written already.
        refusal: why the machine stopped.
    """

    phase: Phase
    pipeline: str
    sinks: tuple[str, ...]
    owner: str
    offer: Offer | None = None
    adopt: Adopt = None
    accepted: Adoption | None = None
    dropped: str = ""
    heals: bool = False
    overlap: Overlap = "stop"
    stages: bool = False
    floor: int = 0
    seen: Seen | None = None
    last: Epoch | None = None
    before: Fence | None = None
    ended: frozenset[int] = frozenset()
    fence: Fence | None = None
    index: int = 0
    healing: tuple[str, ...] = ()
    healed: int = 0
    lost: int = 0
    readings: tuple[Reading, ...] = ()
    head: EpochRecord | None = None
    unindexed: tuple[tuple[Marker, tuple[Receipt, ...]], ...] = ()
    descent: tuple[Epoch, ...] | None = None
    held: Held | None = None
    slice: Slice | None = None
    trim: Trim | None = None
    epoch: Epoch | None = None
    number: int = 0
    receipts: tuple[Receipt, ...] = ()
    openings: int = 0
    unknowns: int = 0
    conflicts: int = 0
    waiting: bool = False
    happenings: tuple[Happening, ...] = ()
    skipped: bool = False
    refusal: Refusal | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The sinks that the epoch at hand goes to."""
        return self.healing or self.sinks

    @property
    def staged(self) -> bool:
        """Whether an epoch's bytes are staged: several sinks must get the same ones, one may be asked to."""
        return self.stages or len(self.sinks) > 1
