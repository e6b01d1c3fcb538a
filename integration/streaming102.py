"""The data set of Streaming 102 as a stream: records in files, clocks in the offset log, watermarks by a function.

One start of the query for each epoch: the engine plans a batch, its entry gets the script's clock, and the next start
replays it, so that ``current_timestamp()``, the recorded clock and empty batches are the script's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from integration.streams import FileStream
from integration.targets import PostgresTarget
from pyspark.sql import DataFrame, SparkSession

from onceonly import faults
from onceonly.event_time import TimedEpoch
from onceonly.faults import Point
from onceonly.windows import AtCount, AtPeriod, AtWatermark, Global, Sessions, Sum, Tumbling, Windows
from onceonly_checkpoints.epoch_time import END

NOON = datetime(2015, 8, 5, tzinfo=timezone.utc)
"""The day of the script."""

DATA = Path(__file__).parent.parent / "tests" / "panes" / "data" / "streaming102_expected.json"
COLUMNS = "team string, value bigint, event_time timestamp"


def at(clock: str) -> int:
    """A clock of the script in milliseconds since 1970."""
    if clock == "+inf":
        return END
    hours, minutes, seconds = map(int, clock.split(":"))
    return int((NOON + timedelta(hours=hours, minutes=minutes, seconds=seconds)).timestamp() * 1000)


@dataclass(frozen=True)
class Case:
    """A figure: what goes in, epoch by epoch, and what must come out."""

    name: str
    panes: Windows
    epochs: Sequence[Any]
    expected: Sequence[Any]
    dropped: int
    ingest: bool

    @property
    def noting(self) -> Any:
        """For ``event_time=``."""
        return "ingest" if self.ingest else self.noted

    def noted(self, epoch: TimedEpoch) -> int | None:
        """What the script notes with an epoch."""
        said = self.epochs[epoch.number - 1]["noted"]
        return None if said is None else at(said)


_EARLY_AND_LATE = AtWatermark(early=AtPeriod("1 minute"), late=AtCount(1))
_REFINED: dict[str, Any] = {"trigger": _EARLY_AND_LATE, "allowed_lateness": "unlimited"}
_CLOCK: dict[str, Any] = {"window": Global(), "trigger": AtPeriod("2 minutes"), "accumulation": "discarding"}

_SAID: dict[str, dict[str, Any]] = {
    "row 1 batch": {"window": Global()},
    "row 2 windowed batch": {},
    "row 3 heuristic": {},
    "row 3 perfect": {},
    "row 4 discarding": {**_REFINED, "accumulation": "discarding", "on_time": "changed"},
    "row 5 accumulating heuristic": _REFINED,
    "row 5 accumulating perfect": _REFINED,
    "row 6 retracting": {**_REFINED, "accumulation": "retracting", "on_time": "changed"},
    "row 7 order A": _CLOCK,
    "row 7 order B": _CLOCK,
    "row 8 order A": {"time": "ingest"},
    "row 8 order B": {"time": "ingest"},
    "row 9 sessions": {
        **_REFINED,
        "window": Sessions("1 minute"),
        "accumulation": "retracting",
        "on_time": "changed",
    },
    "P102-5 lateness 1 min with r11": {**_REFINED, "allowed_lateness": "1 minute"},
    "P102-7 order B": _REFINED,
}


def cases() -> dict[str, Case]:
    """All figures with epochs, by name."""
    found: dict[str, Case] = {}
    told = json.loads(DATA.read_text())["cases"]
    for name, said in _SAID.items():
        one = told[name]
        panes = {
            "key": "team",
            "aggregates": {"total": Sum("value")},
            "time": "event_time",
            "window": Tumbling("2 minutes"),
        }
        ingest = said.get("time") == "ingest"
        found[name] = Case(name, Windows(**{**panes, **said}), one["epochs"], one["panes"], one["dropped"], ingest)
    assert found.keys() == told.keys()
    return found


def batch(epoch: Any) -> pa.Table:
    """The rows of an epoch."""
    times = [NOON + timedelta(milliseconds=at(time) - at("0:0:0")) for _, time in epoch["rows"]]
    stamps: Any = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "team": pa.array(["TeamX"] * len(times), pa.string()),
            "value": pa.array([value for value, _ in epoch["rows"]], pa.int64()),
            "event_time": pa.array(times, stamps),
        }
    )


def bring(case: Case, number: int, inbox: Path) -> None:
    """Put the rows of an epoch, from 0, where the stream finds them: a file, which may have none."""
    path = inbox / f"part-{number:04d}.parquet"
    pq.write_table(batch(case.epochs[number]), path)
    os.utime(path, (1_700_000_000 + number,) * 2)  # of two files that are made in a moment neither need be older


def set_clock(checkpoint: Path, number: int, clock: int) -> None:
    """Have a batch that is planned and not written be planned at a clock, in milliseconds since 1970."""
    entry = checkpoint / "offsets" / str(number)
    version, metadata, *offsets = entry.read_text().splitlines()
    said = {**json.loads(metadata), "batchTimestampMs": clock}
    entry.write_text("\n".join([version, json.dumps(said), *offsets]))
    entry.with_name(f".{number}.crc").unlink(missing_ok=True)


class Script(FileStream):
    """The stream of one figure."""

    def __init__(self, spark: SparkSession, root: Path, case: Case) -> None:
        super().__init__(spark, root, "scores")
        self.case = case

    def read(self) -> DataFrame:
        return self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(self.inbox))

    def plan(self, number: int, write: Callable[[DataFrame, int], None]) -> None:
        """Have the engine plan the batch of an epoch, from 0, at the clock of the script."""
        bring(self.case, number, self.inbox)
        faults.arm(Point.DISCOVER_AFTER, _planned)
        assert "only planned" in self.fail(write)
        faults.disarm()
        set_clock(self.checkpoint, number, at(self.case.epochs[number]["clock"]))


def _planned() -> None:
    raise RuntimeError("only planned")


Shown = tuple[int, int | None, int | None, int, int, str, int | None, int]
"""Epoch, window, total, sign, timing, number of the pane (not of one that is taken back), and when it fired."""


def shown(pg: PostgresTarget) -> list[Shown]:
    """The rows that stand, in their order within each epoch."""
    bounds = [f"(extract(epoch from {name}) * 1000)::bigint" for name in ("window_start", "window_end", "fired_at")]
    number = "case when sign > 0 then pane end"
    columns = f"_epoch, {bounds[0]}, {bounds[1]}, total, sign, timing, {number}, {bounds[2]}"
    return pg.says(f"select {columns} from orders order by _epoch, seq")


def wanted(case: Case) -> list[Shown]:
    """The same by the script's own simulation; an epoch without a window that ends is in the order of time."""
    found: list[Shown] = []
    for pane in case.expected:
        told = (pane["timing"], None, at(pane["fired_at"]))
        for old in pane["retracts"]:
            found.append((pane["epoch"], *_bounds(old["window"]), old["value"], -1, *told))
        own = (pane["timing"], pane["pane"], at(pane["fired_at"]))
        found.append((pane["epoch"], *_bounds(pane["window"]), pane["value"], 1, *own))
    return found


def _bounds(window: list[str]) -> tuple[int | None, int | None]:
    start, end = (None if one.endswith("inf") else at(one) for one in window)
    return start, end
