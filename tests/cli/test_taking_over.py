"""An older job becomes a pipeline: its checkpoint, and for Delta its transactions, must prove where it stands."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.cli.conftest import Run, assert_answerless, document
from tests.core.stories import cut, offer

from onceonly.errors import IdentityError
from onceonly.machine import coordinator
from onceonly.machine.facts import Offer
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink, MemoryStore

APP = "nightly-orders"


class OldJob:
    """A query with a plain ``foreachBatch``: batch ``n`` writes rows ``10n .. 10n + 9`` under ``txnAppId``."""

    def __init__(self, root: Path) -> None:
        self.checkpoint, self.path = root / "ck", root / "orders"
        for part in ("offsets", "commits"):
            (self.checkpoint / part).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id":"q1"}')

    @property
    def address(self) -> str:
        return f"delta:{self.path}"

    def plans(self, batch: int) -> OldJob:
        about = {"batchWatermarkMs": 0, "batchTimestampMs": 1000 + batch, "conf": {}}
        offsets = json.dumps({"events": {"0": 10 * batch + 10}}, separators=(",", ":"))
        (self.checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", json.dumps(about), offsets]))
        return self

    def writes(self, batch: int, app: str = APP) -> OldJob:
        rows = pa.table({"id": range(10 * batch, 10 * batch + 10)})
        noted = CommitProperties(app_transactions=[Transaction(app, batch, 1)])
        write_deltalake(self.path, rows, mode="append", commit_properties=noted)
        return self

    def finishes(self, batch: int) -> OldJob:
        (self.checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return self

    def does(self, *batches: int) -> OldJob:
        for batch in batches:
            self.plans(batch).writes(batch).finishes(batch)
        return self

    def ids(self) -> list[int]:
        return sorted(DeltaTable(self.path).to_pyarrow_table()["id"].to_pylist())


class Executable(ArrowBatch):
    def execute(self) -> Digest:
        return self.digest()


@pytest.fixture
def job(tmp_path: Path) -> OldJob:
    """It has finished three batches."""
    return OldJob(tmp_path).does(0, 1, 2)


def adopts(run: Run, job: OldJob, *options: str):
    place = ("--from-checkpoint", str(job.checkpoint), "--sink", job.address)
    return run("recover", "adopt", "orders", *place, *options)


def takes_over(run: Run, job: OldJob, *options: str) -> str:
    """With ``--yes``; without it nothing may change."""
    planned = adopts(run, job, *options)
    assert planned.exit_code == 4, planned.output
    assert "Nothing was changed" in planned.stderr
    assert not ledger_of(job).exists()
    done = adopts(run, job, *options, "--yes")
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def ledger_of(job: OldJob) -> Path:
    return job.checkpoint.with_name("ck.onceonly.db")


def offers(job: OldJob, what: Offer, first: int) -> State:
    """Start the query with ``exactly_once`` on the old job's checkpoint; its batch is ``what``."""
    sink, ledger = DeltaSink(job.path), SqlLedger(str(ledger_of(job)))
    try:
        state = coordinator.start(Job("orders", (sink.id,), secrets.token_hex(4), what))
        return Runner([sink], ledger).run(state, Executable(pa.table({"id": range(first, first + 10)})))
    finally:
        sink.close()
        ledger.close()


def refused(job: OldJob, what: Offer) -> str:
    with pytest.raises(IdentityError) as error:
        offers(job, what, 0)
    return error.value.code


def test_a_pipeline_begins_after_the_last_batch_of_a_delta_job(run: Run, job: OldJob) -> None:
    said = takes_over(run, job, "--from-delta-txn", APP)
    assert "batch 2 is the last one that was finished" in said
    assert f'application "{APP}" last wrote version 2' in said
    offers(job, offer(cut(30, 40), 3), 30)
    assert job.ids() == list(range(40))


def test_what_was_taken_over_is_audited_as_such(run: Run, job: OldJob) -> None:
    takes_over(run, job, "--reason", "ticket 7")
    offers(job, offer(cut(30, 40), 3), 30)
    found = document(run("audit", "--ledger", str(ledger_of(job)), "-o", "json"))
    assert found["verdict"] == "EXACTLY ONCE"
    assert [one["code"] for one in found["findings"]] == ["A128", "A116"]  # rows of no epoch; an adoption
    assert "from-checkpoint: batch 2: ticket 7" in found["findings"][1]["evidence"]


def test_a_stateful_query_goes_on_with_its_state(run: Run, job: OldJob) -> None:
    takes_over(run, job)
    offers(job, replace(offer(cut(30, 40), 3), stateful=True), 30)
    assert job.ids() == list(range(40))


@pytest.mark.parametrize(
    ("what", "code"),
    [
        (offer(cut(30, 40), 3, query="q2"), "E211"),
        (replace(offer(cut(30, 40), 3, query="q2"), stateful=True), "E206"),
        (offer(cut(40, 50), 3), "E204"),
        (offer(cut(40, 50), 4), "E229"),
        (offer(cut(20, 30), 2), "E203"),
        (offer(cut(None, 30), 0), "E203"),
    ],
    ids=[
        "another checkpoint",
        "lost state",
        "a hole",
        "batches that are no epochs",
        "the last batch again",
        "from the beginning",
    ],
)
def test_only_that_checkpoint_goes_on_and_only_from_there(run: Run, job: OldJob, what: Offer, code: str) -> None:
    takes_over(run, job)
    assert refused(job, what) == code
    assert job.ids() == list(range(30))


def test_a_batch_that_was_planned_and_never_written_is_the_first_epoch(run: Run, job: OldJob) -> None:
    said = takes_over(run, job.plans(3), "--from-delta-txn", APP)
    assert "batch 3 was planned and not written" in said
    offers(job, offer(cut(30, 40), 3), 30)
    assert job.ids() == list(range(40))


def test_a_batch_that_was_written_and_not_marked_as_finished_is_left_to_the_old_job(run: Run, job: OldJob) -> None:
    answer = adopts(run, job.plans(3).writes(3), "--from-delta-txn", APP, "--yes")
    assert_answerless(answer, "E221", "batch 3 is planned and not finished", "start the old job once more")
    takes_over(run, job.finishes(3), "--from-delta-txn", APP)


def test_without_transactions_a_batch_that_is_not_finished_proves_nothing(run: Run, job: OldJob) -> None:
    assert_answerless(adopts(run, job.plans(3), "--yes"), "E221", "may have been written in part")


def test_a_table_that_is_not_where_the_checkpoint_is_is_refused(run: Run, job: OldJob) -> None:
    (job.checkpoint / "commits" / "2").unlink()
    (job.checkpoint / "offsets" / "2").unlink()
    answer = adopts(run, job, "--from-delta-txn", APP, "--yes")
    assert_answerless(answer, "E221", "was last written as batch 2, and the checkpoint's last batch is 1")
    job.plans(2).finishes(2).plans(3).finishes(3)
    assert_answerless(adopts(run, job, "--from-delta-txn", APP, "--yes"), "E221", "as batch 2", "last batch is 3")


@pytest.mark.parametrize("how", ["restore", "delete", "overwrite"])
def test_a_table_that_lost_rows_behind_its_transaction_is_refused(run: Run, job: OldJob, how: str) -> None:
    table = DeltaTable(job.path)
    if how == "restore":
        table.restore(1)
    elif how == "delete":
        table.delete("id = 3")
    else:
        write_deltalake(job.path, pa.table({"id": [1]}), mode="overwrite")
    assert DeltaTable(job.path).transaction_version(APP) == 2
    answer = adopts(run, job, "--from-delta-txn", APP, "--yes")
    assert_answerless(answer, "E221", "was changed since the job wrote its batch 2")


def test_appends_of_others_and_compaction_hide_no_transaction(run: Run, job: OldJob) -> None:
    write_deltalake(job.path, pa.table({"id": [100]}), mode="append")
    DeltaTable(job.path).optimize.compact()
    takes_over(run, job, "--from-delta-txn", APP)


def test_a_log_that_was_cleaned_away_proves_nothing_of_what_came_after(run: Run, job: OldJob) -> None:
    write_deltalake(job.path, pa.table({"id": [100]}), mode="append")
    DeltaTable(job.path).create_checkpoint()
    for version in range(3):
        (job.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert_answerless(adopts(run, job, "--from-delta-txn", APP, "--yes"), "E221", "cleaned away")


def test_another_application_proves_nothing(run: Run, job: OldJob) -> None:
    assert_answerless(adopts(run, job, "--from-delta-txn", "weekly", "--yes"), "E221", "no transaction of application")


def test_a_sink_without_transactions_is_told_from_one_with_another(run: Run, job: OldJob) -> None:
    sink = MemorySink("memory:orders", MemoryStore("taken"))  # the command line finds it while somebody holds it
    place = ("--from-checkpoint", str(job.checkpoint), "--sink", sink.address, "--from-delta-txn", APP)
    assert_answerless(run("recover", "adopt", "orders", *place), "E221", "keeps no application transactions")


def test_a_damaged_checkpoint_is_no_starting_point(run: Run, job: OldJob) -> None:
    (job.checkpoint / "offsets" / "2").write_text("v1\n{}")
    assert_answerless(adopts(run, job, "--yes"), "E221", "--verify")


def test_a_job_that_never_finished_a_batch_has_nothing_to_take_over(run: Run, tmp_path: Path) -> None:
    answer = adopts(run, OldJob(tmp_path).plans(0).writes(0), "--yes")
    assert_answerless(answer, "E221", "no batch of it was ever finished")


def test_a_pipeline_begins_once(run: Run, job: OldJob) -> None:
    takes_over(run, job)
    assert_answerless(adopts(run, job, "--yes"), "E110", "is at epoch 1 already")


@pytest.mark.parametrize(
    "given", [("--from-delta-txn", APP), ("--from-checkpoint", "ck"), ("--from-checkpoint", "ck", "--continue")]
)
def test_what_is_needed_is_said(run: Run, given: tuple[str, ...]) -> None:
    assert_answerless(run("recover", "adopt", "orders", *given), "E110")
