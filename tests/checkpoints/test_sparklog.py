"""Spark's files are read to the letter or refused by name."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoints.samples import QUERY, at, commit_text, offsets_text, write_checkpoint

from onceonly_checkpoints.model import SourceOffsets
from onceonly_checkpoints.spark import offsets
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint
from onceonly_checkpoints.storage import LocalStorage

KAFKA = '{"events":{"0":1200,"1":7}}'


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def kind(error: pytest.ExceptionInfo[UnreadableCheckpoint]) -> tuple[str, str]:
    return error.value.path, error.value.kind


def test_version_1_lists_sources_by_position() -> None:
    entry = offsets.parse_offsets(offsets_text(KAFKA, "-", "42", watermark=5, timestamp=9))
    assert entry.offsets.entries == (("0", '{"events":{"0":1200,"1":7}}'), ("1", None), ("2", "42"))
    assert (entry.version, entry.watermark_ms, entry.batch_timestamp_ms) == (1, 5, 9)
    assert entry.conf == (("a", "1"), ("b", "2"))


def test_version_2_lists_sources_by_id_in_no_order() -> None:
    text = offsets_text('orders:{"a:b":1}', 'amounts:{"logOffset":3}', version="v2")
    entry = offsets.parse_offsets(text)
    assert entry.offsets.entries == (("amounts", '{"logOffset":3}'), ("orders", '{"a:b":1}'))


def test_version_2_positions_are_ordered_as_numbers() -> None:
    entry = offsets.parse_offsets(offsets_text("10:1", "2:1", "0:-", version="v2"))
    assert entry.offsets.entries == (("0", None), ("2", "1"), ("10", "1"))


def test_an_old_entry_without_a_metadata_line_has_no_clock() -> None:
    entry = offsets.parse_offsets('v1\n\n{"logOffset":0}')
    assert (entry.batch_timestamp_ms, entry.watermark_ms, entry.conf) == (0, 0, ())


def test_settings_that_a_newer_spark_adds_do_no_harm() -> None:
    entry = offsets.parse_offsets('v1\n{"batchTimestampMs":3,"somethingNew":{"x":[1]}}\n1')
    assert entry.batch_timestamp_ms == 3


def test_a_line_separator_inside_an_offset_is_not_a_line_end() -> None:
    assert offsets.parse_offsets(offsets_text('{"file":"a\u2028b"}')).offsets.entries[0][1] == '{"file":"a\u2028b"}'


def test_lines_may_end_as_windows_ends_them() -> None:
    assert offsets.parse_offsets(offsets_text("5", "6").replace("\n", "\r\n")).offsets.entries[1] == ("1", "6")


DAMAGED = {
    "empty": ("", "empty"),
    "blank": ("\n \n", "empty"),
    "zeros, as a power loss leaves them": ("\0" * 40, "torn"),
    "no version line": ('{"batchTimestampMs":1}\n{}', "torn"),
    "only the version": ("v1", "torn"),
    "no offsets": ('v1\n{"batchTimestampMs":1}', "torn"),
    "a metadata line cut off": ('v1\n{"batchTimest', "torn"),
    "a metadata line cut off, with offsets": ('v1\n{"batchTimest\n5', "torn"),
    "a metadata line that is no object": ("v1\n[]\n5", "torn"),
    "a clock that is no number": ('v1\n{"batchTimestampMs":"x"}\n5', "torn"),
    "an offset cut off": ('v1\n{}\n{"events":{"0":12', "torn"),
    "an empty offset": ("v1\n{}\n5\n", "torn"),
    "a later version": ("v3\n{}\n5", "unknown-version"),
    "a later version, all else unknown": ("v12\nwhatever", "unknown-version"),
    "a source without its offset": ("v2\n{}\norders", "torn"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_offset_entry_is_refused_by_kind(storage: LocalStorage, name: str) -> None:
    text, expected = DAMAGED[name]
    storage.create("offsets/7", text.encode())
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.offset_entry(storage, 7)
    assert kind(error) == ("offsets/7", expected)


@given(st.integers(0, 200))
def test_no_beginning_of_an_entry_passes_for_the_whole(length: int) -> None:
    text = offsets_text(KAFKA, '{"logOffset":17}')
    if length < len(text):
        try:
            entry = offsets.parse_offsets(text[:length])
        except UnreadableCheckpoint:
            return
        # Cut exactly at a line end: the sources that are left are whole, and their number tells.
        assert entry.offsets == SourceOffsets.of({"0": KAFKA})


def test_bytes_that_are_no_text_are_torn(storage: LocalStorage) -> None:
    storage.create("offsets/0", b"v1\n\xff\xfe\n5")
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.offset_entry(storage, 0)
    assert kind(error) == ("offsets/0", "torn")


def test_a_missing_entry_is_named(storage: LocalStorage) -> None:
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.offset_entry(storage, 4)
    assert kind(error) == ("offsets/4", "missing")


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_commits_of_all_known_versions_are_read(storage: LocalStorage, version: str) -> None:
    storage.create("commits/3", f'{version}\n{{"nextBatchWatermarkMs":77,"stateUniqueIds":{{}}}}'.encode())
    assert offsets.commit_entry(storage, 3).next_watermark_ms == 77


@pytest.mark.parametrize(
    ("text", "expected"), [("", "empty"), ("v1", "torn"), ('v1\n{"next', "torn"), ("v4\n{}", "unknown-version")]
)
def test_a_damaged_commit_is_refused_by_kind(storage: LocalStorage, text: str, expected: str) -> None:
    storage.create("commits/3", text.encode())
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.commit_entry(storage, 3)
    assert kind(error) == ("commits/3", expected)


def test_ids_are_numbers_in_order_without_what_hadoop_leaves(storage: LocalStorage) -> None:
    for name in ("10", "9", ".9.crc", ".11.0a1b.TID4.tmp", "12.tmp", "_SUCCESS"):
        storage.create(f"offsets/{name}", b"")
        storage.create(f"commits/{name}", b"")
    assert offsets.offset_ids(storage) == offsets.commit_ids(storage) == (9, 10)


def test_the_query_id_is_read(storage: LocalStorage) -> None:
    write_checkpoint(storage, 1)
    assert offsets.query_id(storage) == QUERY


def test_a_directory_that_is_no_checkpoint_is_told_from_one_that_lost_its_metadata(storage: LocalStorage) -> None:
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.query_id(storage)
    assert error.value.kind == "not-a-checkpoint"
    storage.create("offsets/0", offsets_text("1").encode())
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.query_id(storage)
    assert kind(error) == ("metadata", "missing")


@pytest.mark.parametrize(
    ("text", "expected"), [("", "empty"), ("{}", "torn"), ('{"id":', "torn"), ('{"id":7}', "torn")]
)
def test_damaged_metadata_is_refused_by_kind(storage: LocalStorage, text: str, expected: str) -> None:
    storage.create("metadata", text.encode())
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.query_id(storage)
    assert kind(error) == ("metadata", expected)


def test_a_slice_goes_from_the_entry_before_to_its_own(storage: LocalStorage) -> None:
    write_checkpoint(storage, 3)
    slice_ = offsets.slice_of(storage, 2)
    assert (slice_.start, slice_.end) == (at(1), at(2))


def test_the_first_slice_starts_where_no_source_has_an_offset(storage: LocalStorage) -> None:
    storage.create("offsets/0", offsets_text("5", KAFKA).encode())
    slice_ = offsets.slice_of(storage, 0)
    assert slice_.start == SourceOffsets.of({"0": None, "1": None})


def test_a_gap_in_batch_ids_is_bridged(storage: LocalStorage) -> None:
    for number in (3, 4, 7):
        storage.create(f"offsets/{number}", offsets_text(f'{{"logOffset":{number}}}').encode())
    assert offsets.slice_of(storage, 7).start == at(4)


def test_a_slice_whose_start_nobody_holds_is_refused(storage: LocalStorage) -> None:
    storage.create("offsets/5", offsets_text("5").encode())
    with pytest.raises(UnreadableCheckpoint) as error:
        offsets.slice_of(storage, 5)
    assert kind(error) == ("offsets/4", "missing")


def test_slices_from_texts_equal_slices_from_files(storage: LocalStorage) -> None:
    write_checkpoint(storage, 3)
    texts = {number: storage.read(f"offsets/{number}").decode() for number in (1, 2)}
    slice_, entry = offsets.slice_from(texts, 2)
    assert slice_ == offsets.slice_of(storage, 2)
    assert entry == offsets.offset_entry(storage, 2)


def test_slices_of_consecutive_batches_join(storage: LocalStorage) -> None:
    write_checkpoint(storage, 12)
    slices = [offsets.slice_of(storage, number) for number in range(12)]
    assert all(one.end == other.start for one, other in pairwise(slices))


def test_what_a_source_noted_at_its_start_is_read_as_it_stands(storage: LocalStorage) -> None:
    storage.create("sources/1/0", b"v1\n1795263912914")
    assert offsets.source_start(storage, 1) == "v1\n1795263912914"
    assert offsets.source_start(storage, 0) is None


def test_a_kafka_source_notes_its_first_offsets_behind_a_zero_byte(storage: LocalStorage) -> None:
    storage.create("sources/0/0", b'\x00v1\n{"orders":{"0":0,"1":5}}')
    assert offsets.kafka_start(storage, 0) == '{"orders":{"0":0,"1":5}}'
    assert offsets.kafka_start(storage, 1) is None


@pytest.mark.parametrize("text", [b'\x00v2\n{"orders":{"0":0}}', b'\x00v1\n{"orders":{"0', b"\x00v1"])
def test_a_note_of_a_kafka_source_that_cannot_be_understood_is_refused(storage: LocalStorage, text: bytes) -> None:
    storage.create("sources/0/0", text)
    with pytest.raises(offsets.UnreadableCheckpoint, match="sources/0/0"):
        offsets.kafka_start(storage, 0)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [('{"logOffset":0}', 0), ('{"logOffset":12}', 12), (None, None), ("42", None), (KAFKA, None), ("{cut", None)],
)
def test_only_a_file_source_has_a_log_offset(offset: str | None, expected: int | None) -> None:
    assert offsets.log_offset(offset) == expected


def test_a_delta_offset_names_its_table() -> None:
    assert offsets.reservoir_id('{"reservoirId":"8a1c","reservoirVersion":3}') == "8a1c"
    assert offsets.reservoir_id(KAFKA) is None


def test_a_commit_text_of_the_samples_is_a_real_one() -> None:
    assert offsets.parse_commit(commit_text(3)).next_watermark_ms == 3
