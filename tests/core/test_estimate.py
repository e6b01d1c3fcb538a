"""What a slice is said to cover before its batch is run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.stories import epochs

from onceonly.machine.estimate import units
from onceonly_checkpoints.digests import BAD, SEEN_IDS, Digest, OutputDigest
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Slice, SourceOffsets


def offsets(**by_source: int | None) -> SourceOffsets:
    return SourceOffsets.of({name: None if end is None else f'{{"offset":{end}}}' for name, end in by_source.items()})


@pytest.mark.parametrize(
    ("start", "end", "covered"),
    [
        (offsets(a=3), offsets(a=10), 7),
        (offsets(a=None), offsets(a=10), 10),
        (offsets(a=3, b=5), offsets(a=3, b=6), 1),
        (offsets(a=3), offsets(a=4, b=5), 6),
    ],
    ids=["one source", "from nothing", "two sources", "a source more than before"],
)
def test_a_slice_covers_what_lies_between_its_offsets(start, end, covered):
    assert units(Slice(start, end), ()) == covered


def test_files_are_counted_by_their_bytes():
    assert units(Slice(offsets(a=3), offsets(a=4)), (100, 20)) == 120


@pytest.mark.parametrize(
    ("start", "covered"),
    [('{"t":{"0":3,"1":5},"gone":{"0":9}}', 13), (None, 21), ('{"t":{"0":12}}', 11)],
    ids=["three partitions", "from nothing", "a topic that was made anew, and has more partitions"],
)
def test_topics_are_counted_by_partition(start: str | None, covered: int) -> None:
    end = '{"t":{"0":10,"1":5},"new":{"0":6}}'
    of = (SourceOffsets.of({"a": text}) for text in (start, end))
    assert units(Slice(*of), ()) == covered


def test_offsets_that_are_no_numbers_tell_nothing():
    assert units(Slice(SourceOffsets.of({"a": "x"}), SourceOffsets.of({"a": "y"})), ()) is None


def test_the_next_batch_is_as_large_as_the_last_one_was_before_windows_or_a_quarantine_took_its_rows():
    [plain] = epochs(10)
    assert plain.came == 10
    windows = EpochWindows("d", "d", Digest(3), rows=1_000, dropped=0, clock=0)
    assert replace(plain, windows=windows).came == 1_000
    bad = OutputDigest(BAD, ("memory:bad",), "schema", Digest(90))
    assert replace(plain, outputs=(bad,)).came == 100
    seen = OutputDigest(SEEN_IDS, ("memory:seen",), "schema", Digest(10), repeated=Digest(40), offered=50)
    assert replace(plain, outputs=(seen,)).came == 50
