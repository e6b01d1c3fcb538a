"""Audits of a real Delta table after real sabotage: deletes, restores, overwrites, and harmless maintenance."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.audit.histories import PIPELINE
from tests.audit.stores import Stored, table

from onceonly.audit import Verdict, audit
from onceonly.cli.doctor_checks import destination
from onceonly.doctor import State
from onceonly.protocol.registry import sink_from_address
from onceonly_sinks.delta import DeltaSink


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(DeltaSink(tmp_path / "orders"), tmp_path).write_all()


@pytest.fixture
def path(stored: Stored, tmp_path: Path) -> str:
    return str(tmp_path / "orders")


def found(stored: Stored) -> tuple[Verdict, list[tuple[str, int | None]]]:
    """Audit through the address, as the command line does; the sink of the writer is not used."""
    reader = sink_from_address(stored.sink.address)
    result = audit(stored.ledger, PIPELINE, [reader])
    reader.close()
    return result.verdict, [(finding.code, finding.epoch) for finding in result.findings]


def test_a_true_table_is_exactly_once(stored: Stored) -> None:
    assert found(stored) == (Verdict.EXACTLY_ONCE, [])


def test_deleted_rows_of_one_epoch_are_a_gap_at_that_epoch(stored: Stored, path: str) -> None:
    DeltaTable(path).delete("id >= 3000 and id < 3003")
    assert found(stored) == (Verdict.GAPS, [("A121", 3), ("A126", None)])


def test_a_deleted_epoch_is_a_gap_at_that_epoch(stored: Stored, path: str) -> None:
    DeltaTable(path).delete("note = 'e4'")
    assert found(stored) == (Verdict.GAPS, [("A121", 4), ("A126", None)])


def test_a_restore_loses_the_epochs_after_it(stored: Stored, path: str) -> None:
    version = next(int(one["version"]) for one in DeltaTable(path).history() if one["operation"] == "WRITE")
    DeltaTable(path).restore(version - 1)
    assert found(stored) == (Verdict.GAPS, [("A121", 4), ("A126", None)])


def test_a_restore_that_is_taken_back_leaves_only_the_doubt(stored: Stored, path: str) -> None:
    newest = DeltaTable(path).version()
    DeltaTable(path).restore(newest - 1)
    DeltaTable(path).restore(newest)
    verdict, codes = found(stored)
    assert verdict == Verdict.IN_DOUBT
    assert {code for code, _ in codes} == {"A126", "A127"}


def test_a_restore_to_a_moment_is_counted_like_one_to_a_version(stored: Stored, path: str) -> None:
    table = DeltaTable(path)
    # RESTORE goes by the times of the log's files, which may be later than those that commits write into them.
    file = Path(path, "_delta_log", f"{table.version():020d}.json")
    written = max(int(table.history(1)[0]["timestamp"]), int(file.stat().st_mtime * 1000))
    while time.time() * 1000 < written + 2:
        pass
    stored.write(3)
    DeltaTable(path).restore(datetime.fromtimestamp((written + 1) / 1000, UTC))
    assert found(stored) == (Verdict.GAPS, [("A121", 5), ("A126", None)])
    reader = sink_from_address(stored.sink.address)
    reader.open(PIPELINE)
    told = next(iter(reader.external_changes(None)))  # type: ignore[attr-defined]
    assert "back to version 5" in told.detail, told.detail
    reader.close()


def test_rows_in_files_that_are_gone_are_a_gap_and_no_content(stored: Stored, path: str) -> None:
    gone = DeltaTable(path).get_add_actions(flatten=True).column("path").to_pylist()[0]
    Path(path, gone).unlink()
    verdict, codes = found(stored)
    assert (verdict, [code for code, _ in codes]) == (Verdict.GAPS, ["A191", "A121"])
    reader = sink_from_address(stored.sink.address)
    assert isinstance(reader, DeltaSink)
    reader.open(PIPELINE)
    assert reader.absent().startswith("1 of 3 data files of version")
    assert reader.content_epoch() is None, "a rewind must not put the sink at an epoch whose rows nobody can read"
    reader.close()


def test_epochs_whose_log_was_cleaned_away_are_counted_in_sum(stored: Stored, path: str) -> None:
    DeltaTable(path).create_checkpoint()
    for file in sorted(Path(path, "_delta_log").glob("*.json"))[:-1]:
        file.unlink()
    assert found(stored) == (Verdict.EXACTLY_ONCE, [("A103", 1)])
    DeltaTable(path).delete("id = 1000")
    verdict, codes = found(stored)
    assert (verdict, codes[0]) == (Verdict.GAPS, ("A154", None))


def test_an_upserted_table_whose_files_are_gone_has_a_gap(tmp_path: Path) -> None:
    stored = Stored(DeltaSink(tmp_path / "latest", key="id"), tmp_path).write_all()
    for file in (tmp_path / "latest").glob("*.parquet"):
        file.unlink()
    assert found(stored) == (Verdict.GAPS, [("A191", None), ("A119", None)])


def test_an_overwrite_loses_everything(stored: Stored, path: str) -> None:
    write_deltalake(path, table(9, 3), mode="overwrite")
    verdict, codes = found(stored)
    assert verdict == Verdict.GAPS
    assert [code for code in codes if code[0] == "A121"] == [("A121", 1), ("A121", 3), ("A121", 4)]
    assert ("A128", None) in codes


def test_compaction_and_vacuum_change_nothing(stored: Stored, path: str) -> None:
    delta = DeltaTable(path)
    delta.optimize.compact()
    delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert found(stored) == (Verdict.EXACTLY_ONCE, [])


def test_epochs_after_a_compaction_are_counted_beside_it(stored: Stored, path: str) -> None:
    DeltaTable(path).optimize.compact()
    stored.write(6)
    DeltaTable(path).optimize.compact()
    assert found(stored) == (Verdict.EXACTLY_ONCE, [])


def test_deletes_among_mixed_epochs_are_counted_in_sum_and_not_guessed(stored: Stored, path: str) -> None:
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 3000")
    verdict, codes = found(stored)
    assert verdict == Verdict.GAPS
    assert codes == [("A154", None), ("A126", None), ("A120", None)]


def test_rows_that_others_append_are_told_and_not_judged(stored: Stored, path: str) -> None:
    write_deltalake(path, table(9, 3), mode="append")
    assert found(stored) == (Verdict.EXACTLY_ONCE, [("A128", None), ("A164", None)])


def test_a_table_created_anew_holds_no_marker(stored: Stored, path: str) -> None:
    import shutil

    shutil.rmtree(path)
    write_deltalake(path, pa.table({"id": [1]}))
    verdict, codes = found(stored)
    assert verdict == Verdict.GAPS
    assert codes[0] == ("A132", 1)


def test_a_table_that_is_gone_has_lost_everything(stored: Stored, path: str) -> None:
    import shutil

    shutil.rmtree(path)
    assert found(stored)[1][0] == ("A132", 1)


def test_an_audit_adds_no_version(stored: Stored, path: str) -> None:
    before = DeltaTable(path).version()
    found(stored)
    assert DeltaTable(path).version() == before


def test_merged_epochs_are_not_counted_and_too_few_rows_are_a_gap(tmp_path: Path) -> None:
    stored = Stored(DeltaSink(tmp_path / "latest", key="id"), tmp_path).write_all()
    assert found(stored) == (Verdict.NOT_COUNTED, [("A119", None)])
    DeltaTable(str(tmp_path / "latest")).delete()
    assert found(stored) == (Verdict.GAPS, [("A154", None), ("A126", None), ("A119", None)])


def test_the_doctor_knows_a_healthy_table_and_one_that_forgets(stored: Stored, path: str) -> None:
    assert {check.state for check in destination(stored.sink.address)} == {State.OK}
    DeltaTable(path).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    problems = [check for check in destination(stored.sink.address) if check.state is State.PROBLEM]
    assert problems
    assert "interval 1 days" in problems[0].message


def test_the_doctor_says_that_a_table_is_not_there_yet(tmp_path: Path) -> None:
    found = list(destination(f"delta:{tmp_path / 'none'}"))
    assert {check.state for check in found} == {State.OK, State.HINT}
    [said] = [check.message for check in found if check.state is State.HINT]
    assert said == "there is no such table yet; the first epoch creates it"
