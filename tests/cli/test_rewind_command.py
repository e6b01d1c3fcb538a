"""``onceonly recover rewind``: what a refusal prints is obeyed, killed, obeyed again, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Run, document
from tests.cli.test_ways_out import ids, obeys, printed, refused
from tests.core.several import Crash, Pipeline, crash, offered, rows
from tests.core.test_publish import LINE

from onceonly import faults
from onceonly.api.arguments import Storage
from onceonly.cli.recover import rewind as cut_plan
from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.facts import Offer
from onceonly.machine.rewind import CutBack, RewindRequest
from onceonly.machine.state import Job as MachineJob
from onceonly.machine.state import State
from onceonly.protocol.batch import ArrowBatch
from onceonly.replay.rewind import Pipeline as RewoundPipeline
from onceonly.replay.rewind import RewindPlan
from onceonly.runtime.remedies import CommandContext
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, ReplayedEpochs
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.spark import offsets as spark_offsets
from onceonly_checkpoints.storage import LocalStorage

NAMES = ("a", "b", "c")
POINTS = (
    Point.INSTALL_BEFORE,
    Point.INSTALL_AFTER,
    Point.READ_AFTER,
    Point.REINDEX_AFTER,
    Point.PREPARE_BEFORE,
    Point.PREPARE_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_AFTER,
    Point.RECORD_BEFORE,
    Point.RECORD_AFTER,
)


class Job:
    """A query into sinks, that keeps some staged epochs; its checkpoint is a directory of Spark's files.

    Args:
        root: for its files.
        names: of the sinks.
        keep: staged epochs that stay.
    """

    def __init__(self, root: Path, names: tuple[str, ...] = NAMES, keep: int = 1) -> None:
        self.pipeline = Pipeline(root, names)
        self.keep = keep
        self.checkpoint = LocalStorage(root / "checkpoint")

    def offer(self, number: int) -> Offer:
        made = offered(number)
        return replace(made, lineage=replace(made.lineage, checkpoint=self.checkpoint.url))

    def writes(self, *numbers: int, table: Callable[[int], pa.Table] = rows) -> None:
        """Start the query, which is handed these batches; Spark's files say so."""
        sinks = self.pipeline.sinks()
        staging = StagedEpochs(self.pipeline.staging, "orders", sinks, self.keep)
        runner, state = Runner(sinks, self.pipeline.ledger, staging=staging), None
        for number in numbers:
            state = runner.run(self._next(state, self.offer(number)), ArrowBatch(table(number)))
            self._logs(number)

    def _next(self, state: State | None, offer: Offer) -> State:
        if state:
            return coordinator.resume(state, offer)
        names = tuple(sink.id for sink in self.pipeline.sinks())
        return coordinator.start(MachineJob("orders", names, f"driver {offer.lineage.batch_id}", offer, stages=True))

    def _logs(self, number: int) -> None:
        offer, storage = self.offer(number), self.checkpoint
        if not storage.exists("metadata"):
            storage.create("metadata", f'{{"id":"{offer.lineage.query_id}"}}'.encode())
        about = f'{{"batchWatermarkMs":0,"batchTimestampMs":{offer.lineage.batch_timestamp_ms},"conf":{{}}}}'
        ends = [text for _, text in offer.slice.end.entries if text]
        storage.create(f"offsets/{number - 1}", "\n".join(["v1", about, *ends]).encode())
        storage.create(f"commits/{number - 1}", b'v1\n{"nextBatchWatermarkMs":0}')

    def restore(self, to: int, *names: str) -> None:
        """Put sinks back as a backup does, which knows nothing of what came after it."""
        for name in names:
            self.pipeline.stores[name].restore(to)
            self.pipeline.stores[name]._mishaps.clear()

    def said(self, code: str, number: int) -> str:
        return refused(self.pipeline, code, self.offer(number), rows(number))

    def holds(self, epochs: int) -> None:
        for name in self.pipeline.stores:
            assert ids(self.pipeline, name) == list(range(epochs * 10)), name

    def audited(self, run: Run, *names: str) -> str:
        found = run("audit", "--ledger", str(self.pipeline.root / "ledger.db"), *names)
        assert found.exit_code == 0, found.output
        return str(found.stdout)


# ---- cut back


def test_sinks_that_were_all_set_back_are_gone_on_from_and_nothing_is_lost(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.writes(1, 2, 3, 4)
    job.restore(2, *NAMES)
    said = job.said("E207", 5)
    plan = obeys(run, said, "recover rewind orders")
    assert "2 epochs, 20 rows of the ledger" in plan
    assert "fences every running driver out" in plan
    assert spark_offsets.offset_ids(job.checkpoint)[-1] == 1  # Spark goes on with batch 2
    job.writes(3, 4, 5)
    job.holds(5)
    said = job.audited(run)
    assert said.startswith("EXACTLY ONCE")
    assert "A181" in said
    assert "epochs 3..4 have taken their place, with the same rows" in " ".join(said.split())
    aside = job.pipeline.ledger.superseded("orders")
    assert [one.epoch.number for one in aside] == [3, 4]
    told = job.pipeline.events(EventKind.REWOUND)
    assert told == ["every sink is at epoch 2; 2 epochs after it taken back, to be read from the source again"]


@pytest.mark.parametrize("point", [one for one in POINTS if one.value.partition(".")[0] not in ("prepare", "commit")])
def test_a_cut_back_that_is_killed_is_given_again(run: Run, tmp_path: Path, point: Point) -> None:
    job = Job(tmp_path)
    job.writes(1, 2, 3, 4)
    job.restore(2, *NAMES)
    command = printed(job.said("E207", 5), "recover rewind")
    faults.arm(point, crash)
    with pytest.raises(Crash):
        run(*command, "--yes")
    faults.disarm()
    assert run(*command, "--yes").exit_code == 0
    job.writes(3, 4, 5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_driver_that_was_stopped_before_its_commit_is_fenced_out_by_a_cut_back(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.writes(1, 2, 3, 4)
    sleeper = job.pipeline.sinks_open()[0]
    fence = sleeper.fence()
    job.restore(2, *NAMES)
    obeys(run, job.said("E207", 5), "recover rewind")
    now = job.pipeline.sinks_open()[0].fence()
    assert fence is not None
    assert now is not None
    assert now.owner != fence.owner


# ---- bring up


@pytest.mark.parametrize("behind", [2, 5, 20])
def test_a_sink_several_epochs_behind_gets_them_from_what_stayed_staged(run: Run, tmp_path: Path, behind: int) -> None:
    job, newest = Job(tmp_path, keep=behind), 2 + behind
    job.writes(*range(1, newest + 1))
    job.restore(2, "b")
    said = job.said("E207", newest + 1)
    plan = obeys(run, said, "recover rewind orders")
    assert f"gets epochs 3..{newest}, {behind * 10} rows: {behind} from stage" in plan
    job.writes(newest + 1)
    job.holds(newest + 1)
    assert job.audited(run).startswith("EXACTLY ONCE")
    [told] = job.pipeline.events(EventKind.ROLLED_FORWARD)
    assert told == f"memory:b brought from epoch 2 to {newest}, rows from: stage"


def test_what_the_audit_prints_before_any_start_is_obeyed_and_loses_nothing(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=9)
    job.writes(1, 2, 3, 4)
    job.restore(1, "b")
    place = str(tmp_path / "ledger.db")
    found = document(run("audit", "--ledger", place, "-o", "json"))["findings"]
    said = {one["code"]: one["remedy"] for one in found if one["code"] in ("A132", "A142")}
    assert sorted(said) == ["A132", "A142"]
    [remedy] = {printed(one, "recover rewind")[-1]: one for one in said.values()}.values()
    obeys(run, remedy, "recover rewind orders")
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_bring_up_that_is_killed_is_given_again(run: Run, tmp_path: Path, point: Point, hit: int) -> None:
    job = Job(tmp_path, keep=4)
    job.writes(1, 2, 3, 4)
    job.restore(1, "b")
    command = printed(job.said("E207", 5), "recover rewind")
    fires = hit == 1 or point not in (Point.REINDEX_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER)
    faults.arm(point, crash, hit=hit)
    if fires:
        with pytest.raises(Crash):
            run(*command, "--yes")
    faults.disarm()
    assert run(*command, "--yes").exit_code == 0
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_of_two_operators_at_once_one_brings_the_epochs_and_the_other_is_told(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=4)
    job.writes(1, 2, 3, 4)
    job.restore(1, "b")
    command = printed(job.said("E207", 5), "recover rewind")

    def another() -> None:
        faults.disarm()
        assert run(*command, "--yes").exit_code == 0

    faults.arm(Point.PREPARE_AFTER, another)
    late = run(*command, "--yes")
    assert late.exit_code == 2
    assert "ONCE-E401" in late.stderr
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_sink_that_was_made_anew_is_filled_from_the_first_epoch_on(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=9)
    job.writes(1, 2, 3, 4)
    job.pipeline.stores["b"].recreate()
    obeys(run, job.said("E208", 5), "recover rewind orders")
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_all_sinks_are_brought_up_from_the_stage_without_the_source(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=9)
    job.writes(1, 2, 3, 4)
    job.restore(2, *NAMES)
    job.said("E207", 5)
    ledger = str(tmp_path / "ledger.db")
    named = [word for name in NAMES for word in ("--sink", f"memory:{name}")]
    done = run("recover", "rewind", "orders", "--ledger", ledger, "--to", "2", *named, "--from", "stage", "--yes")
    assert done.exit_code == 0, done.output
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_of_two_operators_who_cut_back_at_once_the_late_one_loses_nothing(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=1)
    job.writes(1, 2, 3, 4)
    job.restore(2, *NAMES)
    command = printed(job.said("E207", 5), "recover rewind")

    def another() -> None:
        faults.disarm()
        assert run(*command, "--yes").exit_code == 0
        job.writes(3)

    faults.arm(Point.RECORD_BEFORE, another)
    run(*command, "--yes")
    job.writes(*(number for number in (3, 4, 5) if number > job.pipeline.ledger.head("orders").epoch.number))
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


# ---- what it refuses


def rewind(run: Run, job: Job, *words: str) -> str:
    found = run("recover", "rewind", "orders", "--ledger", str(job.pipeline.root / "ledger.db"), *words)
    assert found.exit_code == 2, found.output
    return str(found.stderr)


def test_where_the_sinks_do_not_stand_is_refused_with_where_they_do(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=9)
    job.writes(1, 2, 3, 4)
    job.restore(2, "b")
    said = rewind(run, job, "--to", "2")
    assert "[ONCE-E231]" in said
    obeys(run, said, "--sink memory:b")
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_a_sink_that_lacks_more_than_was_said_is_refused_with_what_it_lacks(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=9)
    job.writes(1, 2, 3, 4)
    job.restore(1, "b")
    said = rewind(run, job, "--to", "3", "--sink", "memory:b")
    assert "[ONCE-E231]" in said
    obeys(run, said, "--to 1")
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")


def test_rows_that_are_nowhere_are_given_up_by_the_command_that_says_so(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.writes(1, 2, 3, 4)
    job.restore(1, "b")
    job.said("E207", 5)
    said = rewind(run, job, "--to", "1", "--sink", "memory:b", "--from", "stage")
    assert "[ONCE-E232]" in said
    assert "Epoch 2" in said
    obeys(run, said, "--accept-loss 2..4")
    job.writes(5)
    assert ids(job.pipeline, "b") == [*range(10), *range(40, 50)]
    assert job.audited(run).startswith("EXACTLY ONCE (rows of epochs 2 to 4 given up, accepted)")


@pytest.mark.parametrize("origin", ["nowhere", "sink:", "stage:x", "source"])
def test_an_origin_that_does_not_exist_is_refused(run: Run, tmp_path: Path, origin: str) -> None:
    job = Job(tmp_path)
    job.writes(1)
    assert "[ONCE-E110]" in rewind(run, job, "--to", "1", "--from", origin)


def test_a_range_that_is_none_is_refused(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.writes(1)
    assert "[ONCE-E110]" in rewind(run, job, "--to", "1", "--accept-loss", "some")


# ---- staged epochs that stay


def test_as_many_staged_epochs_stay_as_was_said(tmp_path: Path) -> None:
    job = Job(tmp_path, keep=3)
    job.writes(1, 2, 3, 4, 5)
    assert sorted(Path(one).name[:13] for one in job.pipeline.staged()) == [f"e{number:012d}" for number in (3, 4, 5)]
    job.writes(6)
    assert sorted(Path(one).name[:13] for one in job.pipeline.staged()) == [f"e{number:012d}" for number in (4, 5, 6)]


@pytest.mark.parametrize("keep", [0, -1, True, "2"])
def test_staging_that_keeps_nothing_is_refused(keep: object) -> None:
    with pytest.raises(ConfigurationError) as error:
        Storage(keep_epochs=keep)  # type: ignore[arg-type]
    assert error.value.code == "E110"


# ---- epochs that no batch brings


def plan_of(ledger: SqlLedger, *beyond: Epoch) -> dict[str, list[str]]:
    """The plan of a cut back to epoch 4, by name."""
    of = RewoundPipeline("orders", (), ledger, CommandContext("orders", " --ledger l.db"))
    way = CutBack(4, tuple(epoch.number for epoch in beyond))
    planned = RewindPlan(way, {epoch.number: epoch for epoch in beyond}, {})
    told: dict[str, list[str]] = {}
    for name, value in cut_plan.RewindPreview(of, RewindRequest(4), planned).pairs:
        told.setdefault(name, []).append(str(value))
    return told


def test_a_cut_back_names_what_spark_does_not_read_again_and_counts_the_rest(tmp_path: Path) -> None:
    ledger = SqlLedger(str(tmp_path / "l.db"))
    published = replace(
        LINE[3], number=5, lineage=None, replaces=(1, 4), replays=ReplayedEpochs("orders~v2", 1, 4, "c")
    )
    refreshed, brought = replace(LINE[3], number=5, replaces=(1, 4)), replace(LINE[3], number=5, lineage=None)
    batch, decided = replace(LINE[2], number=6), replace(brought, number=7, digest=Digest(0))
    again = "epoch 5, which published orders~v2 (10 rows): before the query starts, publish it again: "
    stand = "epoch 5, a full refresh (10 rows): rows of epochs 1..4 are current again; refresh once more: "
    by_hand = "epoch 5, which an operator brought (10 rows): "
    expected = {
        "a publication": (published, [f"{again}onceonly replay publish 'orders~v2' --over orders --ledger l.db"]),
        "a refresh": (refreshed, [f"{stand}onceonly recover refresh orders --ledger l.db --how replace"]),
        "an operator's rows": (brought, [f"{by_hand}decide it again once the query has continued"]),
    }
    told = {what: plan_of(ledger, epoch, batch, decided) for what, (epoch, _) in expected.items()}
    assert {what: plan["undoes"] for what, plan in told.items()} == {what: said for what, (_, said) in expected.items()}
    counted = "3 epochs, 20 rows of the ledger; Spark reads 10 of these rows again from the source"
    assert {tuple(plan["sets aside"]) for plan in told.values()} == {(counted,)}
    plain = plan_of(ledger, batch, decided)
    assert plain["sets aside"] == ["2 epochs, 10 rows of the ledger; Spark reads their rows again from the source"]
    assert "undoes" not in plain


def test_a_sink_is_brought_level_by_the_printed_command_where_the_ledger_is_lost_too(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path, keep=4)
    job.writes(1, 2, 3, 4)
    job.restore(1, "a")
    job.pipeline.ledger.forget("orders")
    obeys(run, job.said("E207", 5), "recover rewind orders")
    job.writes(5)
    job.holds(5)
    assert job.audited(run).startswith("EXACTLY ONCE")
