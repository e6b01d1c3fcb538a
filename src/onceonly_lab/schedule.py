"""Schedule: one JSON document with run, level and faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.faults import Point
from onceonly_checkpoints.digests import BAD
from onceonly_lab.model.division import Division
from onceonly_lab.model.parts import KEEPERS, PICKED, TRANSACTIONAL, Harm, Kind, keeper_of
from onceonly_lab.model.spark import Damage
from onceonly_lab.model.world import Program
from onceonly_lab.strenum import StrEnum

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- The levels of the lab: how real what is broken is. L0, every interleaving, is a search and plays no schedule.


class Level(StrEnum):
    """Where a schedule is played."""

    SIMULATED = "L1"
    STORES = "L2"
    WARM = "L3"
    COLD = "L4"

    @property
    def runs_jobs(self) -> bool:
        """Whether a user's job is run there, by drivers that are killed."""
        return self in (Level.WARM, Level.COLD)


# ---- A schedule: one JSON document that says what is run and what goes wrong where; every level of the lab takes it.

FORMAT = 1
"""Version of the document. A reader refuses any other."""


class UnreadableSchedule(ValueError):
    """A document is no schedule; the text names the field and what is wrong with it."""


class Action(StrEnum):
    """What goes wrong at a point."""

    KILL = "kill"
    PAUSE = "pause"
    LOSE_ANSWER = "lose answer"
    LOSE_REQUEST = "lose request"
    DELAY = "delay"
    HIDE = "hide"
    LOSE_LEDGER = "lose ledger"
    KILL_JVM = "kill jvm"
    KILL_EXECUTOR = "kill executor"


PROCESSES = frozenset({Action.KILL_JVM, Action.KILL_EXECUTOR})
"""Deaths of processes that only a real driver has beside it."""

SIMULATED = tuple(action for action in Action if action not in PROCESSES)
"""What simulated drivers, and drivers that are threads, can be given."""


SENDING = frozenset({Action.LOSE_ANSWER, Action.LOSE_REQUEST, Action.DELAY, Action.HIDE})
"""Actions on a request to a sink; they are taken where one is sent."""

SENT = frozenset({Point.INSTALL_SENT, Point.COMMIT_SENT})
"""Points at which a request to a sink has been sent."""

SENDS = {Point.INSTALL_SENT: Point.INSTALL_BEFORE, Point.COMMIT_SENT: Point.COMMIT_BEFORE}
"""For each of them the point before the request."""

NOT_SENT = "no request that changes a sink has been sent, so none can be lost, delayed or hidden, nor its answer"
"""Why an action of :data:`SENDING` does not apply at a point that is not in :data:`SENT`."""


def actions_at(point: Point) -> tuple[Action, ...]:
    """What can go wrong at a point in the simulated world; :data:`NOT_SENT` says why anything else cannot."""
    return tuple(action for action in SIMULATED if action not in SENDING or point in SENT)


def really_at(point: Point) -> tuple[Action, ...]:
    """What can go wrong at a point of a real driver."""
    return (*actions_at(point), Action.KILL_JVM, Action.KILL_EXECUTOR)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        incarnation: of the driver, from 1.
        point: where.
        action: what.
        hit: how often the point is passed before, this time included; from 1.
        steps: of a pause, how many steps others take before the driver goes on; of a delay, before the request lands.
        ms: of a kill, how many milliseconds after the point it comes. Simulated drivers know no time: they are killed
            at the point itself.
    """

    incarnation: int
    point: Point
    action: Action
    hit: int = 1
    steps: int = 0
    ms: int = 0

    @property
    def line(self) -> str:
        """The fault in a few words."""
        later = f"+{self.ms}ms" if self.ms else ""
        return f"{self.incarnation}:{self.point}#{self.hit}{later} {self.action}"


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that is lost or damaged while no driver looks.

    Attributes:
        before: the incarnation that finds it so.
        what: ``ledger``, the damage to the checkpoint, or what befalls a sink.
        sink: its place in commit order, from 0, where a sink is meant.
    """

    before: int
    what: str
    sink: int = 0


LEDGER = "ledger"
"""The loss of the ledger."""


class Gets(StrEnum):
    """What a sink gets of a batch."""

    ALL = "all"
    PICKED = PICKED
    BAD = BAD


_LATER = ("gets", "wants", "bad", "keys", "windows")
"""Fields that are written down only where they say something."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is run and what goes wrong.

    Attributes:
        sinks: kinds, in commit order.
        records: how many the source has.
        cuts: how many records a batch takes, in turn.
        rows: of each record.
        incarnations: how many drivers are started with faults; a last one without any follows.
        faults: what goes wrong in drivers.
        losses: what is lost between them.
        files: whether the source is a directory, whose offsets count the batches of one checkpoint.
        stateful: whether the plan keeps state, so that a batch that is skipped is executed.
        begins: whether a source with offsets says where it begins; else that is unknown until the second batch.
        trims: whether rows of recorded epochs are left out, instead of a stop.
        stages: whether epochs are staged although there is one sink.
        gone: records whose input files are gone before the last driver starts, from 0.
        obeys: at each refusal that prints commands, which of them the operator obeys, from 0; the query is restarted.
        program: what the user's program does with a batch; empty: it hands each over once, as it should.
        seed: what it was drawn from; ``None`` where it was written by hand.
        job: a user's pipeline, as ``module:name`` or ``file.py:name``; empty where the simulated world was played.
        replaces: whether a full refresh replaces all rows, instead of a stop.
        gets: what each sink gets, in commit order: all good rows, those that the output wants, or the bad ones; empty:
            all get all. What ``wants`` and ``bad`` say of a call holds for the drivers in turn.
        wants: sets of records that the output wants; bit ``n`` stands for record ``n``, from 0.
        bad: sets of records that are bad.
        keys: of each record; a sink keeps a catalogue of those that were seen, and a record whose key was is in no
            sink. Empty: records have no keys.
        windows: whether rows are aggregated in windows, whose state a sink keeps. As for the catalogue, it is the first
            one that can, of a database first.
    """

    sinks: tuple[Kind, ...]
    records: int
    cuts: tuple[int, ...] = (1,)
    rows: int = 1
    incarnations: int = 1
    faults: tuple[Fault, ...] = ()
    losses: tuple[Loss, ...] = ()
    files: bool = False
    stateful: bool = False
    begins: bool = False
    trims: bool = False
    stages: bool = False
    gone: tuple[int, ...] = ()
    obeys: tuple[int, ...] = ()
    program: str = ""
    seed: int | None = None
    job: str = ""
    replaces: bool = False
    gets: tuple[Gets, ...] = ()
    wants: tuple[int, ...] = ()
    bad: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    windows: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @property
    def divided(self) -> bool:
        """Whether an epoch is staged for what is made of its rows, also for a single sink."""
        return bool(self.gets or self.keys or self.windows)

    def division(self, sinks: Sequence[str], number: int) -> Division:
        """What the call of a driver makes of a batch.

        Args:
            sinks: ids, in commit order.
            number: of the driver, from 1.
        """
        pickers = tuple(sink for sink, gets in zip(sinks, self.gets, strict=False) if gets is Gets.PICKED)
        aside = [sink for sink, gets in zip(sinks, self.gets, strict=False) if gets is Gets.BAD]
        picked_records, bad = (masks[(number - 1) % len(masks)] if masks else 0 for masks in (self.wants, self.bad))
        return Division(picked_records, pickers, bad, *aside)

    @property
    def alone(self) -> Schedule:
        """The same without what only the simulated world has: people, ailing sinks, other kinds of sources."""
        losses = tuple(loss for loss in self.losses if loss.what not in {*Harm, Damage.ANOTHER})
        plain = replace(self, losses=losses, gone=(), obeys=(), program="", begins=False, trims=False, stages=False)
        return replace(plain, keys=(), windows=self.windows and not self.gets)

    @property
    def peopled(self) -> bool:
        """Whether somebody beside drivers acts in it: then rows may be missing by name, and only its world can tell."""
        harmed = any(loss.what in set(Harm) for loss in self.losses)
        return bool(self.obeys or self.gone or self.program or harmed)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Inverse of :meth:`to_json`.

        Raises:
            UnreadableSchedule: it is none, or of another version.
        """
        document = _object("schedule", value)
        if document.get("schedule") != FORMAT:
            raise UnreadableSchedule(f"schedule: wants version {FORMAT}, got {document.get('schedule')!r}")
        made: Self = _built(cls, "schedule", {name: cell for name, cell in document.items() if name != "schedule"})
        return made

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the version first."""
        left_out = {name for name in _LATER if not getattr(self, name)}
        return {"schedule": FORMAT, **{name: cell for name, cell in asdict(self).items() if name not in left_out}}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a document.

        Raises:
            UnreadableSchedule: it is no JSON, or no schedule.
        """
        try:
            return cls.from_json(json.loads(text))
        except json.JSONDecodeError as wrong:
            raise UnreadableSchedule(f"not JSON: {wrong}") from None

    @property
    def text(self) -> str:
        """The document, one line for each field."""
        lines = [f"  {json.dumps(name)}: {json.dumps(cell)}" for name, cell in self.to_json().items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @property
    def line(self) -> str:
        """The schedule in one line, for people."""
        faults = ", ".join(fault.line for fault in self.faults)
        losses = ", ".join(f"{loss.what} before {loss.before}" for loss in self.losses)
        others = [f" ({gets})" if gets is not Gets.ALL else "" for gets in self.gets] or [""] * len(self.sinks)
        sinks = ", ".join(f"{sink}{other}" for sink, other in zip(self.sinks, others, strict=True))
        return (
            f"{sinks}; {self.records} records by {self.cuts}; {'; '.join(filter(None, (faults, losses))) or 'no fault'}"
        )


def demand_simulated(schedule: Schedule) -> None:
    """Demand that drivers which are no processes can be given everything that a schedule asks for.

    Raises:
        UnreadableSchedule: they cannot; the text names the first thing.
    """
    for at, fault in enumerate(schedule.faults):
        if fault.action in PROCESSES:
            raise UnreadableSchedule(f"faults[{at}].action: only a job on a real Spark can be given {fault.action!s}")


def demand_alone(schedule: Schedule) -> None:
    """Demand that nobody beside drivers acts, as on real stores nobody does.

    Raises:
        UnreadableSchedule: somebody does.
    """
    if schedule != schedule.alone:
        raise UnreadableSchedule(
            "only the simulated world has people, ailing sinks, trims, lost input, keys and windows beside outputs"
        )


def load_schedule(path: Path | str) -> Schedule:
    """Read a schedule from a file.

    Raises:
        UnreadableSchedule: it is none; the text names file and place.
        OSError: there is no such file.
    """
    try:
        return Schedule.parse(Path(path).read_text(encoding="utf-8"))
    except (UnreadableSchedule, UnicodeDecodeError) as wrong:
        raise UnreadableSchedule(f"{path}: {wrong}") from None


def _check(schedule: Schedule) -> None:
    for name in ("records", "rows", "incarnations"):
        if getattr(schedule, name) < 1:
            raise UnreadableSchedule(f"{name}: wants at least 1, got {getattr(schedule, name)}")
    if not schedule.sinks:
        raise UnreadableSchedule("sinks: wants at least one")
    if not schedule.cuts or min(schedule.cuts) < 1:
        raise UnreadableSchedule(f"cuts: wants numbers from 1, got {list(schedule.cuts)}")
    if schedule.program not in {"", *Program}:
        raise UnreadableSchedule(f"program: wants one of {', '.join(Program)}, got {schedule.program!r}")
    _check_division(schedule)
    _check_kept(schedule)
    for at, fault in enumerate(schedule.faults):
        _check_fault(f"faults[{at}]", fault, schedule.incarnations)
    for at, loss in enumerate(schedule.losses):
        if loss.what not in {LEDGER, *Damage, *Harm}:
            raise UnreadableSchedule(f"losses[{at}].what: wants {LEDGER}, a damage or a harm, got {loss.what!r}")
        if not 0 <= loss.sink < len(schedule.sinks):
            raise UnreadableSchedule(f"losses[{at}].sink: wants 0 to {len(schedule.sinks) - 1}, got {loss.sink}")


def _check_division(schedule: Schedule) -> None:
    gets = schedule.gets
    if gets and len(gets) != len(schedule.sinks):
        raise UnreadableSchedule(f"gets: wants one for each of {len(schedule.sinks)} sinks, got {len(gets)}")
    if gets.count(Gets.BAD) > 1:
        raise UnreadableSchedule("gets: wants one sink for bad records at most")
    for name, sets, which in (("wants", schedule.wants, Gets.PICKED), ("bad", schedule.bad, Gets.BAD)):
        if min(sets, default=0) < 0:
            raise UnreadableSchedule(f"{name}: wants sets of records, as numbers from 0, got {list(sets)}")
        if which in gets and not sets:
            raise UnreadableSchedule(f"{name}: wants a set of records for '{which}' in gets")
        if sets and which not in gets:
            raise UnreadableSchedule(f"{name}: no sink gets them: '{which}' is not in gets")


def _check_kept(schedule: Schedule) -> None:
    if schedule.keys and len(schedule.keys) != schedule.records:
        raise UnreadableSchedule(f"keys: wants one for each of {schedule.records} records, got {len(schedule.keys)}")
    for kept, apart in _KEPT.items():
        if not getattr(schedule, kept):
            continue
        if keeper_of(schedule.sinks) is None:
            kinds = " and ".join(KEEPERS)
            raise UnreadableSchedule(f"{kept}: no sink of {', '.join(schedule.sinks)} keeps them, as {kinds} do")
        for name in apart:
            if getattr(schedule, name):
                raise UnreadableSchedule(f"{kept}: cannot be played together with {name}")


_KEPT = {"keys": ("files", "stateful"), "windows": ("stateful", "trims")}
"""What a sink keeps beside its rows, and what it cannot be played together with."""


def _check_fault(where: str, fault: Fault, incarnations: int) -> None:
    if not 1 <= fault.incarnation <= incarnations:
        raise UnreadableSchedule(f"{where}.incarnation: wants 1 to {incarnations}, got {fault.incarnation}")
    if fault.hit < 1 or min(fault.steps, fault.ms) < 0:
        raise UnreadableSchedule(f"{where}: hits count from 1, steps and milliseconds from 0")
    if fault.action not in really_at(fault.point):
        raise UnreadableSchedule(
            f"{where}.action: nothing is sent at {fault.point}, so there is nothing to {fault.action}"
        )


def _object(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableSchedule(f"{where}: wants an object, got {value!r}")
    return value


def _built(kind: Callable[..., Any], where: str, cells: Mapping[str, Any]) -> Any:
    readers = _READERS[kind]
    for name in cells.keys() - readers.keys():
        raise UnreadableSchedule(f"{where}: no field {name!r}; known: {', '.join(readers)}")
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name not in cells and field.default is field.default_factory:
            raise UnreadableSchedule(f"{where}: no {field.name!r}")
    return kind(**{name: readers[name](f"{where}.{name}", cell) for name, cell in cells.items()})


def _integer(where: str, value: object) -> int:
    if type(value) is not int:
        raise UnreadableSchedule(f"{where}: wants an integer, got {value!r}")
    return value


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UnreadableSchedule(f"{where}: wants true or false, got {value!r}")
    return value


def _seed(where: str, value: object) -> int | None:
    return None if value is None else _integer(where, value)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise UnreadableSchedule(f"{where}: wants a text, got {value!r}")
    return value


def _one_of(kind: Collection[Enum] | type[Enum]) -> Callable[[str, object], Enum]:
    def read(where: str, value: object) -> Enum:
        member = next((candidate for candidate in kind if candidate.value == value), None)
        if member is None:
            raise UnreadableSchedule(
                f"{where}: wants one of {', '.join(candidate.value for candidate in kind)}, got {value!r}"
            )
        return member

    return read


def _many(reader: Callable[[str, object], Any]) -> Callable[[str, object], tuple[Any, ...]]:
    def read(where: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise UnreadableSchedule(f"{where}: wants a list, got {value!r}")
        return tuple(reader(f"{where}[{at}]", cell) for at, cell in enumerate(value))

    return read


def _record(kind: Callable[..., Any]) -> Callable[[str, object], Any]:
    return lambda where, value: _built(kind, where, _object(where, value))


_READERS: dict[Callable[..., Any], dict[str, Callable[[str, object], Any]]] = {
    Fault: {
        "incarnation": _integer,
        "point": _one_of(Point),
        "action": _one_of(Action),
        "hit": _integer,
        "steps": _integer,
        "ms": _integer,
    },
    Loss: {"before": _integer, "what": _text, "sink": _integer},
    Schedule: {
        "sinks": _many(_one_of(TRANSACTIONAL)),
        "records": _integer,
        "cuts": _many(_integer),
        "rows": _integer,
        "incarnations": _integer,
        "faults": _many(_record(Fault)),
        "losses": _many(_record(Loss)),
        "files": _flag,
        "stateful": _flag,
        "begins": _flag,
        "trims": _flag,
        "stages": _flag,
        "gone": _many(_integer),
        "obeys": _many(_integer),
        "program": _text,
        "seed": _seed,
        "job": _text,
        "replaces": _flag,
        "gets": _many(_one_of(Gets)),
        "wants": _many(_integer),
        "bad": _many(_integer),
        "keys": _many(_integer),
        "windows": _flag,
    },
}
