"""One epoch into several sinks, without Spark: real staging, real ledger, memory sinks, a crash at every point."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import Crash, Pipeline, crash, left_behind, rows
from tests.core.stories import at

from onceonly import faults
from onceonly.errors import (
    ConfigurationError,
    DestinationError,
    DestinationUnavailable,
    IdentityError,
    SupersededRun,
    UnresolvedOutcome,
)
from onceonly.faults import Point
from onceonly.protocol import Conflict, OutcomeUnknown
from onceonly.runtime import operator
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.manifest import NAME, Reference
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_checkpoints.storage import open_storage
from onceonly_sinks.memory import MemorySink, MemoryStore

WRITING = [
    Point.INTEND_AFTER,
    Point.STAGE_BEFORE,
    Point.STAGE_AFTER,
    Point.PREPARE_BEFORE,
    Point.PREPARE_SENT,
    Point.PREPARE_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.RECORD_BEFORE,
    Point.RECORD_AFTER,
]
PER_EPOCH = {Point.INTEND_AFTER, Point.STAGE_BEFORE, Point.STAGE_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER}


def test_every_sink_gets_the_same_rows_under_the_same_chain(pipeline):
    state = pipeline.driver().writes(1, 2, 3)
    pipeline.holds(3)
    assert [receipt.sink for receipt in state.work.receipts] == ["memory:a", "memory:b", "memory:c"]
    assert len(pipeline.ledger.epochs("orders")[2].receipts) == 3


def test_only_the_newest_epochs_bytes_are_kept(pipeline):
    state = pipeline.driver().writes(1, 2, 3)
    [address] = pipeline.staged()
    assert state.work.epoch is not None
    assert Reference.parse(state.work.epoch.manifest or "").directory == address


@pytest.mark.parametrize(
    ("point", "hit"),
    [(point, hit) for point in WRITING for hit in ((1,) if point in PER_EPOCH else (1, 2, 3))],
    ids=str,
)
def test_a_crash_anywhere_in_an_epoch_is_healed_by_the_next_start(pipeline, point, hit):
    driver = pipeline.driver()
    driver.writes(1)
    faults.arm(point, crash, hit)
    with pytest.raises(Crash):
        driver.writes(2)
    faults.disarm()
    pipeline.driver().writes(2, 3)
    pipeline.holds(3)
    assert len(pipeline.staged()) == 1


@pytest.mark.parametrize("hit", [1, 2])
def test_sinks_left_behind_get_the_old_bytes_whatever_the_code_computes_now(pipeline, hit):
    driver = pipeline.driver()
    driver.writes(1)
    faults.arm(Point.COMMIT_AFTER, crash, hit)
    with pytest.raises(Crash):
        driver.writes(2)
    faults.disarm()
    changed = rows(2).set_column(0, "id", pa.array(range(900, 910)))
    pipeline.driver().writes(2, table=changed)
    pipeline.holds(2)
    assert any("brought to epoch 2" in reason for reason in pipeline.events(EventKind.RESOLVED))


def test_resolve_heals_without_a_batch(behind):
    assert behind.resolve().epoch == 2
    behind.holds(2)


def test_without_its_bytes_an_epoch_is_computed_again_if_the_batch_is_proven_the_same(bereft):
    bereft.driver().writes(2)
    bereft.holds(2)
    assert not [address for address in bereft.staged() if "-g2-" in address], "what was computed again nobody refers to"


def test_without_its_bytes_other_rows_are_refused(bereft):
    with pytest.raises(IdentityError, match="gave other rows") as refused:
        bereft.driver().writes(2, table=rows(7))
    assert refused.value.code == "E219"


def test_without_its_bytes_and_without_the_batch_the_pipeline_stops(bereft):
    with pytest.raises(IdentityError, match=NAME) as refused:
        bereft.resolve()
    assert refused.value.code == "E219"


def test_damaged_bytes_are_not_written(behind):
    for address in behind.staged():
        storage = open_storage(address)
        for name in storage.names(""):
            if name.endswith(".parquet"):
                data = storage.read(name)
                storage.delete(name)
                storage.create(name, data[:-1])
    with pytest.raises(IdentityError, match="another size"):
        behind.resolve()


def test_an_epoch_that_a_restored_sink_lacks_is_brought_by_an_operator_and_by_no_driver(tmp_path):
    pipeline = Pipeline(tmp_path, ("a", "b"))
    driver = pipeline.driver()
    driver.runner = Runner(
        driver.sinks, pipeline.ledger, staging=StagedEpochs(pipeline.staging, "orders", driver.sinks, 1)
    )
    driver.writes(1, 2)
    pipeline.stores["b"].restore(1)
    pipeline.stores["b"]._mishaps.clear()  # a backup knows nothing of what came after it
    with pytest.raises(IdentityError) as refused:
        pipeline.driver().writes(3)
    assert refused.value.code == "E207"
    assert pipeline.resolve().epoch == 2
    pipeline.holds(2)


def test_a_sink_that_joins_starts_at_the_next_epoch(tmp_path):
    pipeline = Pipeline(tmp_path, ("a", "b"))
    pipeline.driver().writes(1)
    pipeline.stores["c"] = MemoryStore()
    state = pipeline.driver().writes(2)
    assert state.work.epoch is not None
    assert state.work.epoch.sinks == (("memory:a", 1), ("memory:b", 1), ("memory:c", 2))
    assert sorted(row["id"] for row in pipeline.sinks()[2].rows()) == list(range(10, 20))


class SaysYes(MemorySink):
    """A destination that takes every epoch by its word and keeps none."""

    asked = 0

    def commit(self, prepared, marker, ledger=None):
        self.asked += 1
        assert self.asked < 3, "it is healed for ever"
        return Receipt(self.id, marker.epoch.number, marker.epoch.chain, self.store.identity, (), 0)


def test_a_sink_that_says_it_was_healed_and_was_not_stops_the_query(behind):
    broken = [
        SaysYes(sink.id, behind.stores["c"]) if sink.id == "memory:c" else sink
        for sink in (MemorySink(f"memory:{name}", store) for name, store in behind.stores.items())
    ]
    with pytest.raises(IdentityError, match="brought to it and do not hold it") as refused:
        operator.resolve(broken, behind.ledger, "orders")
    assert refused.value.code == "E219"


def test_a_sink_that_joins_and_is_left_behind_at_its_first_epoch_is_healed(tmp_path):
    pipeline = Pipeline(tmp_path, ("a", "b"))
    pipeline.driver().writes(1)
    pipeline.stores["c"] = MemoryStore()
    faults.arm(Point.COMMIT_AFTER, crash, 2)
    with pytest.raises(Crash):
        pipeline.driver().writes(2)
    faults.disarm()
    pipeline.driver().writes(2, 3)
    assert sorted(row["id"] for row in pipeline.sinks()[2].rows()) == list(range(10, 30))


def test_a_sink_that_is_not_given_any_more_is_refused(pipeline):
    pipeline.driver().writes(1)
    del pipeline.stores["b"]
    with pytest.raises(IdentityError) as refused:
        pipeline.driver().writes(2)
    assert refused.value.code == "E213"


def test_an_adoption_that_reached_one_sink_reaches_the_others(pipeline):
    pipeline.driver().writes(1)
    faults.arm(Point.COMMIT_SENT, "raise", 2)
    with pytest.raises(Exception, match=r"armed|lost"):
        operator.adopt(pipeline.sinks(), pipeline.ledger, "orders", Adoption(AdoptionKind.START), start=at(40))
    faults.disarm()
    assert pipeline.resolve().epoch == 2
    newest = {marker.epoch.adoption for sink in pipeline.sinks_open() for marker, _ in sink.history(1)}
    assert newest == {Adoption(AdoptionKind.START)}


def overtake(store: MemoryStore, sink: str) -> None:
    """Another driver opens the pipeline."""
    rival = MemorySink(sink, store)
    rival.open("orders")
    rival.install(Fence(9, "f00d ann@host:1"))


class TakenBack(MemorySink):
    """A destination that gives way to another session."""

    def commit(self, prepared, marker, ledger=None):
        raise Conflict(self.id, "deadlock detected", "session 7")


START = Adoption(AdoptionKind.START)


def test_an_adoption_whose_answer_is_lost_leaves_doubt(pipeline):
    pipeline.driver().writes(1)
    faults.arm(Point.COMMIT_SENT, "raise", 2)
    with pytest.raises(
        UnresolvedOutcome, match=r"(?s)ONCE-E301\] Whether epoch 2 reached memory:b .*recover resolve"
    ) as doubt:
        operator.adopt(pipeline.sinks(), pipeline.ledger, "orders", START, start=at(40))
    assert pipeline.ledger.address in doubt.value.remedy


def test_an_adoption_that_another_driver_overtakes_says_whose_the_pipeline_is(pipeline):
    pipeline.driver().writes(1)
    faults.arm(Point.REINDEX_AFTER, lambda: overtake(pipeline.stores["b"], "memory:b"))
    with pytest.raises(SupersededRun, match=r"ONCE-E401\] memory:b is owned by ann@host:1 \(generation 9"):
        operator.adopt(pipeline.sinks(), pipeline.ledger, "orders", START, start=at(40))


def test_an_adoption_that_a_sink_takes_back_can_be_tried_again(pipeline):
    pipeline.driver().writes(1)
    sinks = pipeline.sinks()
    sinks[1] = TakenBack(sinks[1].id, sinks[1].store)
    with pytest.raises(DestinationUnavailable, match=r"(?s)ONCE-E526\] memory:b: epoch 2 .*deadlock.*session 7"):
        operator.adopt(sinks, pipeline.ledger, "orders", START, start=at(40))
    assert pipeline.resolve().epoch == 2


def test_a_lost_ledger_learns_the_receipts_of_every_sink(pipeline, tmp_path):
    pipeline.driver().writes(1, 2)
    pipeline.ledger.close()
    pipeline.ledger = SqlLedger(str(tmp_path / "other.db"))
    pipeline.driver().writes(3)
    assert [len(record.receipts) for record in pipeline.ledger.epochs("orders")] == [3, 3, 3]


def damage(pipeline: Pipeline, name: str) -> None:
    """The newest marker of a store is of a format to come."""
    store = pipeline.stores[name]
    newest = store.newest(("orders", f"memory:{name}"))
    assert newest is not None
    store.add(replace(newest, marker=(newest.marker or "").replace('"format":', '"format":9', 1)))


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_marker_that_cannot_be_read_is_of_the_sink_that_holds_it(pipeline, name):
    pipeline.driver().writes(1)
    damage(pipeline, name)
    with pytest.raises(DestinationError, match=rf"ONCE-E508\] memory:{name} .*cannot be read"):
        pipeline.driver().writes(2)


@pytest.mark.parametrize(("name", "hit"), [("b", 1), ("c", 2)])
def test_it_is_so_while_sinks_are_brought_to_the_epoch_of_the_others(behind, name, hit):
    faults.arm(Point.COMMIT_BEFORE, lambda: damage(behind, name), hit)
    with pytest.raises(DestinationError, match=rf"ONCE-E508\] memory:{name} .*cannot be read"):
        behind.resolve()


class Forgetful(MemorySink):
    """Loses the answer to its next commit, before or after it landed."""

    lose = ""

    def commit(self, prepared, marker: Marker, ledger=None) -> Receipt:
        lose, self.lose = self.lose, ""
        if lose == "before":
            raise OutcomeUnknown(self.id, "cut")
        receipt = super().commit(prepared, marker, ledger)
        if lose == "after":
            raise OutcomeUnknown(self.id, "cut")
        return receipt


@pytest.mark.parametrize("lose", ["before", "after"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_lost_answer_of_any_sink_is_one_copy(pipeline, lose, which):
    driver = pipeline.driver()
    forgetful = Forgetful(driver.sinks[which].id, list(pipeline.stores.values())[which])
    driver.sinks[which] = forgetful
    driver.runner = Runner(
        driver.sinks, pipeline.ledger, staging=StagedEpochs(pipeline.staging, "orders", driver.sinks)
    )
    driver.writes(1)
    forgetful.lose = lose
    driver.writes(2, 3)
    pipeline.holds(3)


def test_one_sink_that_is_told_to_reads_each_epoch_from_files_that_go_with_the_next(tmp_path):
    pipeline = Pipeline(tmp_path, names=("alone",))
    pipeline.driver().writes(1)
    [first] = pipeline.staged()
    pipeline.driver().writes(1, 2)  # the first one is proven and skipped
    pipeline.holds(2)
    [second] = pipeline.staged()
    assert (Path(first).name[:13], Path(second).name[:13]) == ("e000000000001", "e000000000002")
    faults.arm(Point.COMMIT_BEFORE, crash)
    with pytest.raises(Crash):
        pipeline.driver().writes(2, 3)
    faults.disarm()
    assert len(pipeline.staged()) == 2
    pipeline.driver().writes(3)
    pipeline.holds(3)
    assert [Path(left).name[:13] for left in pipeline.staged()] == ["e000000000003"]


def test_bytes_that_a_reference_finds_elsewhere_are_not_removed(pipeline, tmp_path):
    other = tmp_path / "elsewhere" / "e000000000001-g1-0123456789ab"
    other.mkdir(parents=True)
    staging = StagedEpochs(str(tmp_path / "staging"), "orders", pipeline.sinks())
    staging.drop(Reference(str(other), "0" * 64).text)
    assert other.is_dir()


def test_two_environments_may_share_name_and_staging_place(tmp_path):
    """One of them is in doubt of its newest epoch, while the other one is started again and again."""
    shared = str(tmp_path / "staging")
    in_doubt, other = left_behind(tmp_path / "dev", shared), Pipeline(tmp_path / "prod", staging=shared)
    for _ in range(3):
        other.driver().writes(1)
    other.driver().writes(2, 3)
    assert in_doubt.resolve().epoch == 2
    in_doubt.holds(2)
    other.holds(3)


def test_a_copy_of_an_environment_does_not_remove_the_bytes_of_the_original(tmp_path):
    original = left_behind(tmp_path / "prod", str(tmp_path / "staging"))
    marker, _ = list(original.sinks_open()[0].history())[-1]
    copied = Pipeline(tmp_path / "dev", staging=str(tmp_path / "staging"))
    StagedEpochs(copied.staging, "orders", copied.sinks()).drop(marker.epoch.manifest or "")
    assert original.resolve().epoch == 2


def test_bytes_outlive_a_change_of_the_sinks_until_nobody_needs_them(tmp_path):
    pipeline = left_behind(tmp_path)
    pipeline.stores["d"] = MemoryStore()
    driver = pipeline.driver()
    driver.writes(2, table=rows(7))  # what the code computes now is not asked for
    pipeline.stores.pop("d")
    pipeline.holds(2)
    pipeline.stores["d"] = driver.sinks[3].store
    driver.writes(3)
    assert [Path(left).name[:13] for left in pipeline.staged()] == ["e000000000003"]


def test_what_other_sinks_of_a_pipeline_left_is_swept_once_the_list_has_changed(tmp_path):
    pipeline = Pipeline(tmp_path, ("a", "b"))
    driver = pipeline.driver()
    driver.writes(1)
    faults.arm(Point.COMMIT_BEFORE, crash)
    with pytest.raises(Crash):
        driver.writes(2)
    faults.disarm()
    assert len(pipeline.staged()) == 2
    pipeline.stores["c"] = MemoryStore()
    pipeline.driver().writes(2)
    assert [Path(left).name[:16] for left in pipeline.staged()] == ["e000000000002-g2"]


def test_bytes_that_were_moved_are_not_found_under_a_new_staging_place_but_where_they_lay(tmp_path):
    behind = left_behind(tmp_path / "job")
    behind.staging = str(Path(behind.staging).rename(tmp_path / "elsewhere"))
    changed = rows(2).set_column(0, "id", pa.array(range(900, 910)))
    with pytest.raises(IdentityError) as refused:
        behind.driver().writes(2, table=changed)
    assert refused.value.code == "E219"
    (tmp_path / "job" / "staging").symlink_to(behind.staging)
    behind.driver().writes(2, table=changed)
    behind.holds(2)


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    pipeline = Pipeline(tmp_path)
    driver = pipeline.driver()
    (pipeline.root / "staging").write_text("a file is in the way")
    with pytest.raises(DestinationError) as refused:
        driver.writes(1)
    assert refused.value.code == "E515"
    assert "staging" in str(refused.value)
    with pytest.raises(ConfigurationError) as unfit:
        pipeline.driver()
    assert unfit.value.code == "E114"
    assert "staging is a file" in str(unfit.value)
