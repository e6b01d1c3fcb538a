"""Late rows come out of each kind of sink that names its columns, without Spark; of a topic it is said who can tell."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.reading.writing import Writer, records_at

from onceonly.event_time.late_rows import LateRow, LateRows, late_rows
from onceonly.protocol import Sink
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

NOON = 1_767_268_800_000


def clicks_at(times: Iterable[int]) -> pa.Table:
    """Rows a microsecond before their millisecond ends, as the horizon is compared by floor."""
    micros = [time * 1000 + 999 for time in times]
    return pa.table({"at": pa.array(micros, pa.timestamp("us", "UTC")), "n": pa.array(range(len(micros)), pa.int64())})


@pytest.fixture(params=["memory", "delta", pytest.param("postgres", marks=pytest.mark.postgres)])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    makes: dict[str, Callable[[], Sink]] = {
        "memory": MemorySink,
        "delta": lambda: DeltaSink(tmp_path / "clicks"),
        "postgres": lambda: PostgresSink(request.getfixturevalue("dsn"), "clicks", epoch_column="epoch"),
    }
    made = makes[request.param]()
    yield made
    made.close()


def late(sink: Sink, table: Callable[[Iterable[int]], pa.Table] = clicks_at) -> LateRows:
    web = Writer("web", sink, unit="ms", table=table, column="at")
    web.write(NOON - 90_000, NOON, noted=NOON)
    web.write(NOON - 1, NOON, NOON - 5_000, noted=NOON)
    web.write(NOON + 1, noted=NOON)
    return late_rows(sink, web.epochs, 20)


def test_late_rows_are_those_before_the_horizon_and_no_others(sink: Sink) -> None:
    told = late(sink)
    assert (told.found, told.counted, told.unknown) == (2, 2, ())
    assert [(row.epoch, row.worst, row.row["n"]) for row in told.rows] == [(2, 5_000, 2), (2, 1, 0)]
    at = datetime.fromtimestamp(NOON // 1000 - 5, timezone.utc).replace(microsecond=999)
    assert told.rows[0].row["at"] == at


@pytest.mark.kafka
def test_a_record_of_a_topic_has_no_column_and_that_is_said(kafka: EmbeddedKafka) -> None:
    sink = KafkaSink(kafka.servers, kafka.topic("late-clicks", 2))
    try:
        assert late(sink, records_at).unknown == ((2, "its rows lie there without a time in at"),)
    finally:
        sink.close()


def test_what_json_has_no_form_for_is_text() -> None:
    row = {"nan": math.nan, "far": -math.inf, "dec": Decimal("0.10"), "n": 1, "x": 0.5, "text": "a", "none": None}
    said = json.dumps(LateRow(1, 0, 1, row).to_json()["row"], allow_nan=False)
    assert json.loads(said) == row | {"nan": "nan", "far": "-inf", "dec": "0.10"}
