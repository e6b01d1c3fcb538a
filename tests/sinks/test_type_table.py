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
from onceonly_lab.conformance.claims_failures import every_type_comes_back_or_is_refused
from onceonly_lab.conformance.type_table import KINDS, SINKS, Kind, TypeResult, arrow_type, markdown
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.kafka.columns import Columns

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
BEGIN, END = "<!-- the table -->\n", "<!-- its end -->"


@pytest.mark.docs
def test_the_page_shows_the_table() -> None:
    """ONCEONLY_NEW_MESSAGES=1 writes it down as it is now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    now = f"{before}{BEGIN}{markdown()}{END}{after}"
    if os.environ.get("ONCEONLY_NEW_MESSAGES"):
        PAGE.write_text(now)
    assert now == PAGE.read_text()


@pytest.mark.docs
def test_the_page_says_of_each_type_beyond_the_table_what_becomes_of_it() -> None:
    """Each of them has its tests beside its sink; none of them is called untried."""
    beyond = [one for one in PAGE.read_text().partition(END)[2].split("\n- ") if "E50" in one and "tried" not in one]
    names = ["VARIANT", "GEOMETRY", "GEOGRAPHY", "CHAR(n)", "VARCHAR(n)", "MAP", "user-defined types"]
    assert [name for name in names if not any(name in one for one in beyond)] == []


def test_each_kind_has_a_cell_for_every_sink_and_values_of_its_type() -> None:
    cases = [(kind, case) for kind in KINDS for case in kind.all_cases]
    others = [kind.spark for kind, case in cases if pa.array([case.value], arrow_type(kind)).type != arrow_type(kind)]
    refusals = [(kind, cell) for kind, case in cases for cell in case.but.values() if cell.answer is TypeResult.REFUSED]
    assert [kind.spark for kind in KINDS if set(kind.cells) != set(SINKS)] == []
    assert others == []
    assert [kind.spark for kind, cell in refusals if not cell.code.startswith("E5")] == []


def test_kafka_takes_as_value_what_the_table_says_and_refuses_the_rest_with_its_code() -> None:
    cells = {kind.spark: kind.cells["kafka"] for kind in KINDS}
    wanted = {spark: "" if cell.answer is TypeResult.SAME else cell.code for spark, cell in cells.items()}
    assert {kind.spark: refusal_by_kafka(kind) for kind in KINDS} == wanted


def refusal_by_kafka(kind: Kind) -> str:
    """The code with which a value of a kind is refused; empty where it is taken."""
    try:
        Columns.check("kafka:rows", pa.schema([("value", arrow_type(kind))]), "rows")
    except DestinationError as error:
        return error.code
    return ""


def test_delta_makes_of_every_value_that_executors_write_what_the_table_says(tmp_path: Path) -> None:
    every_type_comes_back_or_is_refused(DeltaHarness(tmp_path, driver_limit=0))


@pytest.mark.slow
@pytest.mark.postgres
def test_postgres_makes_of_every_value_that_executors_write_what_the_table_says(postgres: EmbeddedPostgres) -> None:
    every_type_comes_back_or_is_refused(PostgresHarness(postgres.database("types"), load="executors"))


def test_a_table_that_is_wrong_is_noticed() -> None:
    class Wrong(MemoryHarness):
        def cell(self, kind: Kind, case: object) -> object:
            return KINDS[0].cells["kafka"]

    with pytest.raises(AssertionError, match="BOOLEAN, false was not refused"):
        every_type_comes_back_or_is_refused(Wrong())
