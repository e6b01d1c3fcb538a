"""What others may do to a Delta table: six operations on four rungs, told as events or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.core.several import offered, rows
from tests.sinks.delta_harness import DeltaHarness

from onceonly.api.guarantee import GuaranteeInputs, explain
from onceonly.audit import AuditResult, Verdict, audit
from onceonly.errors import ConfigurationError, IdentityError
from onceonly.machine import coordinator
from onceonly.machine.state import Job
from onceonly.protocol import Prepared
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.registry import sink_from_address
from onceonly.runtime.operator import adopt
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_lab.conformance.scenario import PIPELINE, Driver, PlannedEpoch, Scenario
from onceonly_sinks.delta import DeltaSink

RUNGS = ("nothing", "appends", "deletes", "changes")

ROWS = pa.table({"id": [900_000, 900_001], "step": [0, 0], "note": ["foreign"] * 2})


def append(path: Path) -> None:
    write_deltalake(path, ROWS, mode="append")


def delete(path: Path) -> None:
    DeltaTable(path).delete("note = 'row 0 of 1'")


def update(path: Path) -> None:
    DeltaTable(path).update(updates={"note": "'changed'"}, predicate="note = 'row 0 of 1'")


def merge(path: Path) -> None:
    merger = DeltaTable(path).merge(ROWS.slice(0, 1), "t.note = 'row 0 of 1'", source_alias="s", target_alias="t")
    merger.when_matched_update({"note": "s.note"}).execute()


def overwrite(path: Path) -> None:
    write_deltalake(path, ROWS, mode="overwrite")


def restore(path: Path) -> None:
    DeltaTable(path).restore(DeltaTable(path).version() - 1)


OPERATIONS = {append: 1, delete: 2, update: 3, merge: 3, overwrite: 3, restore: 4}
"""With the lowest rung that lets it pass."""

QUIET: tuple[Callable[[Path], object], ...] = (
    lambda path: DeltaTable(path).optimize.compact(),
    lambda path: DeltaTable(path).optimize.z_order(["id"]),
    lambda path: DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False),
    lambda path: DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "7"}),
    lambda path: DeltaTable(path).create_checkpoint(),
)


def codes(result: AuditResult) -> list[str]:
    """Codes of the findings; that there is no ledger here is none of them."""
    return [finding.code for finding in result.findings if finding.code != "A131"]


def audited(driver: Driver) -> AuditResult:
    """Audit through the address, as the command line does."""
    reader = sink_from_address(driver.sink.address)
    result = audit(None, PIPELINE, [reader])
    reader.close()
    return result


@pytest.mark.parametrize("between", [True, False], ids=["between", "before"])
@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_a_foreign_change_is_an_event_or_a_refusal(
    tmp_path: Path, operation: Callable[[Path], None], rung: str, between: bool
) -> None:
    """Between two epochs of one driver, or before the opening of the next."""
    passes = RUNGS.index(rung) >= OPERATIONS[operation]
    harness = DeltaHarness(tmp_path, external_changes=rung)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        operation(harness.path)
        version = DeltaTable(harness.path).version()
        if between:
            told = refusal_or_events(driver, planned, prepared)
        else:
            driver = story.driver()
            told = [
                (disturbance.at, disturbance.allowed, disturbance.fatal)
                for disturbance in driver.position().disturbances
            ]
            told = told if passes else "E209" if any(fatal for _, _, fatal in told) else told
        assert told == ([(version, True, False)] if passes else "E209")
        if passes:
            assert "version" in explain([driver.sink], None, None, GuaranteeInputs())
            driver.writes()
            assert driver.sink.tolerated_now() == ()  # type: ignore[attr-defined]


def refusal_or_events(driver: Driver, planned: PlannedEpoch, prepared: Prepared) -> object:
    try:
        driver.commits(planned, prepared)
    except IdentityError as refused:
        prepared.abandon()
        return refused.code
    return [(one.at, one.allowed, one.fatal) for one in driver.sink.tolerated_now()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("quiet", QUIET, ids=["compact", "z-order", "vacuum", "properties", "checkpoint"])
def test_what_changes_no_row_is_nobodys_business_on_any_rung(
    tmp_path: Path, quiet: Callable[[Path], object], rung: str
) -> None:
    """Between two epochs, between the two halves of one, and before an opening."""
    harness = DeltaHarness(tmp_path, external_changes=rung)
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes(), driver.writes()]
        # Planned after the epoch at hand: asked for its position the driver would be told, and judge it no more.
        written.append(driver.plan(after=written[-1].epoch))
        quiet(harness.path)
        driver.tries(written[-1])
        assert driver.sink.tolerated_now() == ()  # type: ignore[attr-defined]
        written.append(driver.plan(after=written[-1].epoch))
        prepared = driver.prepares(written[-1])
        quiet(harness.path)
        assert refusal_or_events(driver, written[-1], prepared) == []
        quiet(harness.path)
        assert story.driver().position().disturbances == ()
        story.holds(*written)


@pytest.mark.parametrize("rung", RUNGS)
def test_another_table_in_the_place_is_refused_on_each_rung(tmp_path: Path, rung: str) -> None:
    harness = DeltaHarness(tmp_path, external_changes=rung)
    with Scenario(harness) as story:
        story.driver().writes()
        DeltaTable.create(harness.path, DeltaTable(harness.path).schema(), mode="overwrite")
        assert [disturbance.kind for disturbance in story.driver().position().disturbances if disturbance.fatal] == [
            "recreated"
        ]


def test_another_table_that_comes_within_a_run_is_refused_by_the_next_commit(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = driver.plan()
        DeltaTable.create(harness.path, DeltaTable(harness.path).schema(), mode="overwrite")
        with pytest.raises(IdentityError, match="E208"):
            driver.tries(planned)


def test_what_passes_within_a_run_and_before_an_opening_is_an_event_of_the_pipeline(tmp_path: Path) -> None:
    path, ledger = tmp_path / "rows", SqlLedger(str(tmp_path / "ledger.db"))
    sink = DeltaSink(path, external_changes="deletes")
    runner = Runner([sink], ledger)
    state = runner.run(coordinator.start(Job("orders", (sink.id,), "one", offered(1))), ArrowBatch(rows(1)))
    DeltaTable(path).delete("id = 3")
    state = runner.run(coordinator.resume(state, offered(2)), ArrowBatch(rows(2)))
    DeltaTable(path).delete("id = 4")
    runner.run(coordinator.start(Job("orders", (sink.id,), "two", offered(3))), ArrowBatch(rows(3)))
    sink.close()
    told = [(event.epoch, event.reason) for event in ledger.events("orders") if event.kind is EventKind.EXTERNAL_CHANGE]
    assert told == [
        (2, "delta:rows: DELETE as version 3, 1 row removed"),
        (2, "delta:rows: DELETE as version 5, 1 row removed"),
    ]


# ---- what an audit proves then


def test_rows_that_others_were_allowed_to_delete_are_counted_as_deleted(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, external_changes="deletes")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes(rows=9)
        driver.writes(rows=5)
        delete(harness.path)
        driver.writes(rows=2)
        result = audited(driver)
        assert (result.verdict, codes(result)) == (Verdict.EXACTLY_ONCE, ["A164"])
        assert result.spoken == "EXACTLY ONCE (1 row deleted by others, allowed)"
        assert "1 row removed" in result.text
        DeltaTable(harness.path).delete("step = 2")
        assert audited(driver).spoken == "EXACTLY ONCE (6 rows deleted by others, allowed)"


def test_a_row_that_nobody_removed_by_a_listed_commit_is_still_missed(tmp_path: Path) -> None:
    """The permission covers what the log lists, not what is gone."""
    harness = DeltaHarness(tmp_path, external_changes="deletes")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes(rows=9)
        update(harness.path)
        delete(harness.path)
        result = audited(driver)
        assert "A126" in codes(result)
        assert result.verdict is Verdict.IN_DOUBT


def test_where_epochs_share_a_file_the_sum_is_compared(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, external_changes="deletes")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes(rows=4)
        driver.writes(rows=4)
        append(harness.path)
        DeltaTable(harness.path).optimize.compact()
        DeltaTable(harness.path).delete("note = 'row 0 of 1' or note = 'row 3 of 2'")
        driver.writes(rows=1)
        result = audited(driver)
        assert result.spoken == "EXACTLY ONCE (2 rows deleted by others, allowed)", result.text
        assert codes(result) == ["A164", "A164"]


def test_rows_that_stood_before_the_first_epoch_are_neither_missing_nor_too_many_in_sum(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, external_changes="deletes")
    old = pa.table({"id": range(-500, 0), "step": pa.array([0] * 500, pa.int64()), "note": ["old"] * 500})
    write_deltalake(harness.path, old)
    DeltaTable(harness.path).delete("id < -499")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes(rows=10)
        driver.writes(rows=10)
        DeltaTable(harness.path).optimize.compact()
        DeltaTable(harness.path).delete("id = -1 or note = 'row 0 of 1' or note = 'row 3 of 2'")
        driver.writes(rows=1)
        result = audited(driver)
        assert result.spoken == "EXACTLY ONCE (3 rows deleted by others, allowed)", result.text
        assert codes(result) == ["A164"]


def test_rows_that_went_with_an_accepted_change_are_not_missed_in_sum(tmp_path: Path) -> None:
    """A tool that is not known here takes a file away, an operator accepts it; later changes mix the epochs."""
    path, ledger = tmp_path / "rows", SqlLedger(str(tmp_path / "ledger.db"))
    sink = DeltaSink(path, external_changes="deletes")
    write(sink, ledger, 1)
    [file] = DeltaTable(path).file_uris()
    write(sink, ledger, 2)
    version = DeltaTable(path).version() + 1
    purge(path, version, Path(file).name)
    with pytest.raises(IdentityError, match="E209"):
        write(sink, ledger, 3)
    adopt([sink], ledger, "orders", Adoption(AdoptionKind.ACCEPT_CHANGE, (sink.id,), versions=(str(version),)))
    write(sink, ledger, 3)
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 12")
    write(sink, ledger, 4)
    result = audit(ledger, "orders", [sink])
    assert result.spoken == "EXACTLY ONCE (1 row deleted by others, allowed; changes by others, accepted)", result.text
    assert set(codes(result)) == {"A116", "A164"}, result.text
    purge(path, DeltaTable(path).version() + 1, Path(DeltaTable(path).file_uris()[-1]).name)
    assert {"A126", "A154"} <= set(codes(audit(ledger, "orders", [sink])))
    sink.close()


def write(sink: DeltaSink, ledger: SqlLedger, number: int) -> None:
    """Write an epoch of ten rows under a driver of its own."""
    state = coordinator.start(Job("orders", (sink.id,), f"driver {number}", offered(number)))
    Runner([sink], ledger).run(state, ArrowBatch(rows(number)))


def purge(path: Path, version: int, file: str) -> None:
    """Take a file away by an operation that no table of operations holds."""
    removed = {"path": file, "dataChange": True, "deletionTimestamp": 1}
    actions = ({"commitInfo": {"operation": "PURGE BY A TOOL"}}, {"remove": removed})
    log = path / "_delta_log" / f"{version:020}.json"
    log.write_text("\n".join(json.dumps(action) for action in actions))


def test_after_changes_what_rows_say_cannot_be_told(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, external_changes="changes")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        update(harness.path)
        driver.writes()
        result = audited(driver)
        assert result.spoken == "CANNOT TELL (rows changed by others, allowed)"
        assert set(codes(result)) == {"A109", "A164"}
        assert result.exit_code == 3


def test_a_lowered_rung_does_not_take_back_what_was_let_pass(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, external_changes="deletes")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        delete(harness.path)
        driver.writes()
        strict = DeltaSink(harness.path, external_changes="nothing")
        result = audit(None, PIPELINE, [strict])
        strict.close()
        assert result.spoken == "EXACTLY ONCE (1 row deleted by others, allowed)"


def test_an_idle_pipeline_tells_at_its_opening_what_its_fence_has_passed_over(tmp_path: Path) -> None:
    """The fence moves on, so that the log behind it may be cleaned away, and the event is not lost with it."""
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        story.driver().writes()
        append(harness.path)
        [told] = story.driver().position().disturbances
        assert (told.allowed, told.added) == (True, 2)
        assert story.driver().position().disturbances == ()


def test_a_rung_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="E110"):
        DeltaSink(tmp_path, external_changes="everything")


@pytest.mark.parametrize("rung", RUNGS)
def test_an_address_carries_the_rung(tmp_path: Path, rung: str) -> None:
    sink = DeltaSink(tmp_path / "rows", external_changes=rung)
    assert DeltaSink.from_address(sink.address).address == sink.address
    assert ("external_changes" in sink.address) == (rung != "appends")
