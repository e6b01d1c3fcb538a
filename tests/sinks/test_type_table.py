"""The type table is true: each sink makes of every value what the table says, and the page shows this table."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.memory_harness import MemoryHarness
from tests.sinks.postgres_harness import PostgresHarness

from onceonly.errors import DestinationError
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.conformance.mishaps import every_type_comes_back_or_is_refused
from onceonly_sinks.conformance.typetable import KINDS, SINKS, Answer, Kind, arrow_type, markdown
from onceonly_sinks.kafka.columns import Columns

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
BEGIN, END = "<!-- the table -->\n", "<!-- its end -->"


def test_the_page_shows_the_table() -> None:
    """ONCEONLY_NEW_MESSAGES=1 writes it down as it is now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    now = f"{before}{BEGIN}{markdown()}{END}{after}"
    if os.environ.get("ONCEONLY_NEW_MESSAGES"):
        PAGE.write_text(now)
    assert now == PAGE.read_text()


@pytest.mark.parametrize(
    "name", ["VARIANT", "GEOMETRY", "GEOGRAPHY", "CHAR(n)", "VARCHAR(n)", "MAP", "user-defined types"]
)
def test_the_page_says_of_a_type_beyond_the_table_what_becomes_of_it(name: str) -> None:
    """Each of them has its tests beside its sink; none of them is called untried."""
    beyond = PAGE.read_text().partition(END)[2].split("\n- ")
    assert [one for one in beyond if name in one and "E50" in one and "tried" not in one]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.spark)
def test_a_kind_has_a_cell_for_every_sink_and_values_of_its_type(kind: Kind) -> None:
    assert set(kind.cells) == set(SINKS)
    for case in kind.all_cases:
        assert pa.array([case.value], arrow_type(kind)).type == arrow_type(kind)
        assert all(case.but[sink].code.startswith("E5") for sink in case.but if case.but[sink].answer is Answer.REFUSED)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.spark)
def test_kafka_takes_text_and_bytes_as_value(kind: Kind) -> None:
    cell = kind.cells["kafka"]
    schema = pa.schema([("value", arrow_type(kind))])
    if cell.answer is Answer.SAME:
        Columns.check("kafka:rows", schema, "rows")
        return
    with pytest.raises(DestinationError) as caught:
        Columns.check("kafka:rows", schema, "rows")
    assert caught.value.code == cell.code


def test_delta_makes_of_every_value_that_executors_write_what_the_table_says(tmp_path: Path) -> None:
    every_type_comes_back_or_is_refused(DeltaHarness(tmp_path, driver_limit=0))


@pytest.mark.postgres
def test_postgres_makes_of_every_value_that_executors_write_what_the_table_says(postgres: EmbeddedPostgres) -> None:
    every_type_comes_back_or_is_refused(PostgresHarness(postgres.database("types"), via="executors"))


def test_a_table_that_is_wrong_is_noticed() -> None:
    class Wrong(MemoryHarness):
        def cell(self, kind: Kind, case: object) -> object:
            return KINDS[0].cells["kafka"]

    with pytest.raises(AssertionError, match="BOOLEAN, false was not refused"):
        every_type_comes_back_or_is_refused(Wrong())
