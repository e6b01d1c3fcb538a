"""Files that become a table's own are described from their footers, as exactly as from their rows."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceonly.errors import DestinationError
from onceonly_sinks.delta.prepared import adopt
from onceonly_sinks.delta.schema_compatibility import Demands
from onceonly_sinks.delta.statistics import Statistics

_KINDS = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(max_size=200)),
    "day": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us", "UTC"), st.datetimes(max_value=datetime(9999, 12, 30), timezones=st.just(UTC))),
    "dotted.name": (pa.int32(), st.integers(-5, 5)),
}
_ROWS = st.lists(st.tuples(*(st.none() | values for _, values in _KINDS.values())), min_size=1, max_size=12)
_SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in _KINDS.items()])


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows in the columns of all kinds."""
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


def told_of(table: pa.Table, folder: Path, required: tuple[str, ...] = (), damage: bool = False) -> dict[str, Any]:
    """Statistics of a file that holds the table in groups of five rows."""
    staged, root = folder / "staged.parquet", folder / "table"
    root.mkdir()
    pq.write_table(table, staged, row_group_size=5)
    if damage:
        footer = pq.read_metadata(staged).serialized_size + 8
        size = staged.stat().st_size
        staged.write_bytes(b"PAR1" + bytes(size - footer - 4) + staged.read_bytes()[size - footer :])
    (file,), _ = adopt("delta:t", table.schema, Demands(required), [staged], root)
    assert file.rows == table.num_rows
    found: dict[str, Any] = json.loads(file.stats)
    return found


def read_from(table: pa.Table) -> dict[str, Any]:
    """Statistics of the rows themselves."""
    statistics = Statistics()
    statistics.add(table)
    found: dict[str, Any] = json.loads(statistics.text(table.num_rows))
    return found


@settings(max_examples=60)
@given(rows=_ROWS)
@example(rows=[(1, math.nan, "ü" * 3000, date.max, None, 1), (None, 1.0, "", None, None, None)])
def test_a_file_is_described_as_its_rows_would_be(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows)
    with TemporaryDirectory() as folder:
        assert told_of(table, Path(folder)) == read_from(table)


def test_no_row_is_read_where_the_footer_tells_everything(tmp_path: Path) -> None:
    table = table_of([(at, 0.0, str(at), None, None, 0) for at in range(12)]).select(["whole", "text", "day", "moment"])
    assert told_of(table, tmp_path, ("whole",), damage=True) == read_from(table)


@pytest.mark.parametrize("column", _SCHEMA.names)
def test_a_null_where_the_table_allows_none_is_refused(column: str, tmp_path: Path) -> None:
    table = table_of([(1, 1.0, "a", date.min, datetime(2020, 1, 1, tzinfo=UTC), 1)] * 6 + [(None,) * len(_SCHEMA)])
    with pytest.raises(DestinationError, match="E503"):
        told_of(table, tmp_path, (column,))
    assert list((tmp_path / "table").iterdir()) == []
