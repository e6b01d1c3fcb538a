"""Which PySpark this is is asked in one place; one that is not known is refused with what to do."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import tomllib
from pyspark.sql import types as t
from pyspark.sql.conversion import ArrowTableToRowsConversion

from onceonly.errors import ConfigurationError
from onceonly.spark import frames
from onceonly.spark.detect import line_of
from onceonly.spark.versions import LINES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("version", "minor"), [("3.5.9", "3.5"), ("4.2.0", "4.2"), ("4.3.0.dev1", "4.3"), ("3.5.2+amzn-1", "3.5")]
)
def test_a_version_belongs_to_the_line_of_its_minor(version: str, minor: str) -> None:
    assert line_of(version) is LINES[minor]
    assert LINES[minor].minor == minor


def test_a_newer_minor_is_refused_with_an_upgrade_or_the_newest_runtime_that_is_known() -> None:
    with pytest.raises(ConfigurationError) as refused:
        line_of("4.4.1")
    assert refused.value.code == "E113"
    assert "PySpark 4.4.1 is newer than this onceonly knows (3.5 to 4.3)" in str(refused.value)
    assert "Nothing was written." in str(refused.value)
    assert "Next: upgrade onceonly, or use a runtime with Spark 4.3" in str(refused.value)
    assert "pip install" not in str(refused.value)


def test_the_extra_takes_the_newest_line_with_jars() -> None:
    """So the first program reads Delta tables and topics. The demo of the lab pins the patch that the proof runs."""
    with_jars = [line.minor for line in LINES.values() if line.delta and line.kafka]
    major, minor = map(int, with_jars[-1].split("."))
    library, lab = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for folder in (".", "src/onceonly_lab")
    )
    assert [pin for pin in library["spark"] if pin.startswith("pyspark")] == [
        f"pyspark>={with_jars[0]},<{major}.{minor + 1}"
    ]
    assert [pin for pin in lab["demo"] if pin.startswith("pyspark")] == [f"pyspark=={with_jars[-1]}.0"]
    assert [pin for pin in lab["demo"] if pin.startswith("onceonly[spark,")]


@pytest.mark.parametrize("version", ["3.4.3", "2.4.8"])
def test_an_older_minor_is_refused_with_the_runtimes_that_are_known(version: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        line_of(version)
    assert f"PySpark {version} is older than this onceonly knows (3.5 to 4.3)" in str(refused.value)
    assert "Next: use a runtime with Spark 3.5 to 4.3" in str(refused.value)


def test_a_minor_of_two_digits_is_newer_than_one_of_one() -> None:
    with pytest.raises(ConfigurationError, match="newer"):
        line_of("4.10.0")


# ---- what the writer of a data source is handed

COLUMNS = t.StructType(
    [
        t.StructField("id", t.LongType()),
        t.StructField("word", t.StringType()),
        t.StructField("raw", t.BinaryType()),
        t.StructField("price", t.DecimalType(20, 4)),
        t.StructField("ratio", t.FloatType()),
        t.StructField("day", t.DateType()),
        t.StructField("seen", t.TimestampType()),
        t.StructField("clock", t.TimestampNTZType()),
        t.StructField("nothing", t.NullType()),
    ]
)


def lines_of(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    """Rows as PySpark 4.0 makes them of a batch, each when it is asked for."""
    make = [ArrowTableToRowsConversion._create_converter(field.dataType) for field in COLUMNS.fields]
    columns = [column.to_pylist() for column in batch.columns]
    for row in range(batch.num_rows):
        yield tuple(one(column[row]) for one, column in zip(make, columns, strict=True))


@pytest.fixture(params=["America/New_York", "Asia/Tokyo", None])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of a machine somewhere."""
    with monkeypatch.context() as there:
        there.setenv("TZ", request.param) if request.param else there.delenv("TZ", raising=False)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("session", ["UTC", "America/New_York"])
def test_rows_become_the_batches_that_they_were_made_of_also_in_the_hour_that_a_clock_passes_twice(
    session: str,
) -> None:
    autumn = datetime.datetime(2013, 11, 3, 4, tzinfo=datetime.timezone.utc)
    times = [autumn + datetime.timedelta(minutes=at * 20, microseconds=at) for at in range(12)]
    schema = frames.in_arrow(COLUMNS)
    given = pa.RecordBatch.from_pylist(
        [
            {
                "id": at,
                "word": None if at % 3 == 0 else f"w{at}",
                "raw": bytes([at]),
                "price": Decimal(at).scaleb(-4),
                "ratio": at / 7,
                "day": datetime.date(1, 1, 1 + at),
                "seen": seen,
                "clock": seen.replace(tzinfo=None),
            }
            for at, seen in enumerate(times)
        ],
        schema,
    )
    own = schema.get_field_index("seen")
    asked = given.set_column(own, "seen", given["seen"].cast(pa.timestamp("us", session)))
    before = time.tzname
    [found] = LINES["4.0"].batches(lines_of(asked), schema)
    assert found == given
    assert time.tzname == before


def test_rows_come_in_pieces_and_none_is_asked_for_before_its_turn() -> None:
    asked: list[int] = []

    def rows() -> Iterator[tuple[int]]:
        for number in range(25_000):
            asked.append(number)
            yield (number,)

    schema = pa.schema([("id", pa.int64())])
    pieces = LINES["4.0"].batches(rows(), schema)
    assert next(pieces).num_rows == 10_000
    assert len(asked) == 10_000
    assert [piece.num_rows for piece in pieces] == [10_000, 5_000]
    assert LINES["4.1"].batches(pieces, schema) is pieces
    assert list(LINES["4.0"].batches(iter(()), schema)) == []
