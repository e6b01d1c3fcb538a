"""The history of a pipeline as a DataFrame: a row per recorded epoch, typed columns, also where there is none yet."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from tests.audit.histories import slice_
from tests.audit.world import World
from tests.core.several import Pipeline
from typer.testing import CliRunner

from onceonly import OnceOnlyError
from onceonly.cli.app import app
from onceonly.reading import history
from onceonly_checkpoints.epoch import EpochRecord, Fence
from onceonly_checkpoints.install import hint
from onceonly_checkpoints.ledger import Pipeline as Entry
from onceonly_checkpoints.ledger.sql import SqlLedger

DTYPES = {
    "epoch": "int64",
    "rows": "int64",
    "batch": "Int64",
    "start": "object",
    "end": "object",
    "planned": "datetime64[ms, UTC]",
    "watermark": "datetime64[ms, UTC]",
    "recorded": "datetime64[ms, UTC]",
    "seconds": "float64",
    "phases": "object",
    "sinks": "object",
    "receipts": "object",
    "digest": "object",
    "chain": "object",
    "generation": "int64",
    "owner": "object",
    "files": "int64",
    "adoption": "object",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).write_all([10, 0, 7])


def test_the_docstring_names_every_column_and_its_type() -> None:
    told = {
        name: kind.strip()
        for names, kind in re.findall(r"^ *\| (``.*?``) \| (.*?) \|", history.__doc__ or "", re.MULTILINE)
        for name in re.findall(r"``(\w+)``", names)
    }
    assert list(told) == list(DTYPES)
    exact = {name: kind for name, kind in told.items() if DTYPES[name] != "object"}
    assert exact == {name: DTYPES[name] for name in exact}


def dtypes(table: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in table.dtypes.items()}


@pytest.mark.parametrize("where", ["path", "text", "url", "open"])
def test_a_row_per_epoch_oldest_first_wherever_the_ledger_is_named(world: World, where: str) -> None:
    places = {"path": world.path, "text": str(world.path), "url": f"sqlite:///{world.path}", "open": world.ledger}
    table = history(places[where], "orders")
    assert dtypes(table) == DTYPES
    assert table["epoch"].to_list() == [1, 2, 3]
    assert table["rows"].to_list() == [10, 0, 7]
    assert table["batch"].to_list() == [0, 1, 2]
    assert table["end"].to_list() == [{"0": {"events": {"0": 100 * number}}} for number in (1, 2, 3)]
    assert table["start"].to_list()[1:] == table["end"].to_list()[:-1]
    assert table.attrs == {"pipeline": "orders", "ledger": world.ledger.address}


def test_times_are_points_in_time_and_phases_seconds(world: World) -> None:
    table = history(world.path)
    assert table["planned"][0] == pd.Timestamp("1970-01-01T00:00:01Z")
    assert table["watermark"].isna().all()
    assert (pd.Timestamp.now(tz="UTC") - table["recorded"]).max() < pd.Timedelta(minutes=5)
    assert table["phases"][0] == {"prepare": 0.2, "commit": 0.01}
    assert table["seconds"].to_list() == pytest.approx([0.21] * 3)


def test_what_each_sink_answered_stands_beside_digest_and_owner(world: World) -> None:
    last = history(world.path).iloc[-1]
    epoch = world.line[-1]
    assert last["sinks"] == ["memory:orders"]
    assert [(one["sink"], one["rows"], one["chain"]) for one in last["receipts"]] == [("memory:orders", 7, epoch.chain)]
    assert (last["digest"], last["chain"], last["files"]) == (epoch.digest.text, epoch.chain, 1)
    assert (last["generation"], last["owner"], last["adoption"]) == (1, "", None)


def test_sinks_that_have_not_confirmed_are_not_named(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1)
    assert history(pipeline.ledger)["sinks"][0] == ["memory:a", "memory:b", "memory:c"]


def test_an_adoption_has_neither_batch_nor_time_of_a_batch(world: World) -> None:
    taken = world.next_epoch(0, adoption="accept-loss: a disk died", written=slice_(300, 500))
    world.ledger.record(EpochRecord("orders", Fence(2, "t ann@host:1 app"), taken, ()))
    last = history(world.path).iloc[-1]
    assert pd.isna(last["batch"])
    assert pd.isna(last["planned"])
    assert "a disk died" in last["adoption"]
    assert (last["owner"], last["sinks"], last["seconds"]) == ("ann@host:1 app", [], 0.0)


def test_a_pipeline_without_an_epoch_has_the_same_columns(tmp_path: Path) -> None:
    World(tmp_path)
    table = history(tmp_path / "ledger.db")
    assert len(table) == 0
    assert dtypes(table) == DTYPES


def test_of_several_pipelines_one_must_be_named(world: World) -> None:
    world.ledger.enter(Entry("returns", (), "q-2", "file:/ck2", 1, 0))
    with pytest.raises(OnceOnlyError, match="orders, returns") as caught:
        history(world.path)
    assert caught.value.code == "E110"
    assert len(history(world.path, "returns")) == 0


def test_an_unknown_pipeline_is_refused_by_name(world: World) -> None:
    with pytest.raises(OnceOnlyError, match='"nosuch"') as caught:
        history(world.path, "nosuch")
    assert caught.value.code == "E110"
    assert "the ledger knows: orders" in str(caught.value)
    command = shlex.split(caught.value.remedy.partition("with a name of: ")[2])
    assert command[0] == "onceonly"
    shown = CliRunner().invoke(app, command[1:])
    assert (shown.exit_code, "orders" in shown.stdout) == (0, True), shown.output


def test_a_ledger_without_pipelines_says_so(tmp_path: Path) -> None:
    empty = SqlLedger(str(tmp_path / "ledger.db"))
    empty.open()
    with pytest.raises(OnceOnlyError, match="none"):
        history(empty)


def test_without_pandas_it_names_the_extra(world: World) -> None:
    code = f"""
import sys
sys.modules["pandas"] = None
import onceonly.reading
try:
    onceonly.reading.history({str(world.path)!r})
except onceonly.OnceOnlyError as refused:
    print(refused.code, refused.remedy)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"E108 install its extra: {hint('notebook')}"
