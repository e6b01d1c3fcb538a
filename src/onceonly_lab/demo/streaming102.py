"""Data set of *Streaming 102* as a stream: rows, clocks, watermarks, expected results.

Each case is a figure of Tyler Akidau's article. Its epochs have a clock of their own, which goes into the offset log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onceonly.event_time import TimedEpoch
from onceonly.windows import AtCount, AtPeriod, AtWatermark, Global, Sessions, Sum, Tumbling, Windows
from onceonly_checkpoints.epoch_time import END

if TYPE_CHECKING:
    import pyarrow as pa

DAY = datetime(2015, 8, 5, tzinfo=timezone.utc)
COLUMNS = "team string, value bigint, event_time timestamp"
DATA = "streaming102.json"
"""File beside this module with the epochs and expected results of each case."""


def milliseconds(clock: str) -> int:
    """A clock of the script in milliseconds since 1970; ``+inf`` is the end of time."""
    if clock == "+inf":
        return END
    hours, minutes, seconds = map(int, clock.split(":"))
    return int((DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds)).timestamp() * 1000)


class Result(NamedTuple):
    """A result row. ``pane`` is the number of the result, ``None`` of a retraction; times are milliseconds."""

    epoch: int
    start: int | None
    end: int | None
    total: int
    sign: int
    timing: str
    pane: int | None
    fired_at: int


@dataclass(frozen=True)
class Case:
    """A figure. ``dropped`` counts rows that come after their window was closed."""

    name: str
    windows: Windows
    epochs: Sequence[Any]
    expected: Sequence[Any]
    dropped: int
    ingest: bool

    @property
    def event_time(self) -> Any:
        """For ``event_time=``."""
        return "ingest" if self.ingest else self.watermark

    def watermark(self, epoch: TimedEpoch) -> int | None:
        """Event time that the script records with an epoch."""
        clock = self.epochs[epoch.number - 1]["noted"]
        return None if clock is None else milliseconds(clock)

    @property
    def results(self) -> list[Result]:
        """The rows that the table must hold at the end, in their order within each epoch."""
        rows: list[Result] = []
        for pane in self.expected:
            fired_at = milliseconds(pane["fired_at"])
            for old in pane["retracts"]:
                start, end = _bounds(old["window"])
                rows.append(Result(pane["epoch"], start, end, old["value"], -1, pane["timing"], None, fired_at))
            start, end = _bounds(pane["window"])
            rows.append(Result(pane["epoch"], start, end, pane["value"], 1, pane["timing"], pane["pane"], fired_at))
        return rows


def _bounds(window: Sequence[str]) -> tuple[int | None, int | None]:
    start, end = (None if clock.endswith("inf") else milliseconds(clock) for clock in window)
    return start, end


_EARLY_AND_LATE = AtWatermark(early=AtPeriod("1 minute"), late=AtCount(1))
_REFINED: dict[str, Any] = {"trigger": _EARLY_AND_LATE, "allowed_lateness": "unlimited"}
_RETRACTING: dict[str, Any] = {**_REFINED, "accumulation": "retracting", "on_time": "changed"}
_CLOCK: dict[str, Any] = {"window": Global(), "trigger": AtPeriod("2 minutes"), "accumulation": "discarding"}

_SETTINGS: dict[str, dict[str, Any]] = {
    "row 1 batch": {"window": Global()},
    "row 2 windowed batch": {},
    "row 3 heuristic": {},
    "row 3 perfect": {},
    "row 4 discarding": {**_REFINED, "accumulation": "discarding", "on_time": "changed"},
    "row 5 accumulating heuristic": _REFINED,
    "row 5 accumulating perfect": _REFINED,
    "row 6 retracting": _RETRACTING,
    "row 7 order A": _CLOCK,
    "row 7 order B": _CLOCK,
    "row 8 order A": {"time": "ingest"},
    "row 8 order B": {"time": "ingest"},
    "row 9 sessions": {**_RETRACTING, "window": Sessions("1 minute")},
    "P102-5 lateness 1 min with r11": {**_REFINED, "allowed_lateness": "1 minute"},
    "P102-7 order B": _REFINED,
}


def data() -> dict[str, Any]:
    """Epochs and expected results of each case by name, as the file has them."""
    cases: dict[str, Any] = json.loads((files("onceonly_lab.demo") / DATA).read_text(encoding="utf-8"))["cases"]
    return cases


def cases() -> dict[str, Case]:
    """All figures with epochs, by name."""
    by_name = data()
    assert by_name.keys() == _SETTINGS.keys()
    return {name: _case(name, by_name[name]) for name in _SETTINGS}


def _case(name: str, figure: Any) -> Case:
    settings: dict[str, Any] = {"time": "event_time", "window": Tumbling("2 minutes"), **_SETTINGS[name]}
    windows = Windows(key="team", aggregates={"total": Sum("value")}, **settings)
    ingest = settings["time"] == "ingest"
    return Case(name, windows, figure["epochs"], figure["panes"], figure["dropped"], ingest)


def batch(epoch: Any) -> pa.Table:
    """The rows of an epoch."""
    import pyarrow as pa

    times = [milliseconds(clock) * 1000 for _, clock in epoch["rows"]]
    return pa.table(
        {
            "team": pa.array(["TeamX"] * len(times), pa.string()),
            "value": pa.array([value for value, _ in epoch["rows"]], pa.int64()),
            "event_time": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def bring(case: Case, number: int, inbox: Path) -> None:
    """Put the rows of an epoch, from 0, where the stream finds them: a file, which may have none."""
    import pyarrow.parquet as pq

    path = inbox / f"part-{number:04d}.parquet"
    pq.write_table(batch(case.epochs[number]), path)
    modified = 1_700_000_000 + number  # of two files made in a moment, Spark may take either first
    os.utime(path, (modified, modified))


def set_clock(checkpoint: Path, number: int, clock: int) -> None:
    """Have a batch that is planned and not written be planned at a clock, in milliseconds since 1970."""
    entry = checkpoint / "offsets" / str(number)
    version, metadata, *offsets = entry.read_text().splitlines()
    fields = {**json.loads(metadata), "batchTimestampMs": clock}
    entry.write_text("\n".join([version, json.dumps(fields), *offsets]))
    entry.with_name(f".{number}.crc").unlink(missing_ok=True)


def written(dsn: str, table: str) -> list[Result]:
    """The result rows in a table of Postgres, in their order within each epoch."""
    import psycopg
    from psycopg import sql

    query = sql.SQL(
        "SELECT _epoch, (extract(epoch FROM window_start) * 1000)::bigint,"
        " (extract(epoch FROM window_end) * 1000)::bigint, total, sign, timing, CASE WHEN sign > 0 THEN pane END,"
        " (extract(epoch FROM fired_at) * 1000)::bigint FROM {} ORDER BY _epoch, seq"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [Result(*row) for row in connection.execute(query.format(sql.Identifier(table)))]
