"""Windows on real stores without Spark.

The shipped code steps them over its own keeper. Readers add up their results.

Each key has one window, which never closes. Its result is the list of all rows that came, and the one before it is
taken back: so what stands, added up by sign, is each row of the input once, as where rows are written as they come, and
state holds these rows, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from onceonly.machine.window_rules import WindowsConfig
from onceonly.protocol import KeepsState, RecallsState, Sink
from onceonly.protocol.batch import ArrowBatch, Bound, Notes
from onceonly.protocol.row_times import NO_TIMES, Clock
from onceonly.windows.epoch_step import EpochAggregates, Targets, WindowStepper
from onceonly.windows.result_batch import WindowResultBatch
from onceonly.windows.rules.assigners import Global
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.local_partials import Row as Given
from onceonly.windows.rules.local_partials import partials_of
from onceonly.windows.rules.spec import Panes, define
from onceonly.windows.rules.triggers import AtCount
from onceonly.windows.rules.values import Fold, Value
from onceonly_checkpoints.model import canonical
from onceonly_lab.history import Mark, Row
from onceonly_lab.history.recorder import Look, Seen
from onceonly_lab.reading import Columns, PostgresReader, there

if TYPE_CHECKING:
    import pyarrow as pa


# ---- The windows, and a batch whose rows go into them.


class Identities(Value):
    """The identities of all rows, as text of JSON."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Of each row."""
        return ("id",)

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """A list in which a row that came twice is twice."""

        def add(partial: Any, row: Sequence[Any]) -> Json:
            return merge(partial or [], row)

        def merge(one: Any, other: Any) -> Json:
            return sorted([*one, *other])

        return Fold("string", "[]", add, merge, canonical)


_COLUMNS = {"id": "string", "key": "string", "amount": "bigint", "value": "string"}
DEFINITION = define(
    Panes(
        key="key",
        values={"value": Identities()},
        time="amount",
        window=Global(),
        trigger=AtCount(1),
        accumulation="retracting",
    ),
    _COLUMNS,
)
WINDOWS = WindowsConfig(DEFINITION.fingerprint, DEFINITION.meaning)


class Keeper(Sink, RecallsState, Protocol):
    """A sink that holds state, and is asked for it."""


def keeper_beside(sink: Sink) -> Keeper:
    """State in a table beside a sink's, as it ships."""
    if not isinstance(sink, KeepsState):
        raise TypeError(f"{sink.id} keeps no state of windows")
    found: Any = sink.state_keeper(beside=True)
    keeper: Keeper = found
    return keeper


def stepping(sinks: Sequence[Sink], keeper: Keeper) -> WindowStepper:
    """What ships steps the windows of a call: all sinks but the keeper get results."""
    targets = Targets(tuple(sink.id for sink in sinks if sink.id != keeper.id), keeper.id)
    return WindowStepper(DEFINITION, keeper, targets)


class WindowedTable(ArrowBatch):
    """Rows that are aggregated when it is said what their windows go on from.

    Args:
        table: of the call.
        stepping: what ships.
    """

    def __init__(self, table: pa.Table, stepping: WindowStepper) -> None:
        super().__init__(table)
        self._stepping = stepping

    def kept_by(self, keeper: RecallsState) -> WindowedTable:
        """The same rows, which ask another one for their state."""
        return WindowedTable(self._table, replace(self._stepping, keeper=keeper))

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> WindowResultBatch:
        """Aggregate and step; see ``protocol.batch.Bindable``."""
        rows = [Given((row["key"],), row["amount"], (row["id"],)) for row in self._table.to_pylist()]
        return self._stepping.stepped(to, EpochAggregates(partials_of(DEFINITION, rows), len(rows), NO_TIMES), notes)


# ---- What stands in the stores, read by plain SQL and JSON alone.


@dataclass(frozen=True, slots=True)
class ResultColumns(Columns):
    """Columns of results. A record of a topic says no sign: of a key, each result but the first comes after a pair."""

    @property
    def names(self) -> list[str]:
        """Key, result and sign, and the epoch where there is one."""
        return ["key", "value", "sign", *([self.epoch] if self.epoch else [])]

    def record(self, key: bytes | None, value: bytes) -> Mapping[str, Any]:
        """A record is a result."""
        return {"key": None if key is None else key.decode(), "value": value.decode()}

    def rows(self, found: Iterable[Mapping[str, Any]]) -> tuple[Row, ...]:
        """The rows of the input that stand once what was taken back is gone, of the epoch that each first came in."""
        turns, standing = Counter[str](), Counter[tuple[str, str]]()
        came: dict[str, int] = {}
        for one in found:
            key = one["key"]
            turns[key] += 1
            sign = one.get("sign", 1 if turns[key] % 2 else -1)
            for identity in json.loads(one["value"]):
                standing[identity, key] += sign
                if self.epoch and sign > 0:
                    came[identity] = min(one[self.epoch], came.get(identity, one[self.epoch]))
        return tuple(Row(identity, came.get(identity), key) for identity, key in standing.elements())


RESULTS = ResultColumns(identity="id")
NUMBERED_RESULTS = ResultColumns(identity="id", epoch="_epoch")
"""Where results are to be replaced, they carry their epoch."""


@dataclass(frozen=True, slots=True)
class KeeperReader(PostgresReader):
    """Reads results, and in the same snapshot how many rows the state holds that stands beside them.

    Attributes:
        state: the table of state.
    """

    state: str = ""

    def _read(self, connection: Any) -> Seen:
        from psycopg import sql

        seen = PostgresReader._read(self, connection)
        if not seen.markers or not there(connection, self.state):
            return seen
        bodies = connection.execute(sql.SQL("SELECT body FROM {}").format(sql.Identifier(self.state)))
        # A body begins with the partial results: of the one value that there is.
        held = sum(len(json.loads(body)[0][0]) for (body,) in bodies)
        *before, newest = sorted(seen.markers, key=lambda mark: mark.epoch)
        return replace(seen, markers=(*before, replace(newest, windows=held)))


def results(look: Look) -> Look:
    """A reader whose markers say nothing of how many rows there are: they count results."""

    def looked() -> Seen:
        seen = look()
        return replace(seen, markers=None if seen.markers is None else tuple(map(_uncounted, seen.markers)))

    return looked


def _uncounted(mark: Mark) -> Mark:
    return replace(mark, count=None, filtered=None, bad=None)
