"""Follows each printed way out of a wreck, and judges row by row what became of the input."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from integration.waysout.situations import DRAWN, SITUATIONS, Situation
from integration.waysout.world import CUT, NAME, WRITTEN, World
from typer.testing import CliRunner, Result

from onceonly.cli.app import app
from onceonly.errors.read_refusal import Refused, read

RESTARTS = 2
DECISIONS = 2
"""How many refusals may follow one another: lost state and a lost position are two decisions."""

_OF_PAIRS = 4
"""The same where two things were lost at once."""

_EACH = "one batch after the other"
NOTHING = "goes on, nothing lost"
TELLS = "tells, changes nothing"
_TELLING = frozenset({"audit", "epochs", "status"})
"""First words of commands that only say something."""
_COMMAND = re.compile(r"\bonceonly ([a-z][^\n]*)")
_OPTION = re.compile(r'(overlap|adopt)="(\w+)"')
_CODE = "MODULE:FUNCTION"
"""Stands for a function of the user's own, which no message knows; integration/test_rewind_from_source.py gives one."""
_THEN = "and after it:"


@dataclass
class Way:
    """One remedy of a message.

    Attributes:
        commands: to be run in this order, each as a shell would split it.
        options: of ``exactly_once``.
        each: whether it is for one batch after the other, each restart naming the next.
    """

    commands: list[list[str]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    each: bool = False

    @property
    def told(self) -> str:
        """The remedy without the places that only this run knows."""
        options = [f'{name}="{value}"' for name, value in self.options.items()]
        many = " (one batch after the other)" if self.each else ""
        return ", then ".join([*map(_short, self.commands), *options]) + many

    @property
    def tells(self) -> bool:
        """Whether it only says something."""
        return all(command[0] in _TELLING for command in self.commands) and not self.options


def _short(command: Sequence[str]) -> str:
    kept: list[str] = []
    for before, word in zip(["", *command], command, strict=False):
        if before in {"--ledger", "--query"} or word in {"--ledger", "--query"}:
            continue
        kept.append("PATH" if "/" in word and not kept[-1].startswith("--") else word)
    return shlex.join(kept)


def ways(remedy: str) -> list[Way]:
    """The remedies of a message that somebody can follow as they stand."""
    found: list[Way] = []
    for line in remedy.splitlines():
        options = dict(_OPTION.findall(line))
        if "exactly_once(" in line and options:
            found.append(Way(options=options))
        for text in _COMMAND.findall(line):
            command = shlex.split(text)
            if _CODE in command:
                continue
            if _THEN in line and found:
                found[-1].commands.append(command)
            else:
                found.append(Way([command], each=_EACH in line))
    return found


@dataclass
class Followed:
    """What a way led to: the remedy, the words of the judgement, and whether that is a way out."""

    remedy: str
    verdict: str
    good: bool


@dataclass
class Cell:
    """One line of the table: what happened to which pipeline, the code that came, and each way out."""

    source: str
    state: str
    sinks: str
    situation: str
    code: str = ""
    ways: list[Followed] = field(default_factory=list)

    def to_dict(self) -> Mapping[str, Any]:
        return asdict(self)


class DeadEndError(Exception):
    """A way that does not lead out; says where it ended.

    Attributes:
        refused: what stopped the query, where that was a refusal.
    """

    def __init__(self, said: str, refused: Refused | None = None) -> None:
        super().__init__(said)
        self.refused = refused


def walk(world: World, cell: Cell) -> Cell:
    """Bring a situation about, and follow every way out of it in a fresh copy of the wreck."""
    situation = SITUATIONS.get(cell.situation) or DRAWN[cell.situation]
    world.put_back(f"at{WRITTEN}")
    situation.happens(world)
    world.cut, world.starting = situation.cut, situation.starting
    said = world.run()
    try:
        if not said:
            cell.ways.append(_judged("restart", world, situation, ()))
            return cell
        refused = read(said)
        assert refused, said
        cell.code = refused.code
        cell.ways += _all_ways(refused, world, situation, ())
    finally:
        world.cut, world.starting = CUT, 0
    return cell


def _all_ways(refused: Refused, world: World, situation: Situation, before: tuple[Way, ...]) -> list[Followed]:
    """Follow every remedy of a refusal, each in a fresh copy of the wreck; one that stops elsewhere, once more on."""
    label = f"wreck{len(before)}"
    world.keep(label)
    found: list[Followed] = []
    for way in ways(refused.next):
        world.put_back(label)
        found += _followed(way, world, situation, before, refused.code)
    return found


def _followed(way: Way, world: World, situation: Situation, before: tuple[Way, ...], code: str) -> list[Followed]:
    gone = (*before, way)
    told = ", restart, then ".join(one.told for one in gone)
    try:
        for command in way.commands:
            _obey(command)
        if way.tells:
            return [Followed(told, TELLS, True)]
        _restart(world, way)
    except DeadEndError as end:
        most = DECISIONS if situation in SITUATIONS.values() else _OF_PAIRS
        if end.refused and end.refused.code != code and len(gone) < most:
            return _all_ways(end.refused, world, situation, gone)
        return [Followed(told, str(end).replace(str(world.root), "PLACE"), False)]
    return [_judged(told, world, situation, [command for one in gone for command in one.commands])]


def _obey(command: list[str]) -> None:
    """Run a printed command, and then the one that its plan prints."""
    done = _cli(command)
    refused = read(done.stderr)
    if done.exit_code == 4 and "Nothing was changed" in done.stderr and not refused:
        printed = [text for text in _COMMAND.findall(done.stderr) if "--yes" in text]
        if not printed:
            raise DeadEndError(f"the plan prints no command: {_last(done)}")
        done = _cli(shlex.split(printed[0]))
        refused = read(done.stderr)
    if done.exit_code not in ({0, 1} if command[0] == "audit" else {0}):
        raise DeadEndError(f"{_short(command)} ends with {done.exit_code}: {_last(done)}", refused)


def _cli(command: Sequence[str]) -> Result:
    return CliRunner().invoke(app, list(command))


def _last(done: Result) -> str:
    return " ".join((done.stderr or repr(done.exception)).split())[:300]


def _restart(world: World, way: Way) -> None:
    """Start the query, twice at most; where a remedy is for one batch after the other, once for each of these."""
    rounds = RESTARTS
    while said := world.run(**way.options):
        refused, rounds = read(said), rounds - 1
        step = _next_step(way, refused) if refused and way.each else None
        if step:
            way.commands.append(step)
            _obey(step)
            rounds = RESTARTS
        elif not rounds:
            stopped = f"stops again: {refused.code} {refused.what}" if refused else said.splitlines()[0][:200]
            raise DeadEndError(stopped, refused)


def _next_step(way: Way, refused: Refused) -> list[str] | None:
    """The same command for a later batch; ``None`` where it is another, or the same once more."""
    [last] = ways(refused.next)[:1] or [Way()]
    step = last.commands[0] if last.commands else []
    return step if step[:-1] == way.commands[-1][:-1] and step not in way.commands else None


# ---- the judgement


def _judged(remedy: str, world: World, situation: Situation, commands: Sequence[Sequence[str]]) -> Followed:
    named = [_named(command, world, situation) for command in commands]
    lost = {sink.id: sum((one.lost[sink.id] for one in named), Counter[int]()) for sink in world.sinks}
    doubled = sum((one.doubled for one in named), Counter[int]())
    unseen = sum((one.unseen for one in named), Counter[int]())
    wanted, fell, grew = Counter(set(world.values)), Counter[int](), Counter[int]()
    for sink, found in world.found().items():
        missing, extra = wanted - found, found - wanted
        if situation in SITUATIONS.values():
            differs = missing not in (lost[sink], Counter()) or extra not in (doubled, doubled + unseen)
        else:  # of two losses one may take what a command for the other names
            differs = bool(missing - lost[sink] or extra - doubled - unseen)
        if differs:
            told = f"{sink}: lost {_told(missing)} where {_told(lost[sink])} was named, doubled {_told(extra)} where "
            return Followed(remedy, f"{told}{_told(doubled)} was named", False)
        fell, grew = fell + missing, grew + extra
    if says := _audited(world, whole=not (fell or grew)):
        return Followed(remedy, says, False)
    if fell:
        return Followed(remedy, "goes on, lost exactly what it named", True)
    return Followed(remedy, "goes on, doubled exactly what it named" if grew else NOTHING, True)


def _audited(world: World, *, whole: bool) -> str:
    """What is wrong with the audit's verdict, beside the rows that another reader counted; empty if nothing is."""
    verdict, *_ = _cli(["audit", "--query", NAME, "--ledger", str(world.ledger)]).stdout.splitlines() or [""]
    if whole and verdict.startswith(("GAPS", "DUPLICATES")):
        return f"every row is there once, and the audit says {verdict}"
    if not whole and verdict.split(NAME)[0].strip() == "EXACTLY ONCE":
        return "rows are lost or doubled, and the audit says EXACTLY ONCE of all"
    return ""


def _told(rows: Counter[int]) -> str:
    return f"{rows.total()} rows ({', '.join(map(str, sorted(rows)[:6]))} ...)" if rows else "nothing"


@dataclass
class _Named:
    lost: Mapping[str, Counter[int]]
    doubled: Counter[int]
    unseen: Counter[int]
    """Keys that come again, and may pass where state has started empty."""


def _named(command: Sequence[str], world: World, situation: Situation) -> _Named:
    """The rows that an accepted command names: by its epochs, or by what the situation says lies in between."""
    sinks = [command[at + 1].split("@")[0] for at, word in enumerate(command) if word == "--sink"]
    lost: Counter[int] = Counter()
    doubled: Counter[int] = Counter()
    if "--accept-loss" in command:
        lost = _rows(world, situation.hole) or _epochs(world, command, "--accept-loss")
    elif "--accept-change" in command:
        lost = _rows(world, situation.gone)
    elif "--accept-duplicates" in command:
        doubled = _epochs(world, command, "--accept-duplicates")
    unseen = Counter([0] if "--accept-state-loss" in command else [])
    concerned = {sink.id: lost if not sinks or sink.id in sinks else Counter() for sink in world.sinks}
    return _Named(concerned, doubled, unseen)


def _epochs(world: World, command: Sequence[str], option: str) -> Counter[int]:
    first, last = map(int, command[command.index(option) + 1].split(".."))
    return _rows(world, range((first - 1) * CUT, min(last, WRITTEN) * CUT))


def _rows(world: World, offsets: range) -> Counter[int]:
    seen = set(world.values[: offsets.start]) if world.stateful else set()
    return Counter(value for value in world.values[offsets.start : offsets.stop] if value not in seen)
