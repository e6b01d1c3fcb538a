"""Definitions and moments in few words, and state that has been through JSON, for tests of the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from onceonly.errors import ConfigurationError
from onceonly.windows import Sum, Tumbling, Windows
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Definition, define
from onceonly.windows.rules.state import EpochClock, OpenWindowState, Stepped, WindowKey, WindowResult
from onceonly.windows.rules.step import Row, partials_of, state_request, step
from onceonly_checkpoints.epoch_time import END

COLUMNS = {
    "team": "string",
    "player": "bigint",
    "at": "timestamp",
    "number": "bigint",
    "value": "bigint",
    "amount": "decimal(12,2)",
    "heat": "double",
    "tags": "array<string>",
}
"""Kinds of the rows that tests give."""


def through_json(value: Any) -> Json:
    """A value as whoever stored it gets it back; it must be JSON."""
    found: Json = json.loads(json.dumps(value, allow_nan=False))
    return found


def said(**changes: Any) -> dict[str, Any]:
    """Arguments of ``Windows`` over whole numbers, with changes."""
    fixed: dict[str, Any] = {
        "key": "team",
        "aggregates": {"total": Sum("value")},
        "time": "number",
        "window": Tumbling(10),
    }
    return fixed | changes


def made(**changes: Any) -> Definition:
    """A definition over whole numbers, with changes."""
    return define(Windows(**said(**changes)), COLUMNS)


def refused(code: str, make: Callable[[], Any]) -> ConfigurationError:
    """The refusal that a call must end in."""
    with pytest.raises(ConfigurationError) as error:
        make()
    assert error.value.code == code
    return error.value


@dataclass
class Pipeline:
    """State between epochs, each of which it has been through JSON. The epochs' clocks never go back."""

    definition: Definition
    state: dict[WindowKey, OpenWindowState] = field(default_factory=dict[WindowKey, OpenWindowState])
    clock: int | None = None
    noted: int | None = None
    dropped: int = 0

    def epoch(
        self,
        clock: int,
        rows: Iterable[tuple[int, int]] = (),
        *,
        noted: int | None = None,
        team: str | None = "A",
        marks: Sequence[int] = (),
    ) -> list[WindowResult]:
        """One epoch: rows as pairs of time and value, ``marks`` the values of rows for which the mark is true."""
        given = [Row((team,), time, (value,), value in marks) for time, value in rows]
        partials = partials_of(self.definition, given)
        moment = EpochClock(clock, self.noted if noted is None else noted, self.noted)
        asked = state_request(self.definition, moment, partials)
        held = [one for one in self.state.values() if _asked(one, asked)]
        found = step(self.definition, moment, held, partials)
        self._keep(found)
        self.clock, self.noted, self.dropped = clock, moment.complete_until, self.dropped + found.dropped
        return list(found.rows)

    def _keep(self, found: Stepped) -> None:
        for place in found.gone:
            del self.state[place]
        for one in found.changed_windows:
            read = OpenWindowState.read(one.window_key, json.dumps(through_json(json.loads(one.body))))
            assert read == one
            self.state[one.window_key] = replace(read, wake_clock=one.wake_clock, wake_time=one.wake_time)

    def ends(self, clock: int) -> list[WindowResult]:
        """The epoch after which nothing follows."""
        return self.epoch(clock, noted=END)


def _asked(one: OpenWindowState, asked: Any) -> bool:
    if one.window_key in asked.places or one.window_key.key in asked.keys:
        return True
    by_clock = one.wake_clock is not None and one.wake_clock <= asked.wake_clock
    return by_clock or (asked.wake_time is not None and one.wake_time <= asked.wake_time)


def brief(rows: Iterable[WindowResult]) -> list[str]:
    """Rows in a line each: bounds, kind, value, timing, number and instant; a star where it is the last."""
    return [
        f"[{row.window_key.start},{row.window_key.end}) {row.kind} {row.values[0]}"
        f" {row.timing} {row.pane} @{row.fired_at}{'*' if row.final else ''}"
        for row in rows
    ]
