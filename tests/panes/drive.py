"""Drives the engine over epochs as the runner does: state is text in a dictionary, and only what is asked for is shown.

Times are seconds, as the oracle's; the engine counts milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import NamedTuple

from tests.panes import oracle
from tests.panes.oracle import END, LEAST, Epoch, Pane, Rules, Span

from onceonly.protocol.capabilities import StateWanted
from onceonly.windows import AtCount, AtMark, AtPeriod, AtWatermark, Repeat, Sum, Windows
from onceonly.windows.rules import assigners, step
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Definition, define
from onceonly.windows.rules.state import EpochClock, OpenWindowState, Stepped, WindowKey, WindowResult
from onceonly.windows.rules.step import Row, partials_of
from onceonly.windows.rules.triggers import Trigger
from onceonly.windows.rules.values import Value

COLUMNS = {"team": "string", "value": "bigint", "at": "timestamp", "opens": "timestamp", "closes": "timestamp"}
TOTAL: dict[str, Value] = {"total": Sum("value")}
_MS = 1000


class Stored(NamedTuple):
    """A row of state, as a keeper has it."""

    body: str
    wake_clock: int | None
    wake_time: int


@dataclass(frozen=True)
class World:
    """All that an epoch leaves to the next one."""

    state: Mapping[WindowKey, Stored] = field(default_factory=dict)
    clock: int | None = None
    noted: int | None = None


@dataclass(frozen=True)
class Epochs:
    """What a stream of epochs has given."""

    world: World
    panes: tuple[tuple[Pane, ...], ...]
    dropped: int
    worlds: tuple[World, ...]


def definition_of(rules: Rules, values: Mapping[str, Value] = TOTAL, *, trigger: Trigger | None = None) -> Definition:
    """What the user would write for the oracle's rules."""
    how = "discarding" if rules.discarding else "retracting" if rules.retracting else "accumulating"
    panes = Windows(
        key="team",
        aggregates=values,
        time="at",
        window=_window(rules.window),
        trigger=trigger or _trigger(rules),
        allowed_lateness="unlimited"
        if rules.lateness is None
        else f"{rules.lateness} seconds"
        if rules.lateness
        else "0s",
        accumulation=how,
        on_time="always" if rules.always else "changed",
    )
    return define(panes, COLUMNS)


def epoch(
    definition: Definition, world: World, said: Epoch, draw: random.Random, engine: ModuleType = step
) -> tuple[World, tuple[WindowResult, ...], int]:
    """One epoch: the world after it, the rows of panes, and how many rows were dropped.

    What is shown comes in an order that is drawn, and a second step sees more of the state: it must do the same.
    """
    noted = _later(world.noted, said.noted)
    moment = EpochClock(said.clock * _MS, _scaled(noted), _scaled(world.noted))
    partials = partials_of(definition, engine_rows(definition, said.rows))
    asked = engine.state_request(definition, moment, partials)
    shown = [place for place, stored in world.state.items() if _is_asked(asked, place, stored)]
    stepped = engine.step(definition, moment, _read(world, shown, draw), _shuffled(partials, draw))
    more = [place for place in world.state if place in shown or draw.random() < 0.5]
    again = engine.step(definition, moment, _read(world, more, draw), _shuffled(partials, draw))
    assert _comparable(again) == _comparable(stepped), "a step that saw more of the state did something else"
    state = {place: stored for place, stored in world.state.items() if place not in set(stepped.gone)}
    state |= {
        changed.window_key: Stored(changed.body, changed.wake_clock, changed.wake_time)
        for changed in stepped.changed_windows
    }
    return World(state, said.clock * _MS, noted), stepped.rows, stepped.dropped


def engine_rows(definition: Definition, rows: Sequence[oracle.Row]) -> list[Row]:
    """Rows as windows take them."""
    inputs = len(definition.panes.expressions)
    owns = [row.own and (row.own[0] * _MS, row.own[1] * _MS) for row in rows]
    return [
        Row((row.key,), row.time * _MS, (row.value,) * inputs, row.mark, own)
        for row, own in zip(rows, owns, strict=True)
    ]


def run(
    definition: Definition, epochs: Iterable[Epoch], draw: random.Random | None = None, engine: ModuleType = step
) -> Epochs:
    """A stream of epochs, from nothing; what rows say of themselves is held against what was shown before."""
    worlds, panes, dropped, shown = [World()], list[tuple[Pane, ...]](), 0, set[WindowKey]()
    for said in epochs:
        world, rows, lost = epoch(definition, worlds[-1], said, draw or random.Random(0), engine)
        check_rows(definition, rows, worlds[-1], world, shown)
        panes.append(panes_of(rows))
        dropped += lost
        worlds.append(world)
    return Epochs(worlds[-1], tuple(panes), dropped, tuple(worlds[1:]))


def check_rows(
    definition: Definition, rows: Sequence[WindowResult], before: World, after: World, shown: set[WindowKey]
) -> None:
    """What rows say beside their results: numbers, watermark, kind, and whether they are the last of their window.

    Args:
        definition: of the windows.
        rows: of an epoch.
        before: the world that it found.
        after: the world that it left.
        shown: windows of which a result stands, which is kept up.
    """
    seqs = {key: [row.seq for row in rows if row.window_key.key == key] for key in {row.window_key.key for row in rows}}
    assert all(found == list(range(len(found))) for found in seqs.values()), seqs
    assert [row.window_key.key for row in rows] == sorted(row.window_key.key for row in rows)
    last = {row.window_key: row for row in rows if row.sign > 0}
    times = {"EARLY": {before.noted}, "ON_TIME": {after.noted}, "LATE": {before.noted, after.noted}}
    for row in rows:
        absorbed = any(_absorbed(definition, place, row.window_key) for place in (*last, *after.state))
        stays = absorbed or row.window_key in after.state
        assert row.final == (last.get(row.window_key) is row and not stays), row
        assert row.watermark in {_scaled(one) for one in times[row.timing]}, row
        if row.sign > 0:
            again = row.window_key in shown and definition.panes.accumulation != "discarding"
            assert row.kind == ("+U" if again else "+I"), row
            shown.add(row.window_key)
        else:
            assert row.window_key in shown, row
            shown.discard(row.window_key)
            shown.update({row.window_key} if row.kind == "-U" else ())
    kept = {place for place in shown if any(_absorbed(definition, other, place) for other in after.state)}
    shown &= kept | set(after.state)


def _absorbed(definition: Definition, place: WindowKey, other: WindowKey) -> bool:
    """Whether a session has absorbed another one, which then was not closed; other windows absorb none."""
    within = definition.sessions and place.key == other.key and place.start <= other.start and other.end <= place.end
    return within and place != other


def panes_of(rows: Sequence[WindowResult]) -> tuple[Pane, ...]:
    """Rows as the oracle says them: each result with what it takes back, in the order of its key."""
    found, taken = list[Pane](), list[WindowResult]()
    for row in rows:
        if row.sign < 0:
            taken.append(row)
            continue
        assert all(_precedes(one, row) for one in taken), (taken, row)
        retracts = tuple((_span(one.window_key), _value(one.values)) for one in taken)
        at = row.fired_at // _MS
        found.append(Pane(*seconds_of(row.window_key), _value(row.values), retracts, row.timing, row.pane, at))
        taken = []
    assert not taken, "rows are taken back, and nothing takes their place"
    return tuple(found)


def seconds_of(place: WindowKey) -> tuple[str, Span]:
    """A window as the oracle says it: its key, and its span."""
    return place.key[2:-2], _span(place)


def _is_asked(asked: StateWanted, place: WindowKey, stored: Stored) -> bool:
    return (
        place in asked.places
        or place.key in asked.keys
        or (stored.wake_clock is not None and stored.wake_clock <= asked.wake_clock)
        or (asked.wake_time is not None and stored.wake_time <= asked.wake_time)
    )


def _read(world: World, places: Sequence[WindowKey], draw: random.Random) -> list[OpenWindowState]:
    return _shuffled([OpenWindowState.read(place, world.state[place].body) for place in places], draw)


def _shuffled(items: Sequence[object], draw: random.Random) -> list:
    return draw.sample(items, len(items))


def _comparable(stepped: Stepped) -> object:
    kept = {(one.window_key, one.body, one.wake_clock, one.wake_time) for one in stepped.changed_windows}
    return stepped.rows, kept, set(stepped.gone), stepped.dropped


def _precedes(taken: WindowResult, row: WindowResult) -> bool:
    """Whether what is taken back belongs to the row that follows: of its moment, and of what it says to be."""
    same = taken.window_key == row.window_key
    told = (row.window_key.key, row.timing, row.fired_at, row.watermark, False)
    if (taken.window_key.key, taken.timing, taken.fired_at, taken.watermark, taken.final) != told:
        return False
    return taken.pane < row.pane and taken.kind == ("-U" if same else "-D") and (row.kind == "+U" or not same)


def _window(window: oracle.Window) -> assigners.Window:
    match window:
        case oracle.Fixed(size, offset):
            return assigners.Tumbling(_size(size), offset=_size(offset) if offset else 0)
        case oracle.Sliding(size, every):
            return assigners.Sliding(_size(size), _size(every))
        case oracle.Sessions(gap):
            return assigners.Sessions(_size(gap))
        case oracle.Own():
            return assigners.Custom("opens", "closes")
        case _:
            return assigners.Global()


def _trigger(rules: Rules) -> Trigger:
    early = AtMark("at_end") if rules.mark else _leaf(rules.period, rules.count)
    late = _leaf(rules.late_period, rules.late_count)
    if rules.watermark and rules.lateness != 0:
        return AtWatermark(early=early, late=None if late == AtCount(1) else late or "closing")  # one of them unsaid
    if rules.watermark:
        return AtWatermark(early=early, late=late)
    assert early is not None
    return Repeat(early)


def _leaf(period: int | None, count: int | None) -> Trigger | None:
    return AtPeriod(_size(period)) if period else AtCount(count) if count else None


def _size(seconds: int) -> str:
    return f"{seconds} seconds"


def _scaled(seconds: int | None) -> int | None:
    return seconds if seconds in (None, END, LEAST) else seconds * _MS


def _seconds(number: int) -> int:
    return number if number in (END, LEAST) else number // _MS


def _span(place: WindowKey) -> Span:
    return _seconds(place.start), _seconds(place.end)


def _value(values: Sequence[Json]) -> oracle.Value:
    return tuple(values) if len(values) > 1 else values[0]


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
