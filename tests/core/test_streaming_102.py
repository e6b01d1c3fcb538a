"""The ten values of "Streaming 102" (Akidau): a perfect watermark is never wrong, a heuristic one is for the 9."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import Pipeline
from tests.core.test_timed_epochs import Query
from typer.testing import CliRunner

from onceonly.cli.app import app
from onceonly.machine.event_time import EventTimeConfig
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import EventKind

VALUES = {
    "12:05:19": (5, "12:00:26"),
    "12:05:39": (7, "12:02:24"),
    "12:06:13": (3, "12:03:39"),
    "12:06:39": (4, "12:03:52"),
    "12:06:52": (3, "12:04:19"),
    "12:07:06": (8, "12:03:06"),
    "12:07:19": (3, "12:06:39"),
    "12:08:19": (9, "12:01:25"),
    "12:08:39": (8, "12:07:26"),
    "12:09:00": (1, "12:07:46"),
}
"""By arrival: the value, and the moment that it is of."""

PERFECT = {
    "12:04:59": "12:00:00",
    "12:08:35": "12:02:00",
    "12:09:12": "12:04:00",
    "12:09:20": "12:06:00",
    "12:09:30": "12:08:00",
}
HEURISTIC = {
    "12:04:59": "12:00:00",
    "12:05:50": "12:01:30",
    "12:05:58": "12:02:00",
    "12:06:50": "12:03:00",
    "12:07:30": "12:04:00",
    "12:07:37": "12:05:20",
    "12:07:40": "12:06:00",
    "12:09:30": "12:08:00",
    "12:09:45": "12:08:46",
}
"""By arrival: before which moment all is said to be there."""


def ms(clock: str) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return 1767225600000 + 1000 * (3600 * hours + 60 * minutes + seconds)


def played(pipeline: Pipeline, watermark: dict[str, str]) -> list[Epoch]:
    """An epoch for each value as it arrives, and one without rows for each word on time."""
    said = iter([word and ms(word) for word in (watermark.get(at) for at in sorted({*VALUES, *watermark}))])
    query = Query(pipeline, EventTimeConfig("function", "ms", "at"), lambda _: next(said))
    epochs: list[Epoch] = []
    for number, at in enumerate(sorted({*VALUES, *watermark}), start=1):
        value, moment = VALUES.get(at, (None, ""))
        moments = [ms(moment) * 1000] if moment else []
        values = [value] if moment else []
        table = pa.table({"id": pa.array(values, pa.int64()), "at": pa.array(moments, pa.timestamp("us", "UTC"))})
        epochs.append(query.writes(number, table=table))
    return epochs


def late_by_epoch(pipeline: Pipeline) -> dict[int, int]:
    """Late rows of all epochs, as ``onceonly time show --history`` prints them."""
    words = ["time", "show", "orders", "--history", "-n", "99", "-o", "json", "--ledger"]
    result = CliRunner().invoke(app, [*words, str(pipeline.root / "ledger.db")])
    return {epoch["epoch"]: epoch.get("late_rows", 0) for epoch in json.loads(result.stdout)["epochs"]}


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, names=("a",))
    yield made
    made.ledger.close()


def test_a_perfect_watermark_leaves_no_row_late(pipeline: Pipeline) -> None:
    epochs = played(pipeline, PERFECT)
    assert [epoch.time.late_rows for epoch in epochs if epoch.time] == [0] * len(epochs)
    assert pipeline.events(EventKind.BEHIND) == []
    last = epochs[-1].time
    assert last is not None
    assert (last.dataset_complete_until, last.max_time) == (ms("12:08:00"), ms("12:07:46"))
    assert sum(epoch.rows for epoch in epochs) == 10
    assert late_by_epoch(pipeline) == dict.fromkeys(range(1, len(epochs) + 1), 0)


def test_a_heuristic_one_is_late_with_the_9_alone_and_says_by_how_much(pipeline: Pipeline) -> None:
    epochs = played(pipeline, HEURISTIC)
    late = [epoch.time for epoch in epochs if epoch.time and epoch.time.late_rows]
    assert [(time.late_rows, time.earliest, time.late_before) for time in late] == [(1, ms("12:01:25"), ms("12:06:00"))]
    (said,) = pipeline.events(EventKind.BEHIND)
    assert said.startswith("1 row came late: all before 2026-01-01T12:06:00Z was recorded as complete")
    assert said.endswith("; the earliest is of 2026-01-01T12:01:25Z, 0:04:35 before that")
    (number,) = (epoch.number for epoch in epochs if epoch.time and epoch.time.late_rows)
    assert sum(epoch.rows for epoch in epochs) == 10
    assert late_by_epoch(pipeline) == dict.fromkeys(range(1, len(epochs) + 1), 0) | {number: 1}
    (sink,) = pipeline.sinks_open()
    assert sum(row["id"] for row in sink.rows()) == 51
