"""What the doctor finds in a real Delta table: how long it remembers what was written to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onceonly.cli.doctor_checks import destination
from onceonly.doctor import UNOBSERVED, Check, Observed, State
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.health import TableFacts, interval_s, judge, read
from onceonly_sinks.delta.table import Table, location

DAY = 86400.0


def made(path: Path, **properties: str) -> str:
    write_deltalake(path, pa.table({"id": [1]}), configuration=properties)
    return DeltaSink(path).address


def found(address: str, observed: Observed = UNOBSERVED) -> list[Check]:
    return [check for check in destination(address, "orders", observed) if check.code]


def test_a_table_that_forgets_markers_is_found(tmp_path: Path) -> None:
    address = made(tmp_path / "table", **{"delta.setTransactionRetentionDuration": "interval 7 days"})
    [check] = found(address)
    assert (check.code, check.state) == ("D301", State.PROBLEM)
    assert "UNSET TBLPROPERTIES" in check.remedy


@pytest.mark.parametrize(("gap", "state"), [(0.5 * DAY, None), (1.5 * DAY, State.HINT), (3 * DAY, State.PROBLEM)])
def test_a_log_that_is_kept_for_less_than_the_pipeline_stood_still_is_found(
    tmp_path: Path, gap: float, state: State | None
) -> None:
    address = made(tmp_path / "table", **{"delta.logRetentionDuration": "interval 2 days"})
    checks = found(address, Observed(5, 1.0, gap))
    assert [check.state for check in checks] == ([state] if state else [])
    assert all(check.code == "D302" for check in checks)


def test_the_remedy_of_a_log_kept_too_short_is_one(tmp_path: Path) -> None:
    seen = Observed(5, 1.0, 40 * DAY)
    [check] = found(made(tmp_path / "table"), seen)  # 30 days are Delta's own default
    assert check.code == "D302"
    wanted = check.remedy.split(" = '")[1].removesuffix("')")
    DeltaTable(tmp_path / "table").alter.set_table_properties({"delta.logRetentionDuration": wanted})
    assert found(DeltaSink(tmp_path / "table").address, seen) == []


def files(count: int, each: int) -> TableFacts:
    return TableFacts(count, {}, files=count, size=count * each)


@pytest.mark.parametrize(
    ("facts", "codes"), [(files(999, 3000), []), (files(1000, 3000), ["D306"]), (files(1000, 1 << 23), [])]
)
def test_many_small_files_are_a_hint(facts: TableFacts, codes: list[str]) -> None:
    checks = [check for check in judge("delta:t", None, facts, UNOBSERVED, merges=False) if check.code]
    assert [check.code for check in checks] == codes
    assert all(check.state is State.HINT and "1,000 files of 2 KiB" in check.message for check in checks)


def test_files_of_a_table_are_counted_with_their_sizes(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(tmp_path / "table", pa.table({"id": [number]}), mode="append")
    sink = DeltaSink(tmp_path / "table")
    _, facts = read(Table(sink.id, location(str(tmp_path / "table")), "app", None))
    assert facts
    assert (facts.files, facts.size) == (3, sum(file.stat().st_size for file in tmp_path.glob("table/*.parquet")))


def test_a_table_that_is_not_there_yet_is_only_told(tmp_path: Path) -> None:
    checks = [check for check in destination(DeltaSink(tmp_path / "table").address) if check.state is not State.OK]
    assert [(check.state, check.code) for check in checks] == [(State.HINT, "")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("interval 1 week", 7 * DAY), ("interval 1 day 12 hours", 1.5 * DAY), ("for ever", None)]
)
def test_intervals_are_read_as_delta_spells_them(text: str, seconds: float | None) -> None:
    assert interval_s(text) == seconds
