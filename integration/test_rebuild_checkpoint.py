"""A rebuilt checkpoint makes real Spark go on exactly where it was; what ``verify`` says Spark will do, it does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from integration.streams import settings
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import InputFile, SourceOffsets
from onceonly_checkpoints.spark import offsets, rebuild
from onceonly_checkpoints.spark.logs import input_files
from onceonly_checkpoints.spark.verify import Effect, verify
from onceonly_checkpoints.storage import LocalStorage

pytestmark = pytest.mark.spark

FAST_LOGS = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
OFFSET_FORMAT = "spark.sql.streaming.offsetLog.formatVersion"
COMPACT_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"


class Killed(RuntimeError):
    """The driver dies inside the callback."""


@dataclass
class Pipeline:
    """A streaming job whose sink is a list, and a ledger that is filled as the runner fills it."""

    spark: SparkSession
    home: Path
    frame: Callable[[], DataFrame]
    conf: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[int, list[int]]] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"

    @property
    def storage(self) -> LocalStorage:
        return LocalStorage(self.checkpoint)

    @contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        with closing(SqlLedger(str(self.home / "ledger.db"))) as ledger:
            ledger.open()
            yield ledger

    def records(self) -> Sequence[EpochRecord]:
        with self.ledger() as ledger:
            return ledger.epochs("orders")

    def run(self, *, recording: bool = True, dying: bool = False) -> list[tuple[int, list[int]]]:
        """Start the query, let it do what there is to do, and return ``(batch id, values)`` of this start."""
        before = len(self.seen)

        def write(batch: DataFrame, batch_id: int) -> None:
            if dying:
                raise Killed
            self.seen.append((batch_id, sorted(row[0] for row in batch.collect())))
            if recording:
                self._record(batch_id)

        with settings(self.spark, self.conf):
            writer = self.frame().writeStream.foreachBatch(write).option("checkpointLocation", str(self.checkpoint))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(120)
        return self.seen[before:]

    def _record(self, batch_id: int) -> None:
        storage = self.storage
        slice_, entry = offsets.slice_of(storage, batch_id), offsets.offset_entry(storage, batch_id)
        lineage = Lineage(
            query_id=offsets.query_id(storage),
            run_id="run",
            checkpoint=str(self.checkpoint),
            batch_id=batch_id,
            batch_timestamp_ms=entry.batch_timestamp_ms,
            watermark_ms=entry.watermark_ms,
        )
        with self.ledger() as ledger:
            head = ledger.head("orders")
            number, before = (head.epoch.number + 1, head.epoch.chain) if head else (1, chain.GENESIS)
            digest = Digest(len(self.seen[-1][1]))
            epoch = chain.linked(Epoch(number, slice_, "", before, digest, "s", (("list", 1),), lineage))
            files = tuple(self._files(slice_.start, slice_.end))
            ledger.record(EpochRecord("orders", Fence(1, "me"), epoch, (), files))

    def _files(self, start: SourceOffsets, end: SourceOffsets) -> Iterator[InputFile]:
        starts = dict(start.entries)
        for source, offset in end.entries:
            upto = offsets.log_offset(offset)
            if upto is not None:
                after = offsets.log_offset(starts.get(source))
                yield from input_files(self.storage, source, after, upto)

    def rebuild(self, at: int | None = None) -> None:
        records = self.records()
        rebuild.apply(rebuild.plan_rebuild(records, at or records[-1].epoch.number), self.storage)


@dataclass
class Inbox:
    """A directory of one-row CSV files, in a fixed order."""

    spark: SparkSession
    path: Path
    per_batch: int = 1
    name: str | None = None

    def put(self, *values: int) -> None:
        self.path.mkdir(exist_ok=True)
        for value in values:
            draft = self.path / f"row {value}.draft"
            draft.write_text(f"{value}\n")
            # The file source takes files in the order of their times.
            os.utime(draft, (1_700_000_000 + value, 1_700_000_000 + value))
            draft.rename(draft.with_suffix(".csv"))

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema("value int").option("maxFilesPerTrigger", self.per_batch)
        if self.name:
            reader = reader.name(self.name)
        return reader.option("pathGlobFilter", "*.csv").csv(str(self.path))


def ticks(spark: SparkSession) -> DataFrame:
    """The deterministic source: ten rows per batch, counted on."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1)
    return reader.load().selectExpr("cast(value as int) as value")


@pytest.fixture
def inbox(spark: SparkSession, tmp_path: Path) -> Inbox:
    return Inbox(spark, tmp_path / "in")


@pytest.fixture
def files(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path, inbox.stream, dict([FAST_LOGS]))


@pytest.mark.parametrize(
    ("before", "after", "interval"),
    [
        pytest.param(1, 2, None, id="one batch", marks=pytest.mark.slow),
        pytest.param(4, 3, None, id="no compacted log yet"),
        pytest.param(13, 9, None, id="one compacted log, and the next compaction", marks=pytest.mark.slow),
        pytest.param(23, 8, None, id="two compacted logs, and the next compaction", marks=pytest.mark.slow),
        pytest.param(23, 8, "3", id="another compaction interval than was recorded", marks=pytest.mark.slow),
        pytest.param(12, 8, "5", id="another compaction interval, short log", marks=pytest.mark.slow),
        pytest.param(4, 9, "3", id="an interval below a log without a compaction", marks=pytest.mark.slow),
        pytest.param(1, 12, "1", id="each entry a compaction", marks=pytest.mark.slow),
    ],
)
def test_a_lost_checkpoint_of_a_file_source_is_rebuilt_and_spark_goes_on(
    files: Pipeline, inbox: Inbox, before: int, after: int, interval: str | None
) -> None:
    inbox.put(*range(before))
    assert files.run() == [(number, [number]) for number in range(before)]
    query_id = offsets.query_id(files.storage)
    shutil.rmtree(files.checkpoint)

    files.rebuild()
    assert verify(files.storage) == ()

    if interval:
        files.conf[COMPACT_INTERVAL] = interval
    inbox.put(*range(before, before + after))
    assert files.run() == [(number, [number]) for number in range(before, before + after)]
    assert offsets.query_id(files.storage) == query_id
    assert verify(files.storage) == ()
    assert chain.first_break([record.epoch for record in files.records()]) is None


@pytest.mark.slow
def test_rebuilding_at_an_earlier_epoch_replays_what_came_after_it(files: Pipeline, inbox: Inbox) -> None:
    inbox.put(*range(6))
    files.run()
    shutil.rmtree(files.checkpoint)

    files.rebuild(at=4)

    assert files.run(recording=False) == [(4, [4]), (5, [5])]


@pytest.mark.slow
def test_a_rebuilt_checkpoint_can_be_lost_and_rebuilt_again(files: Pipeline, inbox: Inbox) -> None:
    inbox.put(*range(3))
    files.run()
    for more in (3, 4):
        shutil.rmtree(files.checkpoint)
        files.rebuild()
        inbox.put(more)
        assert files.run() == [(more, [more])]


@pytest.mark.slow
def test_a_lost_checkpoint_of_an_offset_source_is_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(spark, tmp_path, lambda: ticks(spark), dict([FAST_LOGS]))
    first = pipeline.run()
    second = pipeline.run()
    assert [number for number, _ in first + second] == [0, 1]
    shutil.rmtree(pipeline.checkpoint)

    pipeline.rebuild()

    assert pipeline.run() == [(2, [value + 10 for value in second[-1][1]])]


@pytest.mark.slow
def test_several_sources_one_of_them_without_an_offset_are_rebuilt(
    spark: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    late = Inbox(spark, tmp_path / "late")
    late.put()
    pipeline = Pipeline(spark, tmp_path, lambda: inbox.stream().union(late.stream()), dict([FAST_LOGS]))
    inbox.put(0, 1)
    assert pipeline.run() == [(0, [0]), (1, [1])]
    shutil.rmtree(pipeline.checkpoint)

    pipeline.rebuild()

    inbox.put(2)
    late.put(100)
    assert pipeline.run() == [(2, [2, 100])]


def test_sources_under_names_are_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    orders = Inbox(spark, tmp_path / "orders", name="orders")
    amounts = Inbox(spark, tmp_path / "amounts", name="amounts")
    conf = dict([FAST_LOGS]) | {OFFSET_FORMAT: "2", NAMED_SOURCES: "true"}
    pipeline = Pipeline(spark, tmp_path, lambda: orders.stream().union(amounts.stream()), conf)
    orders.put(0, 1)
    amounts.put(100, 101)
    assert pipeline.run() == [(0, [0, 100]), (1, [1, 101])]
    shutil.rmtree(pipeline.checkpoint)

    pipeline.rebuild()

    orders.put(2)
    assert pipeline.run() == [(2, [2])]


def test_a_batch_id_that_was_cut_anew_is_put_back_to_what_was_recorded(files: Pipeline, inbox: Inbox) -> None:
    inbox.put(0, 1, 2)
    files.run()
    for name in ("offsets/2", "commits/2", "sources/0/2"):
        files.storage.delete(name)
    inbox.put(3, 4)
    inbox.per_batch = 3
    with pytest.raises(PySparkException):
        files.run(dying=True)
    assert len(input_files(files.storage, 0, 1, 2)) == 3

    record = files.records()[2]
    plan = [*rebuild.plan_inputs(record, files.storage), rebuild.plan_entry(record)]
    assert rebuild.in_the_way(plan, files.storage) == ("sources/0/2", "offsets/2")
    rebuild.apply(plan, files.storage, replacing=True)

    assert files.run(recording=False) == [(2, [2]), (3, [3, 4])]


def remove(*paths: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        for path in paths:
            target = root / path
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink()

    return damage


def write(path: str, content: bytes) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        (root / path).write_bytes(content)

    return damage


def halve(path: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        content = (root / path).read_bytes()
        (root / path).write_bytes(content[: len(content) // 2])

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], None], Effect | None]] = {
    "nothing": (lambda root: None, None),
    "the newest commit is gone": (remove("commits/4"), None),
    "commits lag by two": (remove("commits/3", "commits/4"), Effect.LOSES),
    "all commits are gone": (remove("commits"), Effect.LOSES),
    "the newest offsets are gone, their commit is not": (remove("offsets/4"), Effect.REPEATS),
    "the offsets before the newest are gone": (remove("offsets/3"), Effect.REFUSES),
    "the same, uncommitted": (remove("offsets/3", "commits/4"), Effect.REFUSES),
    "the newest offsets are empty": (write("offsets/4", b""), Effect.REFUSES),
    "the newest offsets are torn": (halve("offsets/4"), Effect.REFUSES),
    "the newest offsets are zeros": (write("offsets/4", b"\0" * 100), Effect.REFUSES),
    "the offsets before the newest are empty": (write("offsets/3", b""), Effect.REFUSES),
    "old offsets are empty": (write("offsets/0", b""), Effect.NOTHING),
    "the newest commit is empty": (write("commits/4", b""), Effect.REFUSES),
    "the newest commit is torn": (halve("commits/4"), Effect.REFUSES),
    "an old commit is empty": (write("commits/0", b""), Effect.NOTHING),
    "metadata is gone": (remove("metadata"), Effect.REFUSES),
    "metadata is empty": (write("metadata", b""), Effect.REFUSES),
    "the source's log is gone": (remove("sources"), Effect.REFUSES),
    "an entry of the source's log is gone": (remove("sources/0/1"), Effect.REFUSES),
    "an entry of the source's log is torn": (halve("sources/0/4"), Effect.REFUSES),
    "an unknown version of offsets": (write("offsets/4", b'v9\n{}\n{"logOffset":4}'), Effect.REFUSES),
    "an unknown version of commits": (write("commits/4", b"v9\n{}"), Effect.REFUSES),
    "all offsets are gone": (remove("offsets"), Effect.REFUSES),
    "both logs are gone": (remove("offsets", "commits"), Effect.REPEATS),
    "the whole checkpoint is gone": (remove("metadata", "offsets", "commits", "sources"), Effect.REPEATS),
}


@pytest.fixture(scope="module")
def five_batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an inbox and the checkpoint of five done batches."""
    home = tmp_path_factory.mktemp("five")
    inbox = Inbox(spark, home / "in")
    inbox.put(*range(5))
    Pipeline(spark, home, inbox.stream, dict([FAST_LOGS])).run(recording=False)
    inbox.put(5)
    return home


OF_EACH_EFFECT = (
    "nothing",
    "commits lag by two",
    "old offsets are empty",
    "the newest offsets are torn",
    "the newest offsets are gone, their commit is not",
)
"""One damage of each effect; what Spark does to the others is looked at by the slow tests."""


def damaged(five_batches: Path, place: Path, name: str) -> Path:
    shutil.copytree(five_batches / "checkpoint", place, ignore=shutil.ignore_patterns(".*.crc"))
    DAMAGES[name][0](place)
    return place


def test_verify_says_the_effect_of_every_damage_to_a_checkpoint_of_spark(five_batches: Path, tmp_path: Path) -> None:
    found = {
        name: [one.effect for one in verify(LocalStorage(damaged(five_batches, tmp_path / name, name)))]
        for name in DAMAGES
    }
    worst = {name: min(effects, key=list(Effect).index) if effects else None for name, effects in found.items()}
    assert worst == {name: effect for name, (_, effect) in DAMAGES.items()}


@pytest.mark.parametrize(
    "name", [one if one in OF_EACH_EFFECT else pytest.param(one, marks=pytest.mark.slow) for one in DAMAGES]
)
def test_spark_does_to_a_damaged_checkpoint_what_verify_says(
    spark: SparkSession, five_batches: Path, tmp_path: Path, name: str
) -> None:
    expected = DAMAGES[name][1]
    damaged(five_batches, tmp_path / "checkpoint", name)
    pipeline = Pipeline(spark, tmp_path, Inbox(spark, five_batches / "in").stream, dict([FAST_LOGS]))

    found = [problem.effect for problem in verify(pipeline.storage)]
    batches, refused = attempt(pipeline)

    assert (min(found, key=list(Effect).index) if found else None) is expected
    assert observed(batches, refused) in SHAPES[expected], (batches, refused)


def attempt(pipeline: Pipeline) -> tuple[list[tuple[int, list[int]]], bool]:
    try:
        pipeline.run(recording=False)
    except (PySparkException, Py4JJavaError):
        return pipeline.seen, True
    return pipeline.seen, False


def observed(batches: list[tuple[int, list[int]]], refused: bool) -> str:
    if refused:
        return "stopped after repeating" if batches else "refused"
    if batches[0][0] == 0:
        return "started over"
    return {4: "replayed the newest", 5: "went on"}[batches[0][0]]


SHAPES: dict[Effect | None, Any] = {
    None: ("went on", "replayed the newest"),
    Effect.NOTHING: ("went on",),
    Effect.REFUSES: ("refused",),
    Effect.REPEATS: ("started over", "stopped after repeating"),
    Effect.LOSES: ("replayed the newest",),
}


@pytest.mark.parametrize(
    "path",
    ["sources/0/4", *(pytest.param(one, marks=pytest.mark.slow) for one in ("offsets/4", "commits/4", "metadata"))],
)
def test_a_file_edited_under_its_checksum_is_refused_by_spark_and_found_by_verify(
    spark: SparkSession, five_batches: Path, tmp_path: Path, path: str
) -> None:
    shutil.copytree(five_batches / "checkpoint", tmp_path / "checkpoint")
    pipeline = Pipeline(spark, tmp_path, Inbox(spark, five_batches / "in").stream, dict([FAST_LOGS]))
    assert verify(pipeline.storage) == ()
    edited = tmp_path / "checkpoint" / path
    edited.write_bytes(edited.read_bytes() + b" ")

    (problem,) = verify(pipeline.storage)

    assert (problem.path, problem.effect) == (path, Effect.REFUSES)
    assert attempt(pipeline) == ([], True)
