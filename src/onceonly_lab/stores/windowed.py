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
from typing import TYPE_CHECKING, Any

from onceonly.machine.division_rules import WindowsConfig
from onceonly.protocol import HostsStores, Sink
from onceonly.protocol.batch import ArrowBatch, Bound, Notes
from onceonly.protocol.capabilities import WindowStore
from onceonly.protocol.row_times import NO_TIMES, Clock
from onceonly.windows.epoch_step import EpochAggregates, Targets, WindowReader, WindowResultBatch, WindowStepper
from onceonly.windows.rules.assigners import Global
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Windows, define
from onceonly.windows.rules.step import Row as Given
from onceonly.windows.rules.step import partials_of
from onceonly.windows.rules.triggers import AtCount
from onceonly.windows.rules.values import Fold, Value
from onceonly_checkpoints.model import canonical
from onceonly_lab.history import Mark, Row
from onceonly_lab.history.recorder import Look, Seen
from onceonly_lab.reading import Columns, DeltaReader, PostgresReader, there

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

        def merge(left: Any, other: Any) -> Json:
            return sorted([*left, *other])

        return Fold("string", "[]", list, merge, canonical)


_COLUMNS = {"id": "string", "key": "string", "amount": "bigint", "value": "string"}
DEFINITION = define(
    Windows(
        key="key",
        aggregates={"value": Identities()},
        time="amount",
        window=Global(),
        trigger=AtCount(1),
        accumulation="retracting",
    ),
    _COLUMNS,
)
WINDOWS = WindowsConfig(DEFINITION.fingerprint, DEFINITION.meaning)


SUFFIX = "_state"
"""What ships puts behind the name of a table for that of its state."""


def keeper_beside(sink: Sink) -> WindowStore:
    """State in a table beside a sink's, as it ships."""
    store = sink.window_store(separate=True) if isinstance(sink, HostsStores) else None
    if store is None:
        raise TypeError(f"{sink.id} keeps no state of windows")
    return store


def stepping(sinks: Sequence[Sink], keeper: WindowStore) -> WindowStepper:
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

    def kept_by(self, keeper: WindowReader) -> WindowedTable:
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

    def rows(self, raw_rows: Iterable[Mapping[str, Any]]) -> tuple[Row, ...]:
        """The rows of the input that stand once what was taken back is gone, of the epoch that each first came in."""
        turns, balance = Counter[str](), Counter[tuple[str, str]]()
        came: dict[str, int] = {}
        for raw_row in raw_rows:
            key = raw_row["key"]
            turns[key] += 1
            sign = raw_row.get("sign", 1 if turns[key] % 2 else -1)
            for identity in json.loads(raw_row["value"]):
                balance[identity, key] += sign
                if self.epoch and sign > 0:
                    came[identity] = min(raw_row[self.epoch], came.get(identity, raw_row[self.epoch]))
        return tuple(Row(identity, came.get(identity), key) for identity, key in balance.elements())


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

        snapshot = PostgresReader._read(self, connection)
        if not snapshot.markers or not there(connection, self.state):
            return snapshot
        bodies = connection.execute(sql.SQL("SELECT body FROM {}").format(sql.Identifier(self.state)))
        return _with_windows(snapshot, (body for (body,) in bodies))


@dataclass(frozen=True, slots=True)
class DeltaKeeperReader(DeltaReader):
    """Reads results, and then how many rows the state holds, where both are of one epoch.

    State commits after results, so state of the epoch that was read is what that epoch left.

    Attributes:
        state: the table of state.
    """

    state: str = ""

    def __call__(self) -> Seen:
        """Look at one table after the other; raises as the base class."""
        snapshot = DeltaReader.__call__(self)
        kept = DeltaReader(f"{self.sink}{SUFFIX}", self.state, _BODIES)
        bodies = kept()
        newest = [max((mark.epoch for mark in look.markers or ()), default=0) for look in (snapshot, bodies)]
        if not newest[0] or newest[0] != newest[1]:
            return snapshot
        return _with_windows(snapshot, (row.identity for row in bodies.rows))


_BODIES = Columns(identity="body")


def _with_windows(snapshot: Seen, bodies: Iterable[str]) -> Seen:
    # A body begins with the partial results: of the one value that there is.
    held = sum(len(json.loads(body)[0][0]) for body in bodies)
    *before, newest = sorted(snapshot.markers or (), key=lambda mark: mark.epoch)
    return replace(snapshot, markers=(*before, replace(newest, windows=held)))


def results(look: Look) -> Look:
    """A reader whose markers say nothing of how many rows there are: they count results."""

    def looked() -> Seen:
        snapshot = look()
        return replace(snapshot, markers=None if snapshot.markers is None else tuple(map(_uncounted, snapshot.markers)))

    return looked


def _uncounted(mark: Mark) -> Mark:
    return replace(mark, count=None, filtered=None, bad=None)
