"""What a slice is said to cover before its batch is run."""

from __future__ import annotations

import pytest

from onceonly.machine.estimate import units
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


def test_offsets_that_are_no_numbers_tell_nothing():
    assert units(Slice(SourceOffsets.of({"a": "x"}), SourceOffsets.of({"a": "y"})), ()) is None
