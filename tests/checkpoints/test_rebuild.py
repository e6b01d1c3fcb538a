"""Plans hold exactly what Spark needs to go on, or say what is lacking. That Spark goes on is tested with Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.checkpoints.samples import QUERY, at, epoch_after, file, history, lineage, record_of

from onceonly_checkpoints.epoch import EpochRecord, ReplayedEpochs
from onceonly_checkpoints.model import InputFile, SourceOffsets
from onceonly_checkpoints.spark import logs as filelog
from onceonly_checkpoints.spark import offsets as sparklog
from onceonly_checkpoints.spark.rebuild import (
    CannotRebuild,
    FileToWrite,
    Neighbours,
    plan_entry,
    plan_rebuild,
    with_conf,
)

BEFORE_THE_FIRST = ["sources/0/-1.compact", "sources/0/-11.compact"]
"""Empty files of a short log that fix the interval between compacted files."""

RATE = SourceOffsets.of({"0": '{"offset":30,"timestamp":3000}'})


def texts(plan: list[FileToWrite]) -> dict[str, str]:
    return {each.path: each.text for each in plan}


def one(offsets: SourceOffsets, batch_id: int = 0) -> EpochRecord:
    return record_of(epoch_after(None, offsets, lineage(batch_id)))


def test_a_rebuilt_checkpoint_names_the_old_query_and_its_last_two_batches() -> None:
    found = texts(plan_rebuild(list(history(4)), 4))
    assert sparklog.parse_query_id(found["metadata"]) == QUERY
    assert sparklog.parse_offsets(found["offsets/3"]).offsets == at(3)
    assert sparklog.parse_offsets(found["offsets/2"]).offsets == at(2)
    assert sparklog.parse_commit(found["commits/3"]).next_watermark_ms == 43
    assert [path for path in found if path.startswith(("offsets", "commits"))] == [
        "offsets/2",
        "commits/3",
        "offsets/3",
    ]


def test_each_entry_keeps_the_clock_and_the_watermark_of_its_batch() -> None:
    found = texts(plan_rebuild(list(history(4)), 4))
    entries = [sparklog.parse_offsets(found[f"offsets/{number}"]) for number in (2, 3)]
    assert [entry.watermark_ms for entry in entries] == [42, 43]
    assert [entry.batch_timestamp_ms for entry in entries] == [1_700_000_000_002, 1_700_000_000_003]


def test_the_query_id_comes_last_so_that_half_a_checkpoint_cannot_be_started() -> None:
    assert plan_rebuild(list(history(4)), 4)[-1].path == "metadata"


def test_after_the_first_batch_there_is_no_entry_before_it() -> None:
    found = texts(plan_rebuild(list(history(1)), 1))
    assert sorted(found) == ["commits/0", "metadata", "offsets/0", *BEFORE_THE_FIRST, "sources/0/0"]


def test_a_batch_that_a_sink_lacks_is_not_said_to_be_done() -> None:
    found = texts(plan_rebuild(list(history(4)), 4, repeat_last=True))
    assert [path for path in found if path.startswith(("offsets", "commits"))] == ["offsets/2", "offsets/3"]


def test_an_earlier_epoch_can_be_chosen() -> None:
    found = texts(plan_rebuild(list(history(9)), 4))
    assert sorted(found) == [
        "commits/3", "metadata", "offsets/2", "offsets/3",
        *BEFORE_THE_FIRST, *(f"sources/0/{number}" for number in range(4)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("batches", "names"),
    [
        (1, ["-11.compact", "-1.compact", "0"]),
        (9, ["-11.compact", "-1.compact", *(str(number) for number in range(9))]),
        (10, ["-1.compact", "9.compact"]),
        (14, ["-1.compact", "9.compact", "10", "11", "12", "13"]),
        (19, ["-1.compact", "9.compact", *(str(number) for number in range(10, 19))]),
        (20, ["9.compact", "19.compact"]),
        (23, ["9.compact", "19.compact", "20", "21", "22"]),
        (45, ["29.compact", "39.compact", "40", "41", "42", "43", "44"]),
    ],
)
def test_the_log_of_a_file_source_is_laid_out_so_that_spark_finds_it(batches: int, names: list[str]) -> None:
    found = texts(plan_rebuild(list(history(batches)), batches))
    logs = {path.removeprefix("sources/0/"): text for path, text in found.items() if path.startswith("sources/")}
    assert list(logs) == names
    for name, text in logs.items():
        number = int(name.removesuffix(filelog.COMPACT))
        expected = [file(each) for each in (range(number + 1) if name.endswith(filelog.COMPACT) else [number])]
        assert list(filelog.parse_files(text, "0", name)) == expected


def test_files_that_only_the_damaged_checkpoint_still_holds_are_taken_from_it() -> None:
    records = [replace(record, files=()) if record.epoch.number == 2 else record for record in history(4)]
    with pytest.raises(CannotRebuild, match="1 of 4"):
        plan_rebuild(records, 4)
    found = texts(plan_rebuild(records, 4, logged_files=[file(number) for number in range(4)]))
    assert list(filelog.parse_files(found["sources/0/1"], "0", "x")) == [file(1)]


def test_what_the_ledger_recorded_goes_before_what_the_checkpoint_holds() -> None:
    forged = InputFile("file:/in/forged.csv", 1, 1, "0")
    found = texts(plan_rebuild(list(history(3)), 3, logged_files=[forged]))
    assert ("part%201.csv" in found["sources/0/1"], "forged" in found["sources/0/1"]) == (True, False)


def test_a_slice_that_took_in_several_log_offsets_is_enough() -> None:
    record = record_of(epoch_after(None, at(2), lineage(0)), [file(0), file(1), file(2)])
    found = texts(plan_rebuild([record], 1))
    entries = [path for path in found if path.startswith("sources/") and path not in BEFORE_THE_FIRST]
    assert entries == ["sources/0/0", "sources/0/1", "sources/0/2"]


def test_files_of_another_lineage_are_not_mixed_in() -> None:
    first = list(history(2))
    second = epoch_after(first[-1].epoch, at(0), lineage(0, "another-query"))
    other = InputFile("file:/in/other.csv", 9, 0, "0")
    found = texts(plan_rebuild([*first, record_of(second, [other])], 3))
    assert sparklog.parse_query_id(found["metadata"]) == "another-query"
    assert list(filelog.parse_files(found["sources/0/0"], "0", "x")) == [other]


def rerun_of(records: Iterable[EpochRecord]) -> list[EpochRecord]:
    """The same batches run again, each under a query id of its own."""
    ran: list[EpochRecord] = []
    for each in records:
        batch = replace(
            lineage(each.epoch.lineage.batch_id if each.epoch.lineage else 0), query_id=f"replay-{len(ran)}"
        )
        of = ReplayedEpochs("orders", each.epoch.number, each.epoch.number, each.epoch.chain)
        epoch = replace(epoch_after(ran[-1].epoch if ran else None, each.epoch.written.end, batch), replays=of)
        ran.append(replace(each, pipeline="orders~v2", epoch=epoch))
    return ran


def test_a_query_goes_on_from_a_rerun_whose_batches_had_query_ids_of_their_own() -> None:
    ran = rerun_of(history(3))
    found = texts(plan_rebuild(ran, 3))
    assert sparklog.parse_query_id(found["metadata"]) == "replay-2"
    assert [found[f"sources/0/{number}"] for number in range(3)] == [
        texts(plan_rebuild(list(history(3)), 3))[f"sources/0/{number}"] for number in range(3)
    ]
    onward = record_of(epoch_after(ran[-1].epoch, at(3), lineage(3, "replay-2")), [file(3)], "orders~v2")
    assert texts(plan_rebuild([*ran, onward], 4)).keys() >= {f"sources/0/{number}" for number in range(4)}


def test_a_rerun_that_begins_in_the_middle_has_no_whole_log() -> None:
    ran = rerun_of(list(history(4))[2:])
    with pytest.raises(CannotRebuild, match="2 of 4 log entries"):
        plan_rebuild(ran, 2)


def test_a_rerun_of_two_logs_is_gone_on_from_by_the_second() -> None:
    first, second = list(history(2)), list(history(3))
    ran = rerun_of([*first, *second])
    renewed = replace(ran[2].epoch, written=replace(ran[2].epoch.written, start=at(None)))
    ran[2] = replace(ran[2], epoch=renewed, files=(InputFile("file:///another/log.csv", 1, 0, "0"),))
    entry = texts(plan_rebuild(ran, 5))["sources/0/0"]
    assert "another/log.csv" in entry
    assert file(0).path not in entry


def test_sources_without_files_need_no_log() -> None:
    assert sorted(texts(plan_rebuild([one(RATE)], 1))) == ["commits/0", "metadata", "offsets/0"]


def test_a_source_without_an_offset_keeps_its_place() -> None:
    offsets = SourceOffsets.of({"0": None, "1": '{"offset":3}'})
    text = texts(plan_rebuild([one(offsets)], 1))["offsets/0"]
    assert text.startswith("v1\n")
    assert sparklog.parse_offsets(text).offsets == offsets


def test_sources_under_names_are_written_by_name_with_the_setting_that_makes_spark_look_for_names() -> None:
    offsets = SourceOffsets.of({"amounts": None, "orders": '{"offset":3}'})
    text = texts(plan_rebuild([one(offsets)], 1))["offsets/0"]
    entry = sparklog.parse_offsets(text)
    assert entry.version == 2
    assert entry.offsets.entries == (("orders", '{"offset":3}'),)
    assert dict(entry.conf) == {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.shuffle.partitions": "200",
    }


def test_after_an_adoption_spark_goes_on_from_the_adopted_position() -> None:
    first = one(RATE, batch_id=5)
    moved = SourceOffsets.of({"0": '{"offset":90,"timestamp":9000}'})
    adopted = record_of(epoch_after(first.epoch, moved, None))
    found = texts(plan_rebuild([first, adopted], 2))
    assert sparklog.parse_offsets(found["offsets/5"]).offsets == moved
    assert "commits/5" in found


@pytest.mark.parametrize("epoch", [0, 5, 99])
def test_an_epoch_that_is_not_recorded_is_refused(epoch: int) -> None:
    with pytest.raises(CannotRebuild, match=f"no epoch {epoch}") as error:
        plan_rebuild(list(history(4)), epoch)
    assert "onceonly" in error.value.next


def test_a_history_of_adoptions_only_has_no_batch_to_go_on_from() -> None:
    adopted = record_of(epoch_after(None, RATE, None))
    with pytest.raises(CannotRebuild, match="no batch"):
        plan_rebuild([adopted], 1)
    with pytest.raises(CannotRebuild, match="no batch"):
        plan_entry(adopted)


@pytest.mark.parametrize("offset", ["42", "-1"])
def test_a_source_that_counts_from_a_lost_start_is_refused(offset: str) -> None:
    with pytest.raises(CannotRebuild, match="source 0 counts from a start"):
        plan_rebuild([one(SourceOffsets.of({"0": offset}))], 1)


def test_the_entry_of_one_batch_is_written_with_nothing_newer_beside_it() -> None:
    plan = plan_entry(list(history(4))[2])
    assert (plan.path, plan.neighbours) == ("offsets/2", Neighbours.NONE_NEWER)
    entry = sparklog.parse_offsets(plan.text)
    assert (entry.offsets, entry.watermark_ms) == (at(2), 42)


def test_settings_are_added_to_entries_of_the_offset_log_only() -> None:
    entry, metadata = plan_entry(next(iter(history(1)))), FileToWrite("metadata", "{}")
    dressed = with_conf(entry, {"spark.sql.shuffle.partitions": "7"})
    assert sparklog.parse_offsets(dressed.text).conf == (("spark.sql.shuffle.partitions", "7"),)
    assert sparklog.parse_offsets(dressed.text).offsets == at(0)
    assert with_conf(metadata, {"a": "b"}) == metadata


def test_file_names_beyond_ascii_survive() -> None:
    odd = InputFile("file:///in/größe \u2028 %20.csv", 5, 0, "0")
    record = record_of(epoch_after(None, at(0), lineage(0)), [odd])
    text = texts(plan_rebuild([record], 1))["sources/0/0"]
    assert list(filelog.parse_files(text, "0", "x")) == [odd]
    assert json.loads(text.split("\n")[1])["path"] == odd.path


def test_every_entry_of_the_offset_log_that_is_written_says_how_many_partitions_a_shuffle_has() -> None:
    records = list(history(3))
    for written in (plan_entry(records[1]), *plan_rebuild(records, 3)):
        if written.path.startswith("offsets/"):
            assert dict(sparklog.parse_offsets(written.text).conf) == {"spark.sql.shuffle.partitions": "200"}
