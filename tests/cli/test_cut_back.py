"""A cut back where checkpoint, state, file lists or an old driver stand in its way: each printed command leads on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.test_rewind_command import NAMES, Job, rewind
from tests.cli.test_ways_out import ids, obeys, printed
from tests.core.several import Crash, crash

from onceonly import faults
from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly.machine.facts import Offer
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import InputFile, Slice, SourceIdentity, SourceOffsets
from onceonly_checkpoints.spark.logs import render_files


class FileJob(Job):
    """A query over files, one for each batch."""

    def file(self, number: int) -> InputFile:
        return InputFile(str(self.pipeline.root / f"in-{number}"), 1, number - 1, "0")

    def offer(self, number: int) -> Offer:
        ends = (
            SourceOffsets((("0", f'{{"logOffset":{at}}}' if at >= 0 else None),)) for at in (number - 2, number - 1)
        )
        sources = (SourceIdentity("0", "files:file:/in", "hash"),)
        return replace(super().offer(number), slice=Slice(*ends), sources=sources, files=(self.file(number),))

    def _logs(self, number: int) -> None:
        Path(self.file(number).path).touch()
        self.checkpoint.create(f"sources/0/{number - 1}", render_files([self.file(number)]).encode())
        super()._logs(number)


def wrecked(made: Job, *, ledger: bool = False) -> Job:
    """Four epochs, of which every sink, and maybe the ledger, lacks two."""
    made.writes(1, 2, 3, 4)
    made.restore(2, *NAMES)
    if ledger:
        made.pipeline.ledger.discard("orders", 3)
    return made


# ---- input that is gone


def forgets(job: Job) -> None:
    """The ledger knows epochs by the sinks alone, which keep no file lists."""
    known = job.pipeline.ledger.epochs("orders")
    job.pipeline.ledger.discard("orders", 1)
    for record in known:
        job.pipeline.ledger.record(replace(record, files=()))


@pytest.mark.parametrize("ledger", ["without lists", "restored"])
def test_input_that_is_gone_is_looked_for_by_whoever_lists_it(run: Run, tmp_path: Path, ledger: str) -> None:
    job = wrecked(FileJob(tmp_path), ledger=ledger == "restored")
    if ledger == "without lists":
        forgets(job)
    said = job.said("E229" if ledger == "restored" else "E207", 5)
    (tmp_path / "in-3").unlink()
    told = rewind(run, job, *printed(said, "recover rewind")[-2:], "--yes")
    assert "[ONCE-E230]" in told
    assert "epochs 3..3" in told
    assert str(tmp_path / "in-3") in told
    plan = obeys(run, told, "--accept-loss 3..3")
    assert f"epoch 3: {tmp_path / 'in-3'}" in plan
    assert "not asked" not in plan
    assert f"epoch 3: {tmp_path / 'in-3'}" in job.pipeline.events(EventKind.REWOUND)[-1]
    job.writes(3, 4, 5)
    audited = " ".join(job.audited(run).split())
    if ledger == "without lists":
        assert "set aside when every sink was at epoch 2 and the loss of epochs 3..3 was accepted" in audited


def test_input_of_a_batch_that_was_planned_and_never_written_is_looked_for_as_well(run: Run, tmp_path: Path) -> None:
    job = wrecked(FileJob(tmp_path), ledger=True)
    job._logs(5)
    (tmp_path / "in-5").unlink()
    assert "epochs 5..5" in rewind(run, job, "--to", "2")


def test_what_neither_ledger_nor_checkpoint_lists_is_said_not_to_be_asked(run: Run, tmp_path: Path) -> None:
    job = wrecked(FileJob(tmp_path))
    said = job.said("E207", 5)
    forgets(job)
    shutil.rmtree(tmp_path / "checkpoint" / "sources")
    told = rewind(run, job, "--to", "2")
    assert "[ONCE-E604]" in told
    job.checkpoint.create("sources/0/1.compact", render_files([job.file(1), job.file(2)]).encode())
    plan = obeys(run, said, "recover rewind")
    assert "for the files of 2 batches beyond epoch 2, which neither the ledger nor the checkpoint lists" in plan


def test_what_is_no_file_is_said_not_to_be_asked(run: Run, tmp_path: Path) -> None:
    job = wrecked(Job(tmp_path))
    plan = run(*printed(job.said("E207", 5), "recover rewind"))
    assert "whether topic events still holds the input after epoch 2" in " ".join(plan.stdout.split())


# ---- a checkpoint that cannot be cut back


@pytest.mark.parametrize("ledger", [False, True], ids=["ledger apart", "ledger restored as well"])
def test_state_that_is_gone_refuses_and_the_rows_are_given_up_by_the_printed_command(
    run: Run, tmp_path: Path, ledger: bool
) -> None:
    job = wrecked(Job(tmp_path), ledger=ledger)
    said = job.said("E229" if ledger else "E207", 5)
    job.checkpoint.create("state/0/0/4.delta", b"state")
    told = rewind(run, job, *printed(said, "recover rewind")[-2:], "--yes")
    assert "[ONCE-E235]" in told
    assert "holds no version 2 of it" in told
    assert not job.pipeline.events(EventKind.REWOUND)
    obeys(run, told, "--accept-loss 3..4")
    job.writes(5)
    assert ids(job.pipeline, "a") == [*range(20), *range(40, 50)]
    job.audited(run)


def test_a_checkpoint_that_lies_elsewhere_is_rebuilt_by_the_printed_command(run: Run, tmp_path: Path) -> None:
    job = wrecked(Job(tmp_path))
    said = job.said("E207", 5)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "notes.txt").touch()
    plan = obeys(run, said, "recover rewind")
    assert "not reset here" in plan
    assert "it holds other things: notes.txt" in " ".join(plan.split())
    (tmp_path / "checkpoint" / "notes.txt").unlink()
    obeys(run, plan, "recover rebuild-checkpoint")
    job.writes(3, 4, 5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_checkpoint_that_nothing_can_rebuild_leaves_the_ledger_as_it_is(run: Run, tmp_path: Path) -> None:
    job = wrecked(FileJob(tmp_path))
    said = job.said("E207", 5)
    forgets(job)
    shutil.rmtree(tmp_path / "checkpoint" / "sources")
    told = rewind(run, job, *printed(said, "recover rewind")[-2:], "--yes")
    assert "[ONCE-E604]" in told
    assert job.pipeline.ledger.head("orders").epoch.number == 4
    obeys(run, told, "--accept-loss 3..4")
    job.writes(5)
    assert ids(job.pipeline, "a") == [*range(20), *range(40, 50)]


# ---- a driver that was stopped between its commit and its record


def wakes(job: Job, meanwhile: Callable[[], None]) -> None:
    """The driver of epoch 4 is stopped there; something happens; then it records, and dies."""

    def stopped() -> None:
        faults.disarm()
        meanwhile()
        faults.arm(Point.RECORD_AFTER, crash)

    faults.arm(Point.RECORD_BEFORE, stopped)
    with pytest.raises(Crash):
        job.writes(4)
    faults.disarm()


@pytest.mark.parametrize("wrote", [0, 1])
def test_what_a_driver_records_that_was_asleep_is_cut_back_again(run: Run, tmp_path: Path, wrote: int) -> None:
    job = Job(tmp_path)
    job.writes(1, 2, 3)

    def meanwhile() -> None:
        job.restore(2, *NAMES)
        obeys(run, job.said("E207", 4), "recover rewind")
        job.writes(*range(3, 3 + wrote))

    wakes(job, meanwhile)
    assert job.pipeline.ledger.head("orders").epoch.number == 4
    obeys(run, job.said("E207", 5), "recover rewind")
    job.writes(*range(3 + wrote, 6))
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_driver_that_runs_meets_what_another_recorded_that_was_asleep(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.writes(1, 2, 3)
    driver = job.pipeline.driver()

    def meanwhile() -> None:
        job.restore(2, *NAMES)
        obeys(run, job.said("E207", 4), "recover rewind")
        driver.writes(3)

    wakes(job, meanwhile)
    with pytest.raises(OnceOnlyError) as met:
        driver.writes(4)
    assert met.value.code == "E511"
    obeys(run, job.said("E210", 5), "recover rebuild-ledger")
    job.pipeline.driver().writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")
