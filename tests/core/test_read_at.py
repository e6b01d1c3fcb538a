"""Sinks read as of one epoch: the same rows each time, and nothing where they are no longer all there."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import Crash, Pipeline, crash, left_behind, rows
from typer.testing import CliRunner

from onceonly import OnceOnlyError, faults
from onceonly.cli.app import app
from onceonly.faults import Point
from onceonly.protocol.capabilities import EpochExpired
from onceonly.reading import ReadPoint, read_at, read_point
from onceonly_sinks.memory import MemorySink, MemoryStore


def ids(table: pa.Table) -> list[int]:
    return sorted(int(row["id"]) for row in table.to_pylist())


def obeyed(error: OnceOnlyError, exit_code: int = 0) -> str:
    """What the one command says that an error prints."""
    (command,) = [part for part in error.remedy.split(": ") if part.startswith("onceonly ")]
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], *(["--yes"] if " resolve " in command else [])])
    assert done.exit_code == exit_code, done.output
    return done.output


def refused(code: str, pipeline: Pipeline, at: int | ReadPoint | str, **more: object) -> OnceOnlyError:
    with pytest.raises(OnceOnlyError) as found:
        read_at("orders", at, ledger=pipeline.ledger, **more)  # type: ignore[call-overload]
    assert found.value.code == code, found.value
    return found.value


def test_each_sink_is_read_as_of_one_epoch_whatever_came_later(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    for epoch in (1, 2, 3):
        found = read_at("orders", epoch, ledger=pipeline.ledger)
        assert {sink: ids(table) for sink, table in found.items()} == {
            f"memory:{name}": list(range(10 * epoch)) for name in "abc"
        }


def test_the_newest_is_that_which_all_sinks_hold(tmp_path: Path) -> None:
    pipeline = left_behind(tmp_path)
    assert len(pipeline.stores["a"].table()) == 20
    assert {len(table) for table in read_at("orders", ledger=pipeline.ledger).values()} == {10}


def test_one_sink_is_read_by_its_id_or_by_a_handle_of_its_own(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    by_id = read_at("orders", 1, "memory:b", ledger=pipeline.ledger)
    assert by_id.equals(read_at("orders", 1, pipeline.sinks()[1], ledger=pipeline.ledger))
    assert ids(by_id) == list(range(10))


def test_a_ledger_is_named_by_its_place_too(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1)
    assert ids(read_at("orders", "latest", "memory:a", ledger=pipeline.ledger.address)) == list(range(10))


def test_a_sink_of_a_running_query_is_not_read_with(pipeline: Pipeline) -> None:
    driver = pipeline.driver()
    driver.writes(1)
    error = refused("E110", pipeline, 1, sink=driver.sinks[0])
    assert "is in use" in str(error)


def test_a_sink_that_the_epoch_did_not_go_to_is_named(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1)
    assert "memory:a, memory:b, memory:c" in str(refused("E110", pipeline, 1, sink="memory:z"))


def test_rows_since_a_point_are_those_of_later_epochs(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    point = read_point("orders", 1, ledger=pipeline.ledger)
    for since in (1, point):
        assert ids(read_at("orders", 3, "memory:c", ledger=pipeline.ledger, since=since)) == list(range(10, 30))


def test_rows_since_a_point_before_a_sink_joined_are_all_of_its_rows(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, ("a",))
    pipeline.driver().writes(1)
    pipeline.stores["b"] = MemoryStore()
    pipeline.driver().writes(2, 3)
    found = read_at("orders", 3, ledger=pipeline.ledger, since=1)
    assert {sink: ids(table) for sink, table in found.items()} == {
        "memory:a": list(range(10, 30)),
        "memory:b": list(range(10, 30)),
    }


# ---- A point is an epoch and its chain.


def test_a_point_names_the_chain_of_its_epoch(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1)
    [record] = pipeline.ledger.epochs("orders")
    assert read_point("orders", ledger=pipeline.ledger).chain == record.epoch.chain


def test_a_point_whose_number_has_come_again_is_refused_and_the_printed_one_is_not(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    old = read_point("orders", ledger=pipeline.ledger)
    pipeline.stores = {name: MemoryStore() for name in pipeline.stores}
    pipeline.ledger.discard("orders", 1)
    pipeline.driver().writes(1, 2, table=rows(7))
    error = refused("E243", pipeline, old)
    assert "its number has come again" in str(error)
    assert "epoch 2" in obeyed(error)
    assert ids(read_at("orders", "latest", "memory:a", ledger=pipeline.ledger)) == sorted([*range(60, 70)] * 2)


def test_rows_of_a_store_that_was_made_anew_are_not_those_of_an_epoch_of_the_one_before(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1)
    sink = pipeline.sinks_open()[0]
    [(_, confirmed)] = sink.history()
    sink.check_at(confirmed)
    for other in (replace(confirmed, identity="another store"), replace(confirmed, chain="another")):
        with pytest.raises(EpochExpired):
            sink.check_at(other)


def test_a_point_that_was_taken_back_is_refused_before_its_number_comes_again(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    old = read_point("orders", ledger=pipeline.ledger)
    pipeline.ledger.discard("orders", 2)
    assert "the ledger ends at epoch 1" in str(refused("E243", pipeline, old))


def test_a_point_that_the_ledger_has_pruned_is_read_all_the_same(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    old = read_point("orders", 1, ledger=pipeline.ledger)
    pipeline.ledger.prune("orders", 3)
    assert ids(read_at("orders", old, "memory:a", ledger=pipeline.ledger)) == list(range(10))


# ---- What cannot be read.


def test_rows_that_were_overwritten_are_refused_and_the_printed_audit_says_what_happened(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    pipeline.stores["a"].overwrite(rows(9))
    error = refused("E243", pipeline, 1, sink="memory:a")
    assert "not even its newest epoch is there" in error.remedy
    assert "overwritten" in obeyed(error, exit_code=1)


def test_a_sink_that_was_restored_is_not_read_past_where_it_stands(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    pipeline.stores["b"].restore(2)
    error = refused("E243", pipeline, 3, sink="memory:b")
    assert "holds no such entry" in str(error)
    assert ids(read_at("orders", 2, "memory:b", ledger=pipeline.ledger)) == list(range(20))


def test_an_upsert_does_not_tell_later_rows(tmp_path: Path) -> None:
    pipeline = Upsert(tmp_path)
    pipeline.driver().writes(1, 2)
    assert len(read_at("orders", 1, "memory:a", ledger=pipeline.ledger)) == 10
    assert "epoch 2" in obeyed(refused("E244", pipeline, 2, since=1))


class Upsert(Pipeline):
    def __init__(self, root: Path) -> None:
        super().__init__(root, ("a",))

    def sinks(self) -> list[MemorySink]:
        return [MemorySink("memory:a", self.stores["a"], key="id")]


def test_nothing_is_read_before_an_epoch_is_in_all_sinks_and_the_printed_command_brings_it_there(
    tmp_path: Path,
) -> None:
    pipeline = Pipeline(tmp_path)
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        pipeline.driver().writes(1)
    faults.disarm()
    assert "E245" in str(refused("E245", pipeline, "latest"))
    obeyed(refused("E245", pipeline, "latest"))
    assert read_point("orders", ledger=pipeline.ledger).epoch == 1


def test_an_epoch_that_lacks_a_sink_is_named_with_it(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    [record] = pipeline.ledger.epochs("orders", 2, 2)
    pipeline.ledger.record(replace(record, receipts=record.receipts[:2]))
    assert "epoch 2 lacks memory:c" in str(refused("E245", pipeline, 2))


def test_an_epoch_that_is_not_on_record_is_another_matter(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1)
    assert "no epoch 7 on record" in str(refused("E110", pipeline, 7))
