"""Simulated world: a tuple of parts, its start and the user's program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from onceonly.machine import callback_rules, coordinator
from onceonly.machine.facts import Offer, OnRefresh, Refusal
from onceonly.machine.state import Job, State
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.model.division import Division
from onceonly_lab.model.openwindows import WINDOWS
from onceonly_lab.model.parts import (
    PIPELINE,
    Desk,
    Harm,
    Kind,
    Left,
    Records,
    SimulatedLedger,
    StagingArea,
    Target,
    keeper_of,
)
from onceonly_lab.model.rules import ALL_KEPT, Rule
from onceonly_lab.model.sinks import Fate
from onceonly_lab.model.spark import TOPIC, Checkpoint, Damage, Planned, Source
from onceonly_lab.model.times import BY_RECORDS
from onceonly_lab.strenum import StrEnum

# ---- A user's program around the wrapper: how often it calls for a batch, under which id, with which part of the
# rows.


class Program(StrEnum):
    """What a program does with a batch that it is handed; the value says it in words."""

    PLAIN = "hands each batch over once"
    PARTS = "hands each batch over in two parts"
    WRAPPERS = "hands each batch over in two parts, to two wrappers of one name"
    CONSTANT = "hands every batch over as batch 0"

    @property
    def misuses(self) -> bool:
        """Whether it does what Spark never does."""
        return self is not Program.PLAIN

    @property
    def in_parts(self) -> bool:
        """Whether it calls twice for a batch."""
        return self in {Program.PARTS, Program.WRAPPERS}


MISUSED = frozenset({"E103", "E123", "E124"})
"""Codes with which wrong calls are refused."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a wrapper.

    Attributes:
        batch_id: what it is handed.
        planned: the id that the engine set.
        finished: the newest batch that this run has finished; ``None`` if there is none.
        other: whether another wrapper of this name is in use by the same run.
    """

    batch_id: int
    planned: int
    finished: int | None = None
    other: bool = False


def refusal(call: Call) -> str:
    """The code with which the product refuses a call before anything is compared; empty where it does not."""
    verdict = _entry(call) or callback_rules.decide_call(
        callback_rules.Call(PIPELINE, call.batch_id, call.planned, call.finished)
    )
    return verdict.code if verdict else ""


def _entry(call: Call) -> Refusal | None:
    first, second = (callback_rules.Holder(PIPELINE, wrapper, "query", "run") for wrapper in (1, 2))
    return callback_rules.decide_entry(callback_rules.Entering(second, named=first)) if call.other else None


def parts(program: Program, planned: Planned) -> tuple[Records, Records]:
    """What the first call for a batch brings, and what the second one does; none where there is no second."""
    records = planned.records
    if not program.in_parts or records.bit_count() < 2:
        return records, 0
    first = records & -records
    return first, records & ~first


# ---- The world as a tuple of parts, where each part stands in it, and how a world begins.


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver: the engine's query and the machine of its opening.

    Attributes:
        number: counted from 1 in the order of starts; also its owner token.
        at: which checkpoint it runs on.
        planned: the batch in hand; ``None`` before the first.
        state: the machine; ``None`` before the first batch is handed over.
        running: whether the batch in hand is in the callback.
        memory: what the sink object that is being called remembers.
        content: which computation of the batch the staged or prepared bytes are.
        early: readings that were taken before the fences, where that rule is off.
        finished: whether the source had nothing more for it.
        refusal: why it stopped; empty while it has not.
        stopped: the machine as it was refused; kept only where an operator obeys what is printed then.
        floor: its generation is greater than this.
        hands: the rows of the call in hand; none: all of the batch.
        rest: the rows that the program will hand over in another call for this batch.
        knew: whether the ledger told it, before it installed a fence, that the pipeline has epochs.
        outputs: what some of the sinks get of ``content``.
        seen: the keeper of the catalogue as it was before the fences, where that rule is off.
    """

    number: int
    at: int
    planned: Planned | None = None
    state: State | None = None
    running: bool = False
    memory: int | None = None
    content: Digest | None = None
    early: tuple[Target, ...] = ()
    finished: bool = False
    refusal: str = ""
    stopped: State | None = None
    floor: int = 0
    hands: Records = 0
    rest: Records = 0
    knew: bool = False
    outputs: tuple[OutputDigest, ...] = ()
    seen: Target | None = None

    def __hash__(self) -> int:
        # The rest is told apart by equality, which is quick where values share their parts.
        return hash((self.number, self.at, self.planned, self.running, self.memory, _gist(self.state)))

    @property
    def name(self) -> str:
        """``driver A`` for the first."""
        return f"driver {chr(ord('A') + self.number - 1)}"

    @property
    def over(self) -> bool:
        """Whether it does nothing any more."""
        return self.finished or bool(self.refusal)


def _gist(state: State | None) -> tuple[object, ...]:
    if state is None:
        return ()
    return (
        state.phase,
        state.work.index,
        state.opening.fence,
        state.work.number,
        state.work.unknowns,
        state.opening.attempt,
        len(state.work.receipts),
        len(state.work.healing),
        state.opening.last.chain if state.opening.last else "",
        state.work.epoch.chain if state.work.epoch else "",
        state.opening.head.epoch.chain if state.opening.head else "",
    )


ALLOWED = frozenset({"E203", "E204", "E205", "E211", "E246"})
"""Refusals of a batch that does not continue the last epoch: right once a checkpoint was damaged, and only then."""

Part = Target | StagingArea | SimulatedLedger | Checkpoint | Desk | Driver | Left | None
World = tuple[Part, ...]
"""Targets, staging, ledger, two checkpoints, desk, two drivers, what may still happen; for places: :class:`Bound`."""


@dataclass(frozen=True)
class Bound:
    """What is explored: sizes, what may go wrong, which rules are off, and so the layout of a world.

    Attributes:
        kinds: what the sinks are like, in commit order.
        records: how many records the source has.
        longest: how many of them a batch may take, so that a batch that is planned again may be cut otherwise.
        drivers: how many are started in all; two may be alive.
        unknowns: how many answers are lost.
        ledgers: how often the ledger is lost.
        damages: what may be done to the checkpoint, once in all; empty: nothing.
        loses_files: whether input files may be gone one day, instead of a damage.
        off: rules that are not kept.
        fine: whether Delta and Kafka check and write in two steps.
        apart: whether steps that nobody can tell apart are taken one by one all the same.
        deterministic: whether a batch that is computed again gives the same rows.
        source: what the query reads.
        trims: whether rows of recorded epochs are left out, instead of a stop.
        stages: whether epochs are staged although there is one sink.
        programs: what users' programs may do with a batch; all drivers of a world run the same.
        watched: whether it is watched who stops whom.
        harms: what may happen to a sink, instead of a damage.
        errs: whether the operator also accepts what nobody has printed.
        prunes: whether all of the ledger but its newest epoch may be forgotten, instead of a loss.
        leaves_out: whether the program's call may leave a sink out from some start on, instead of a damage.
        obeys: how many printed commands an operator obeys at most, until the query must go on.
        cuts: whether the operator may be killed in the middle of a command, once.
        meanwhile: what may befall a sink between a refusal and the command that is obeyed.
        conflicts: whether Postgres may take an epoch back for the sake of other writers; that uses up a lost answer.
        alone: whether a driver is started only where no other is alive any more.
        on_refresh: what becomes of a full refresh.
        outputs: which records the last sink gets, instead of all: of the drivers in turn, so that the program's call is
            another one from start to start.
        bad: which records are bad, by the programs of the drivers in turn; the last sink gets these and no others.
        together: whether all Postgres sinks commit in one transaction.
        turns: whether every second driver names the sinks in reverse order.
        keys: of each record; the sink of ``keeper_of`` keeps a catalogue of those seen. Empty: records have none.
        windows: whether rows are aggregated in windows, whose state the sink of ``keeper_of`` keeps.
        reads: whether somebody reads all sinks as of the newest read point; an operator may have the ledger rebuilt
            from them, instead of a loss.
    """

    kinds: tuple[Kind, ...]
    records: int = 2
    longest: int = 2
    drivers: int = 2
    unknowns: int = 1
    ledgers: int = 0
    damages: tuple[Damage, ...] = ()
    loses_files: bool = False
    off: frozenset[Rule] = field(default=ALL_KEPT)
    fine: bool = False
    apart: bool = False
    deterministic: bool = False
    source: Source = field(default=TOPIC)
    trims: bool = False
    stages: bool = False
    programs: tuple[Program, ...] = (Program.PLAIN,)
    watched: bool = False
    harms: tuple[Harm, ...] = ()
    obeys: int = 0
    errs: bool = False
    prunes: bool = False
    leaves_out: bool = False
    cuts: bool = False
    meanwhile: tuple[Harm, ...] = ()
    conflicts: bool = False
    alone: bool = False
    on_refresh: OnRefresh = "stop"
    outputs: tuple[Records, ...] = ()
    bad: tuple[Records, ...] = ()
    together: bool = False
    turns: bool = False
    keys: tuple[int, ...] = ()
    windows: bool = False
    reads: bool = False

    @cached_property
    def group(self) -> tuple[str, ...]:
        """Ids of the sinks that commit in one transaction; none where each has its own."""
        named = [sink for sink, kind in zip(self.sinks, self.kinds, strict=True) if kind is Kind.POSTGRES]
        return tuple(named) if self.together and len(named) > 1 else ()

    def division(self, number: int) -> Division:
        """What the program of a driver makes of rows."""
        if self.bad:
            return Division(bad=self.bad[(number - 1) % len(self.bad)], quarantine=self.sinks[-1])
        if self.outputs:
            return Division(self.outputs[(number - 1) % len(self.outputs)], (self.sinks[-1],))
        return Division()

    @cached_property
    def whole_steps(self) -> bool:
        """Whether steps that nobody can tell apart are taken together; see ``carrier``."""
        # A look into what a keeper holds comes before the commit that goes by it: others may act in between.
        return not (self.off or self.fine or self.apart or self.keeper)

    @cached_property
    def explained(self) -> frozenset[str]:
        """Refusals that a damaged checkpoint explains."""
        state = {"E206"} if self.source.stateful else set[str]()
        unproven = {"E220"} if self.trims and (self.source.files or not self.source.begins) else set[str]()
        return ALLOWED | state | unproven

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """Sink ids."""
        return tuple(
            kind.value if kind not in self.kinds[:at] else f"{kind.value}-{at + 1}"
            for at, kind in enumerate(self.kinds)
        )

    @cached_property
    def staging(self) -> int:
        """Place of the staging area; the targets stand before it."""
        return len(self.kinds)

    @cached_property
    def ledger(self) -> int:
        """Place of the ledger."""
        return len(self.kinds) + 1

    @cached_property
    def keeper(self) -> tuple[int, ...]:
        """Place of the sink that keeps the catalogue of keys or the state of windows, if there is one."""
        place = keeper_of(self.kinds) if self.keys or self.windows else None
        return () if place is None else (place,)

    def keeps(self, sink: str) -> bool:
        """Whether a sink keeps the catalogue of keys or the state of windows."""
        return any(self.sinks[index] == sink for index in self.keeper)

    @cached_property
    def checkpoints(self) -> tuple[int, int]:
        """Places of the checkpoints; the second is there once the first was damaged."""
        return len(self.kinds) + 2, len(self.kinds) + 3

    @cached_property
    def desk(self) -> int:
        """Place of what is known outside of drivers and stores."""
        return len(self.kinds) + 4

    @cached_property
    def slots(self) -> tuple[int, int]:
        """Places of the living drivers, the older first."""
        return len(self.kinds) + 5, len(self.kinds) + 6

    @cached_property
    def starts_left(self) -> int:
        """Place of the drivers that may still be started."""
        return len(self.kinds) + 7

    @cached_property
    def unknowns_left(self) -> int:
        """Place of the answers that may still be lost."""
        return len(self.kinds) + 8

    @cached_property
    def losses_left(self) -> int:
        """Place of the ledger's losses that may still come."""
        return len(self.kinds) + 9

    @cached_property
    def damages_left(self) -> int:
        """Place of the damage that may still be done."""
        return len(self.kinds) + 10

    def start(self) -> World:
        """Empty targets, no driver yet."""
        targets = tuple(Target(name, kind) for name, kind in zip(self.sinks, self.kinds, strict=True))
        left = (
            Left(self.drivers),
            Left(self.unknowns),
            Left(self.ledgers),
            Left(1 if self.damages or self.loses_files or self.harms or self.leaves_out else 0),
        )
        first = Checkpoint("the checkpoint", "query")
        return (*targets, StagingArea(), SimulatedLedger(), first, None, Desk(), None, None, *left)


@dataclass(frozen=True, slots=True)
class Change:
    """One way in which a world can go on.

    Attributes:
        words: what happens, in words.
        parts: the parts after it, for the places that were looked at, in their order.
        fate: what became of what was sent to a sink.
    """

    words: str
    parts: World
    fate: Fate = Fate.ANSWERED


def opening_of(driver: Driver, bound: Bound, offered: Offer, wrapper: str = "", left_out: str = "") -> State:
    """The machine of a driver before it opens.

    Args:
        driver: its number is its owner token.
        bound: sizes.
        offered: the batch.
        wrapper: tells several of one driver apart.
        left_out: the sink that the program's call does not name.
    """
    sinks = bound.sinks[::-1] if bound.turns and driver.number % 2 == 0 else bound.sinks
    state = coordinator.start(
        Job(
            PIPELINE,
            tuple(sink for sink in sinks if sink != left_out),
            f"owner-{driver.number}{wrapper}",
            offered,
            overlap="trim" if bound.trims else "stop",
            stages=bound.stages,
            on_refresh=bound.on_refresh,
            transaction_groups=(bound.group,) if bound.group else (),
            divided=bool(bound.outputs or bound.bad or bound.keeper),
            noting=BY_RECORDS,
            windows=WINDOWS if bound.windows else None,
        )
    )
    return replace(state, opening=replace(state.opening, fence=Fence(driver.floor, state.job.owner)))
