"""Audits over a pipeline that really wrote, sabotaged afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.audit.histories import slice_
from tests.audit.world import World, table
from tests.checkpoints.samples import commit_text, offsets_text

from onceonly.audit import Verdict, audit
from onceonly_checkpoints.epoch import Fence, Lineage
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.storage import LocalStorage
from onceonly_sinks.memory import MemorySink, MemoryStore


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).write_all()


def codes(world: World) -> list[str]:
    return [finding.code for finding in audit(world.ledger, world.name, [world.sink]).findings]


def verdict(world: World) -> Verdict:
    return audit(world.ledger, world.name, [world.sink]).verdict


def test_a_pipeline_that_wrote_everything_is_exactly_once(world: World) -> None:
    result = audit(world.ledger, world.name, [world.sink])
    assert (result.verdict, result.findings) == (Verdict.EXACTLY_ONCE, ())
    assert len(result.epochs) == 4


def test_an_audit_leaves_fence_rows_and_ledger_as_they_are(world: World) -> None:
    before = (world.sink.fence(), world.sink.rows(), world.ledger.events(world.name), len(world.store._log))
    audit(world.ledger, world.name, [world.sink])
    assert before == (world.sink.fence(), world.sink.rows(), world.ledger.events(world.name), len(world.store._log))


def test_deleted_rows_are_found_by_counting(world: World) -> None:
    world.keep_rows(3, 5)
    assert codes(world) == ["A121"]


def test_doubled_rows_are_found_by_counting(world: World) -> None:
    world.keep_rows(4, 24)
    assert codes(world) == ["A122"]


def test_a_lost_marker_is_found_although_its_rows_stand(world: World) -> None:
    world.forget_marker(2)
    assert codes(world) == ["A111"]
    assert verdict(world) == Verdict.GAPS


def test_a_restored_sink_is_found_with_the_ledgers_help(world: World) -> None:
    world.store.restore(2)
    assert codes(world) == ["A132", "A126"]
    assert verdict(world) == Verdict.GAPS


def test_a_restored_sink_that_knows_of_it_is_found_without_a_ledger(world: World) -> None:
    world.store.restore(2)
    result = audit(None, world.name, [world.sink])
    assert [finding.code for finding in result.findings] == ["A126", "A131"]
    assert "set back to epoch 2" in result.findings[0].evidence
    assert result.verdict == Verdict.IN_DOUBT


def test_what_happened_before_the_newest_epoch_is_settled(world: World) -> None:
    world.store.restore(4)
    assert codes(world) == ["A126"]
    world.write(3)
    assert codes(world) == []


def test_a_recreated_sink_is_found(world: World) -> None:
    world.store.recreate()
    assert "A132" in codes(world)


def test_an_overwritten_sink_has_lost_its_rows(world: World) -> None:
    world.store.overwrite(table(3))
    found = audit(world.ledger, world.name, [world.sink]).findings
    lost = [("A121", 1), ("A121", 3), ("A121", 4)]
    assert [(one.code, one.epoch) for one in found] == [*lost, ("A126", None), ("A128", None)]


def test_markers_that_aged_out_are_proven_by_the_ledger(world: World) -> None:
    world.store.clean_up()
    assert codes(world) == ["A103"]
    assert verdict(world) == Verdict.EXACTLY_ONCE


def test_markers_that_aged_out_without_a_ledger_cannot_be_told(world: World) -> None:
    world.store.clean_up()
    result = audit(None, world.name, [world.sink])
    assert result.verdict == Verdict.CANNOT_TELL


def test_a_driver_that_died_before_recording_leaves_no_fault(world: World) -> None:
    world.commit(world.next_epoch(3))
    assert codes(world) == ["A130"]
    assert verdict(world) == Verdict.EXACTLY_ONCE


def test_a_driver_that_died_before_the_commit_leaves_an_open_epoch(world: World) -> None:
    world.intend(5, slice_(400, 500), ago_s=61)
    assert codes(world) == ["A150"]
    assert verdict(world) == Verdict.IN_DOUBT


def test_an_epoch_that_is_being_written_is_no_doubt(world: World) -> None:
    world.intend(5, slice_(400, 500))
    assert codes(world) == ["A143"]
    assert verdict(world) == Verdict.EXACTLY_ONCE


def test_an_epoch_of_a_driver_that_said_that_it_ended_is_no_doubt(world: World) -> None:
    world.intend(5, slice_(400, 500), ago_s=61)
    world.ledger.note(Event("orders", EventKind.FAILED, "E506: column", 5, world.fence.generation))
    assert codes(world) == ["A151"]


def test_an_epoch_without_an_answer_is_doubt_at_once(world: World) -> None:
    world.intend(5, slice_(400, 500))
    world.ledger.note(Event("orders", EventKind.FAILED, "E301: no answer", 5, world.fence.generation))
    assert codes(world) == ["A150"]


def test_the_next_opening_settles_the_open_epoch(world: World) -> None:
    world.intend(5, slice_(400, 500))
    world.sink.install(Fence(2, "b" * 32))
    assert codes(world) == ["A151"]


def spark_has_finished(root: Path, batch: int, end: int) -> None:
    """A checkpoint as Spark leaves it after a batch."""
    storage = LocalStorage(root)
    if not storage.exists("metadata"):
        storage.create("metadata", b'{"id":"q-1"}')
    storage.create(f"offsets/{batch}", offsets_text(f'{{"events":{{"0":{end}}}}}').encode())
    storage.create(f"commits/{batch}", commit_text().encode())


def test_a_database_that_was_restored_with_its_ledger_is_told_by_the_checkpoint(world: World, tmp_path: Path) -> None:
    checkpoint = tmp_path / "ck"
    world.write(5, lineage=Lineage("q-1", "r-1", checkpoint.as_uri(), 4, 5000, 0))
    spark_has_finished(checkpoint, 4, 500)
    assert codes(world) == []
    spark_has_finished(checkpoint, 6, 700)
    assert codes(world) == ["A180"]
    assert verdict(world) == Verdict.GAPS


def test_a_checkpoint_that_cannot_be_read_says_nothing(world: World, tmp_path: Path) -> None:
    checkpoint = tmp_path / "ck"
    world.write(5, lineage=Lineage("q-1", "r-1", checkpoint.as_uri(), 4, 5000, 0))
    spark_has_finished(checkpoint, 6, 700)
    (checkpoint / "offsets" / "6").write_bytes(b"torn")
    assert codes(world) == []


def test_an_epoch_begun_after_one_that_was_not_recorded_is_seen(world: World) -> None:
    unrecorded = world.next_epoch(3)
    world.commit(unrecorded)
    world.intend(6, slice_(500, 600), ago_s=61)
    assert codes(world) == ["A150", "A130"]


def test_an_upsert_is_not_counted(tmp_path: Path) -> None:
    world = World(tmp_path, key=("id",)).write_all()
    assert codes(world) == ["A119"]
    assert verdict(world) == Verdict.NOT_COUNTED


def test_a_ledger_that_was_deleted_is_named_and_the_sink_judged(world: World) -> None:
    world.delete_ledger()
    assert codes(world) == ["A106"]


def test_a_sink_whose_process_is_gone_is_named(world: World) -> None:
    stranger = MemorySink(store=MemoryStore("elsewhere"))
    assert audit(None, world.name, [stranger]).findings[0].code == "A102"


def test_a_ledger_of_another_pipeline_is_not_mixed_in(world: World, tmp_path: Path) -> None:
    other = World(tmp_path, "payments").write_all((1, 2))
    assert codes(world) == []
    assert len(audit(other.ledger, other.name, [other.sink]).epochs) == 2


def test_a_file_that_is_no_ledger_is_named(world: World, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database at all, just text that is long enough")
    result = audit(SqlLedger(str(tmp_path / "x.db")), world.name, [world.sink])
    assert [finding.code for finding in result.findings] == ["A106"]


@pytest.mark.parametrize("late", [False, True])
def test_an_epoch_that_lands_while_rows_are_counted_is_no_finding(world: World, late: bool) -> None:
    class BusySink(MemorySink):
        """A driver commits at the worst moment: just before, or just after, the rows are counted."""

        def recount(self) -> Mapping[int, int] | None:
            counted = super().recount() if late else None
            world.write(9)
            return counted if late else super().recount()

    result = audit(world.ledger, world.name, [BusySink(store=world.store)])
    assert result.verdict == Verdict.EXACTLY_ONCE
    assert [(finding.code, finding.epoch) for finding in result.findings] == [("A130", 5)]
    assert len(result.epochs) == 5
