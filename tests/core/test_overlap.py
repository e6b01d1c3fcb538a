"""What ``overlap="trim"`` leaves out, and everything that it refuses because a row's position is not proven."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.several import Crash, crash
from tests.core.stories import FROM_THE_LEDGER, SOURCES, adoption, at, batch, cut, epochs, lineage, offer, recorded

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.comparison import decide_batch
from onceonly.machine.facts import BatchFacts, NeedsInputFiles, NewEpoch, Offer, Refusal, Skip
from onceonly.machine.overlap import held_files, repeats, unfit
from onceonly.machine.source_order import kafka_identity
from onceonly.machine.state import Job, State
from onceonly.protocol.batch import ArrowBatch, FileTrim, OffsetTrim, RecordedInputFiles, Span, plain
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import InputFile, Slice, SourceIdentity, SourceOffsets
from onceonly_sinks.memory import MemorySink, MemoryStore

ONE, TWO, THREE = epochs(10, 20, 30)


def trimming(last: Epoch, offered: Offer, descent: tuple[Epoch, ...] = (), **options: object) -> BatchFacts:
    return batch(last, offered, descent, overlap="trim", **options)


def refused(decision: object, code: str) -> str:
    """The text of a refusal that must have a code."""
    assert isinstance(decision, Refusal), decision
    said = refuse(decision.code, **{**FROM_THE_LEDGER, **dict(decision.details)})
    assert said.code == code, said
    return str(said)


def new_epoch(decision: object) -> NewEpoch:
    assert isinstance(decision, NewEpoch), decision
    return decision


# ---- files: whether a batch comes again


def test_whether_a_batch_of_files_comes_again_is_known_by_lists_or_by_the_hash_of_one_or_not_at_all() -> None:
    file = {name: InputFile(f"file:/in/{name}", 7, 0) for name in ("a", "b", "c", "d")}

    def epoch(number: int, *names: str, listed: bool) -> EpochRecord:
        files = [file[name] for name in names]
        sources = (SourceIdentity("0", "files:FileStreamSource[file:/in]", chain.inputs(files)),)
        record = recorded(replace((ONE, TWO)[number - 1], sources=sources))
        return replace(record, files=tuple(files) if listed else ())

    listed = [epoch(1, "a", "b", listed=True), epoch(2, "c", listed=True)]
    lost = [epoch(1, "a", "b", listed=False), epoch(2, "c", listed=False)]
    decided = recorded(adoption(TWO, "accept-loss", at(20)))
    plain_ = [recorded(ONE)]  # of a source that has no files
    told = {
        "a listed file": (listed, "bd", True),
        "no listed file": (listed, "d", False),
        "beside a decision": ([*listed, decided], "d", False),
        "all of an epoch, by its hash": (lost, "ab", True),
        "a part of one": (lost, "a", None),
        "more than one": (lost, "abc", None),
        "another file": (lost, "d", None),
        "one list is lost": ([listed[0], lost[1]], "d", None),
        "no files at all": (listed, "", None),
        "epochs without files": (plain_, "d", None),
    }
    found = {
        what: (records, names, repeats(records, [file[name] for name in names]))
        for what, (records, names, _) in told.items()
    }
    assert found == told


# ---- Kafka: positions are offsets


def test_a_new_checkpoint_is_written_from_the_last_end_on():
    decision = new_epoch(decide_batch(trimming(TWO, offer(cut(None, 35), 0, "q2", begins=at(0)))))
    assert decision.number == 3
    assert decision.written == cut(20, 35)
    assert decision.trim == OffsetTrim((Span("events", 0, first=0, fresh=20, end=35),))
    assert "20 of 35 offsets" in decision.happenings[0].reason
    assert decision.happenings[0].kind is EventKind.TRIMMED


def test_a_batch_that_lies_wholly_in_recorded_epochs_leaves_the_position_where_it_is():
    decision = new_epoch(decide_batch(trimming(TWO, offer(cut(None, 15), 0, "q2", begins=at(0)))))
    assert decision.written == cut(20, 20)


def test_without_the_option_an_overlap_still_stops_and_names_it():
    said = refused(decide_batch(batch(TWO, offer(cut(None, 35), 0, "q2", begins=at(0)))), "E203")
    assert 'overlap="trim")), where the rows still have .selectExpr("topic", "partition", "offset", ...)' in said


def test_a_stateful_query_is_never_trimmed_and_never_told_to_be():
    offered = offer(cut(15, 35), 5, stateful=True)
    assert "keeps state" in refused(decide_batch(trimming(TWO, offered)), "E220")
    assert "trim" not in refused(decide_batch(batch(TWO, offered)), "E203")


def test_a_stateful_query_on_a_new_checkpoint_has_lost_its_state():
    assert refused(decide_batch(trimming(TWO, offer(cut(None, 35), 0, "q2", stateful=True, begins=at(0)))), "E206")


def test_a_gap_is_never_trimmed():
    assert refused(decide_batch(trimming(TWO, offer(cut(None, 35), 0, "q2", begins=at(25)))), "E204")


def test_a_checkpoint_that_begins_where_a_loss_was_given_up_to_is_written_from_there_on():
    given_up = Slice(TWO.written.end, at(25))
    lost = adoption(TWO, "accept-loss", at(25), first=3, last=3, offsets=given_up)
    decision = new_epoch(decide_batch(batch(lost, offer(cut(None, 35), 0, "q2", begins=at(25)))))
    assert (decision.number, decision.written) == (4, cut(25, 35))
    assert new_epoch(decide_batch(batch(lost, offer(cut(25, 35), 2)))).written is None
    assert refused(decide_batch(trimming(TWO, offer(cut(25, 35), 2))), "E204")


def test_a_source_that_does_not_say_where_it_began_is_not_trimmed():
    assert "not known where" in refused(decide_batch(trimming(TWO, offer(cut(None, 35), 0, "q2"))), "E220")


@pytest.mark.parametrize("known", [None, "reservoir"], ids=["none", "another kind"])
def test_a_source_whose_identity_is_not_proven_is_not_trimmed(known):
    last = replace(TWO, sources=(SourceIdentity("0", known),))
    offered = offer(cut(None, 35), 0, "q2", begins=at(0), sources=(SourceIdentity("0", known),))
    assert refused(decide_batch(trimming(last, offered)), "E220")


def test_a_topic_that_was_made_anew_is_another_source():
    other = (SourceIdentity("0", kafka_identity("cluster", {"events": "id-2"})),)
    assert refused(decide_batch(trimming(TWO, offer(cut(None, 35), 0, "q2", begins=at(0), sources=other))), "E212")


def test_brokers_that_could_not_be_asked_once_do_not_stop_a_query_that_goes_on():
    unknown = chain.linked(replace(TWO, sources=(SourceIdentity("0", None),)))
    assert new_epoch(decide_batch(batch(unknown, offer(cut(20, 30), 2)))).trim is None
    assert isinstance(decide_batch(batch(unknown, offer(TWO.written, 1), descent=(unknown,))), Skip)


def test_a_new_checkpoint_that_begins_exactly_at_the_last_end_needs_no_option():
    decision = new_epoch(decide_batch(batch(TWO, offer(cut(None, 30), 0, "q2", begins=at(20)))))
    assert (decision.written, decision.trim) == (cut(20, 30), None)


def partitions(**found: int) -> SourceOffsets:
    numbers = ",".join(f'"{name[1:]}":{offset}' for name, offset in found.items())
    return SourceOffsets.of({"0": f'{{"events":{{{numbers}}}}}'})


def last_at(end: SourceOffsets) -> Epoch:
    slice_ = Slice(ONE.written.start, end)
    return chain.linked(replace(ONE, written=slice_))


def several(start: SourceOffsets, end: SourceOffsets) -> Offer:
    return offer(Slice(at(None), end), 0, "q2", begins=start)


def test_each_partition_is_cut_at_its_own_end_and_none_goes_back():
    last = last_at(partitions(p0=10, p1=50))
    decision = new_epoch(decide_batch(trimming(last, several(partitions(p0=0, p1=0), partitions(p0=20, p1=20)))))
    assert decision.written == Slice(last.written.end, partitions(p0=20, p1=50))
    assert decision.trim == OffsetTrim((Span("events", 0, 0, 10, 20), Span("events", 1, 0, 50, 20)))


def test_a_partition_that_is_new_is_written_whole():
    last = last_at(partitions(p0=10))
    decision = new_epoch(decide_batch(trimming(last, several(partitions(p0=0, p1=0), partitions(p0=20, p1=7)))))
    assert decision.trim == OffsetTrim((Span("events", 0, 0, 10, 20), Span("events", 1, 0, 0, 7)))


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (partitions(p0=0), partitions(p0=20), "partition 1 of events is not read any more"),
        (partitions(p0=0), partitions(p0=20, p1=20), "not known where partition 1"),
        (partitions(p0=0, p1=0, p2=4), partitions(p0=20, p1=20, p2=9), "partition 2 of events starts at 4"),
    ],
    ids=["gone", "unknown start", "new and begun"],
)
def test_partitions_that_do_not_fit_are_not_trimmed(start, end, words):
    last = last_at(partitions(p0=10, p1=10))
    assert words in refused(decide_batch(trimming(last, several(start, end))), "E220")


def test_a_batch_id_that_comes_back_for_another_range_is_trimmed_by_position():
    decision = new_epoch(decide_batch(trimming(TWO, offer(cut(10, 25), 1), descent=(TWO,))))
    assert (decision.number, decision.written) == (3, cut(20, 25))


def test_a_replay_of_a_trimmed_epoch_is_a_proven_skip():
    offered = offer(cut(None, 35), 0, "q2", begins=at(0))
    slice_ = cut(20, 35)
    third = chain.linked(replace(THREE, written=slice_, offered=offered.slice, lineage=offered.lineage))
    assert decide_batch(trimming(third, offered, descent=(third,))) == Skip(third, execute=False)


def test_rows_are_kept_by_offset_and_a_strange_one_is_an_error():
    trim = OffsetTrim((Span("t", 0, 5, 10, 15), Span("t", 1, 0, 0, 3)))
    kept = [trim.keeps({"topic": "t", "partition": 0, "offset": offset}) for offset in (5, 9, 10, 14)]
    assert kept == [False, False, True, True]
    for topic, partition, offset in (("t", 0, 4), ("t", 0, 15), ("t", 2, 0), ("u", 0, 5)):
        with pytest.raises(ValueError, match="not in this batch"):
            trim.keeps({"topic": topic, "partition": partition, "offset": offset})


# ---- files: positions are paths

FILES = "files:FileStreamSource[file:/in]"


def file(number: int, log_offset: int | None = None) -> InputFile:
    return InputFile(f"file:///in/{number}.csv", 1000 + number, number if log_offset is None else log_offset)


def log(number: int | None) -> SourceOffsets:
    return SourceOffsets.of({"0": None if number is None else f'{{"logOffset":{number}}}'})


def of_files(*files: InputFile) -> tuple[SourceIdentity, ...]:
    return (SourceIdentity("0", FILES, chain.inputs(files)),)


def history(*numbers: int) -> list[EpochRecord]:
    """One epoch per file, as the ledger has them."""
    found: list[EpochRecord] = []
    for number in numbers:
        previous = found[-1].epoch if found else None
        slice_ = Slice(previous.written.end if previous else log(None), log(number))
        before = previous.chain if previous else chain.GENESIS
        epoch = replace(
            ONE,
            number=len(found) + 1,
            written=slice_,
            previous_chain=before,
            lineage=lineage(number),
            sources=of_files(file(number)),
        )
        found.append(replace(recorded(chain.linked(epoch)), files=(file(number),)))
    return found


RECORDS = history(0, 1, 2)
LAST = RECORDS[-1].epoch


def offered_files(*files: InputFile, **options: object) -> Offer:
    made = offer(Slice(log(None), log(0)), 0, "q2", sources=of_files(*files), files=files, earlier=())
    return replace(made, **options)  # type: ignore[arg-type]


def told(records: list[EpochRecord] = RECORDS) -> RecordedInputFiles:
    return held_files(records, records[-1].epoch)


def test_files_of_recorded_epochs_are_looked_up_only_when_a_batch_may_hold_them():
    assert isinstance(decide_batch(trimming(LAST, offered_files(file(0)))), NeedsInputFiles)
    plainly_next = offer(Slice(log(2), log(3)), 3, sources=of_files(file(3)), files=(file(3),))
    assert decide_batch(trimming(LAST, plainly_next)) == NewEpoch(4)


def test_a_new_checkpoint_writes_the_files_that_no_epoch_holds():
    offered = offered_files(file(1), file(2), file(3))
    decision = new_epoch(decide_batch(trimming(LAST, offered, held=told())))
    assert decision.written == Slice(LAST.written.end, log(0))
    assert decision.trim == FileTrim(("file:/in/1.csv", "file:/in/2.csv"), ("file:/in/3.csv",))
    assert "2 of 3 input files" in decision.happenings[0].reason


def test_a_file_that_was_handed_to_nobody_is_a_gap():
    offered = offered_files(file(4), slice=Slice(log(0), log(1)), earlier=(file(3),))
    assert refused(decide_batch(trimming(LAST, offered, held=told())), "E211")
    known = replace(offered, earlier=(file(1),))
    assert new_epoch(decide_batch(trimming(LAST, known, held=told()))).trim == FileTrim((), ("file:/in/4.csv",))


def test_a_file_that_was_changed_since_is_not_proven():
    touched = replace(file(1), modified_ms=9)
    assert "was changed" in refused(decide_batch(trimming(LAST, offered_files(touched), held=told())), "E220")


def test_a_file_that_is_gone_matters_only_if_it_is_to_be_written():
    offered = offered_files(file(1), file(3), missing=(file(1).path,))
    assert new_epoch(decide_batch(trimming(LAST, offered, held=told())))
    assert refused(decide_batch(trimming(LAST, replace(offered, missing=(file(3).path,)), held=told())), "E214")


def trimmed_before() -> Epoch:
    """The epoch with which a new checkpoint began, one of whose files was held already."""
    slice_, planned = Slice(LAST.written.end, log(0)), Slice(log(None), log(0))
    changes = {"written": slice_, "offered": planned, "previous_chain": LAST.chain}
    return chain.linked(replace(LAST, number=4, lineage=lineage(0, "q2"), sources=of_files(file(0)), **changes))


def next_of(last: Epoch, *files: InputFile) -> Offer:
    return offer(Slice(last.written.end, log(1)), 1, "q2", sources=of_files(*files), files=files)


def test_after_a_trimmed_epoch_every_batch_of_its_checkpoint_is_compared_by_file():
    last = trimmed_before()
    assert isinstance(decide_batch(batch(last, next_of(last, file(1)))), NeedsInputFiles)
    said = refused(decide_batch(batch(last, next_of(last, file(1)), held=told())), "E203")
    assert "files that epochs before it hold" in said
    decision = new_epoch(decide_batch(trimming(last, next_of(last, file(1)), held=told())))
    assert decision.trim == FileTrim(("file:/in/1.csv",), ())


def test_after_a_trimmed_epoch_a_batch_of_new_files_goes_on_without_the_option_and_stays_marked():
    last = trimmed_before()
    offered = next_of(last, file(7))
    assert decide_batch(batch(last, offered, held=told())) == NewEpoch(5, (), offered.slice)


def test_a_checkpoint_that_has_handed_out_all_that_epochs_hold_goes_on_by_its_own_count_again():
    last = trimmed_before()
    for earlier, plainly in (((0, 1, 2), True), ((0, 1), False)):
        offered = replace(next_of(last, file(7)), earlier=tuple(map(file, earlier)))
        slice_ = None if plainly else offered.slice
        assert decide_batch(trimming(last, offered, held=told())) == NewEpoch(5, (), slice_)
    caught_up = chain.linked(replace(last, number=5, offered=None))
    bare = held_files([], LAST)  # all records were pruned
    assert decide_batch(trimming(caught_up, next_of(caught_up, file(8)), held=bare)) == NewEpoch(6)


def test_after_a_trimmed_epoch_a_ledger_without_file_lists_stops_the_query_until_an_operator_speaks():
    last = trimmed_before()
    offered = next_of(last, file(7))
    bare = held_files([replace(record, files=()) for record in RECORDS], LAST)
    assert "no file list of epoch 1" in refused(decide_batch(batch(last, offered, held=bare)), "E220")
    moved = adoption(last, "continue", last.written.end)
    assert decide_batch(batch(moved, offered, held=bare)) == NewEpoch(6)


def test_file_lists_prove_something_only_if_they_are_whole():
    assert told().lacking == ""
    assert set(told().files) == {f"file:/in/{number}.csv" for number in range(3)}
    assert "does not hold every epoch" in held_files(RECORDS[1:], LAST).lacking
    assert "does not hold every epoch" in held_files(RECORDS[:2], LAST).lacking
    other = replace(RECORDS[1], files=(file(9),))
    assert "epoch 2" in held_files([RECORDS[0], other, RECORDS[2]], LAST).lacking


@pytest.mark.parametrize(
    ("why", "to", "whole"),
    [
        ("accept-loss", 9, False),
        ("start", 9, False),
        ("accept-loss", 2, True),
        ("accept-duplicates", 0, True),
        ("continue", 9, True),
    ],
)
def test_an_adoption_that_moved_past_files_leaves_them_unknown(why, to, whole):
    moved = adoption(LAST, why, log(to))
    assert (held_files([*RECORDS, recorded(moved)], moved).lacking == "") is whole


def test_a_pipeline_that_was_begun_in_the_middle_of_its_source_knows_not_all_files():
    [record] = history(5)
    slice_ = Slice(log(4), log(5))
    begun = chain.linked(replace(record.epoch, written=slice_))
    assert "in the middle" in held_files([replace(record, epoch=begun)], begun).lacking


def test_paths_are_spelled_as_rows_spell_them():
    assert plain("file:///in/a%20b.csv") == "file:/in/a%20b.csv"
    assert plain("s3a://bucket/a///b.csv") == "s3a://bucket/a///b.csv"


def test_rows_are_kept_by_file_and_a_strange_one_is_an_error():
    trim = FileTrim(("file:/in/1.csv",), ("file:/in/2.csv",))
    assert [trim.keeps({"file_path": f"file:///in/{number}.csv"}) for number in (1, 2)] == [False, True]
    with pytest.raises(ValueError, match="not in this batch"):
        trim.keeps({"file_path": "file:/in/3.csv"})


# ---- what can never be trimmed


COLUMNS = {"topic": "string", "partition": "int", "offset": "bigint", "file_path": "string"}


@pytest.mark.parametrize(
    ("sources", "columns", "stateful", "words"),
    [
        (SOURCES, COLUMNS, True, "keeps state"),
        (SOURCES * 2, COLUMNS, False, "2 sources"),
        ((SourceIdentity("0", None),), COLUMNS, False, "have no position"),
        (SOURCES, {**COLUMNS, "offset": "string"}, False, "lack offset bigint"),
        (of_files(), {"id": "bigint"}, False, "lack file_path string"),
        (SOURCES, COLUMNS, False, ""),
        (of_files(), COLUMNS, False, ""),
    ],
)
def test_a_query_that_can_never_be_trimmed_is_told_why(sources, columns, stateful, words):
    reason = unfit(sources, columns, stateful=stateful)
    assert words in reason
    assert bool(words) == bool(reason)


# ---- the whole machine, on memory sinks


class Pipeline:
    """A Kafka pipeline into memory sinks; each call of ``drive`` is a start of the query."""

    def __init__(self, root: Path, *names: str) -> None:
        self.root, self.stores = root, {name: MemoryStore() for name in names}
        self.ledger = SqlLedger(str(root / "ledger.db"))

    def sinks(self) -> list[MemorySink]:
        made = [MemorySink(f"memory:{name}", store) for name, store in self.stores.items()]
        for sink in made:
            sink.open("orders")
        return made

    def drive(self, offered: Offer, first: int, end: int) -> State:
        sinks = self.sinks()
        runner = Runner(sinks, self.ledger, staging=StagedEpochs(str(self.root / "staging"), "orders", sinks))
        ids = tuple(sink.id for sink in sinks)
        state = coordinator.start(Job("orders", ids, secrets.token_hex(4), offered, overlap="trim"))
        return runner.run(state, ArrowBatch(rows(first, end)))

    def offsets(self) -> list[list[int]]:
        return [sorted(row["offset"] for row in sink.rows()) for sink in self.sinks()]


def rows(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    partition = pa.array([0] * len(numbers), pa.int32())
    return pa.table({"topic": ["events"] * len(numbers), "partition": partition, "offset": numbers})


@pytest.fixture(params=[("a",), ("a", "b", "c")], ids=["one sink", "three sinks"])
def pipeline(request, tmp_path: Path):
    yield Pipeline(tmp_path, *request.param)
    faults.disarm()


AGAIN = offer(cut(None, 35), 0, "q2", begins=at(0))


def test_every_row_is_in_every_sink_once_and_marker_and_ledger_say_what_was_offered(pipeline):
    pipeline.drive(offer(cut(None, 20), 0), 0, 20)
    pipeline.drive(AGAIN, 0, 35)
    assert all(found == list(range(35)) for found in pipeline.offsets())
    for sink in pipeline.sinks():
        first, second = (marker.epoch for marker, _ in sink.history())
        assert (first.offered, second.offered) == (None, AGAIN.slice)
        assert (second.written, second.digest.rows) == (cut(20, 35), 15)
        assert chain.first_break([first, second]) is None
    assert [record.epoch.offered for record in pipeline.ledger.epochs("orders")] == [None, AGAIN.slice]
    kinds = [event.kind for event in pipeline.ledger.events("orders")]
    assert kinds.count(EventKind.TRIMMED) == 1


@pytest.mark.parametrize(
    "point",
    [Point.INTEND_AFTER, Point.PREPARE_AFTER, Point.COMMIT_BEFORE, Point.COMMIT_AFTER, Point.RECORD_BEFORE],
    ids=str,
)
def test_a_crash_anywhere_in_a_trimmed_epoch_is_healed_by_the_next_start(pipeline, point):
    pipeline.drive(offer(cut(None, 20), 0), 0, 20)
    faults.arm(point, crash)
    with pytest.raises(Crash):
        pipeline.drive(AGAIN, 0, 35)
    faults.disarm()
    pipeline.drive(AGAIN, 0, 35)
    assert all(found == list(range(35)) for found in pipeline.offsets())
    assert len(pipeline.ledger.epochs("orders")) == 2


def test_a_checkpoint_that_catches_up_in_small_batches_doubles_nothing(pipeline):
    pipeline.drive(offer(cut(None, 20), 0), 0, 20)
    pipeline.drive(offer(cut(None, 8), 0, "q2", begins=at(0)), 0, 8)
    for number, first in enumerate(range(8, 32, 8), start=1):
        pipeline.drive(offer(cut(first, first + 8), number, "q2"), first, first + 8)
    assert all(found == list(range(32)) for found in pipeline.offsets())


def test_a_trimmed_epoch_whose_bytes_are_gone_is_refused_and_its_whole_batch_reaches_no_sink(tmp_path):
    pipeline = Pipeline(tmp_path, "a", "b")
    pipeline.drive(offer(cut(None, 20), 0), 0, 20)
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        pipeline.drive(AGAIN, 0, 35)
    faults.disarm()
    for manifest in (tmp_path / "staging").glob("*/*/manifest.json"):
        manifest.unlink()
    with pytest.raises(OnceOnlyError, match="of which a part had been left out") as caught:
        pipeline.drive(AGAIN, 0, 35)
    assert caught.value.code == "E219"
    assert [len(found) for found in pipeline.offsets()] == [35, 20]


def test_adopt_with_offsets_goes_on_where_a_kafka_source_says_that_it_begins():
    begun = offer(cut(None, 50), 0, begins=at(40))
    assert isinstance(decide_batch(batch(None, begun, adopt=at(40))), NewEpoch)
    assert refused(decide_batch(batch(None, begun, adopt=at(39))), "E218")
