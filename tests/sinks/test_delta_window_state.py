"""The state of windows in a Delta table: where it lies, who may touch it, and that it does not grow by its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onceonly.errors import ConfigurationError, OnceOnlyError
from onceonly.protocol.capabilities import StateWanted
from onceonly_checkpoints.install import hint
from onceonly_lab.conformance.claims_window_state import Holder, StateRowCase
from onceonly_lab.conformance.scenario import PIPELINE
from onceonly_sinks.delta import DeltaSink, DeltaTuning

SOON, LATER = StateRowCase('["a"]', 0, 10, "[1]", time=30), StateRowCase('["b"]', 0, 10, "[2]", time=40)


@pytest.fixture
def keeper(tmp_path: Path) -> DeltaSink:
    made = DeltaSink(tmp_path / "scores", key="id", tuning=DeltaTuning(committer="log")).window_store(separate=True)
    assert made is not None
    return made


def test_state_is_found_again_by_its_address(keeper: DeltaSink, tmp_path: Path) -> None:
    Holder(keeper, 1).writes(LATER, SOON)
    assert (keeper.id, keeper.place()) == ("delta:scores_state", f"delta:{tmp_path}/scores_state")
    found = DeltaSink.from_address(keeper.address)
    found.open(PIPELINE)
    assert [window.state.key for window in found.open_windows(1)] == ['["a"]', '["b"]']
    assert found.count_windows(2) == 0, "they were given up at epoch 2"


def test_a_table_for_state_has_options_of_its_own(tmp_path: Path) -> None:
    given = DeltaSink(tmp_path / "windows", id="theirs").window_store(separate=False)
    assert given is not None
    assert (given.id, DeltaSink.from_address(given.address).address) == ("theirs", given.address)
    for sink in (
        DeltaSink(tmp_path / "windows", key="id"),
        DeltaSink(tmp_path / "windows", schema="add_columns"),
        DeltaSink(tmp_path / "windows", partition_by="day"),
        DeltaSink(tmp_path / "windows", tuning=DeltaTuning(epoch_column="epoch")),
    ):
        with pytest.raises(ConfigurationError, match=r"ONCE-E143[\s\S]*state_sink=DeltaSink\('.*/windows'\)"):
            sink.window_store(separate=False)


def test_whoever_else_adds_a_window_stops_the_query(keeper: DeltaSink, tmp_path: Path) -> None:
    driver = Holder(keeper, 1)
    driver.writes(SOON)
    row = {"key": ['["c"]'], "start": [0], "stop": [10], "body": ["[9]"], "wake_time": [1]}
    write_deltalake(tmp_path / "scores_state", pa.table(row), mode="append", schema_mode="merge")
    with pytest.raises(OnceOnlyError, match=r'ONCE-E226[\s\S]*key \["c"\] from 0 on is of no epoch'):
        driver.asks(StateWanted(wake_time=5))
    with pytest.raises(OnceOnlyError, match="ONCE-E209"):
        driver.writes(LATER)


def test_a_file_of_state_that_is_gone_stops_the_query_by_name(keeper: DeltaSink, tmp_path: Path) -> None:
    driver = Holder(keeper, 1)
    driver.writes(SOON)
    for path in (tmp_path / "scores_state").glob("*.parquet"):
        path.unlink()
    for asked in (lambda: driver.asks(StateWanted(wake_time=99)), lambda: keeper.count_windows(1)):
        with pytest.raises(OnceOnlyError, match=r"ONCE-E508[\s\S]*delta:scores_state[\s\S]*restore it from a backup"):
            asked()


def test_a_missing_deltalake_is_named_when_the_sink_is_asked_for() -> None:
    program = """
import sys
sys.modules["deltalake"] = None
from onceonly.errors import ConfigurationError
from onceonly_sinks.delta import with_delta
try:
    from onceonly_sinks.delta import DeltaSink
except ConfigurationError as error:
    print(error.code, error.remedy)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"E108 install its extra: {hint('delta')}")


def test_windows_that_stay_open_do_not_make_a_file_of_each_epoch(keeper: DeltaSink, tmp_path: Path) -> None:
    driver = Holder(keeper, 1)
    for number in range(52):
        driver.writes(StateRowCase(f'["{number}"]', 0, 10, "[1]"))
    assert len(DeltaTable(tmp_path / "scores_state").file_uris()) == 3, "compacted behind the fiftieth"
    assert keeper.count_windows(1) == 52
    assert len(driver.asks(StateWanted(keys=[f'["{number}"]' for number in range(52)]))) == 52
