"""The nouns survive every store: text and JSON forms are exact, and stores that reorder keys do no harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly_checkpoints.epoch import Digest, Epoch, Fence, Lineage, Marker, Receipt, UnreadableMarker
from onceonly_checkpoints.slices import InputFile, Slice, SourceIdentity, SourceOffsets

names = st.text(min_size=1, max_size=12)
numbers = st.integers(min_value=0, max_value=2**62)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
offset_texts = st.none() | json_values.map(json.dumps) | st.text(max_size=12)
offsets = st.dictionaries(names, offset_texts, max_size=14).map(SourceOffsets.of)
slices = st.builds(Slice, offsets, offsets)
digests = st.builds(Digest, numbers, numbers, numbers)
lineages = st.builds(Lineage, names, names, names, numbers, numbers, numbers)
files = st.builds(InputFile, names, numbers, numbers, names)
identities = st.builds(SourceIdentity, names, st.none() | names, st.none() | names)
epochs = st.builds(
    Epoch,
    numbers,
    slices,
    names,
    names,
    digests,
    names,
    st.lists(st.tuples(names, numbers), max_size=3).map(tuple),
    st.none() | lineages,
    st.lists(identities, max_size=3).map(tuple),
    st.none() | names,
    st.none() | names,
    st.none() | slices,
)
markers = st.builds(Marker, names, names, st.builds(Fence, numbers, names), epochs)
positions = st.dictionaries(names, st.integers() | st.text(max_size=5), max_size=3)
receipts = st.builds(
    Receipt, names, numbers, names, names, positions.map(lambda found: tuple(sorted(found.items()))), numbers
)


def stored(value: Any) -> Any:
    """What comes back from a store that keeps JSON but not the order of keys."""
    return json.loads(json.dumps(value, sort_keys=True))


@given(markers)
def test_a_marker_comes_back_from_its_text(marker: Marker) -> None:
    assert Marker.from_json(json.loads(marker.text)) == marker


@given(markers)
def test_a_marker_comes_back_from_a_store_that_reorders_keys(marker: Marker) -> None:
    assert Marker.from_json(stored(marker.to_json())) == marker


@given(epochs)
def test_an_epoch_says_what_was_offered_only_where_it_is_not_what_was_written(epoch: Epoch) -> None:
    assert ("offered" in epoch.to_json()) is (epoch.offered is not None)
    assert epoch.planned == (epoch.offered or epoch.slice)


@given(receipts)
def test_a_receipt_comes_back(receipt: Receipt) -> None:
    assert Receipt.from_json(stored(receipt.to_json())) == receipt


@given(st.one_of(slices, digests, lineages, files, identities, epochs))
def test_every_noun_comes_back(noun: Any) -> None:
    assert type(noun).from_json(stored(noun.to_json())) == noun


def test_the_order_of_sources_survives_a_store_that_reorders_keys() -> None:
    found = SourceOffsets.of({"orders": "1", "amounts": "2"})
    assert SourceOffsets.from_json(stored(found.to_json())).sources == ("orders", "amounts")


def test_the_order_of_more_than_ten_sources_survives() -> None:
    found = SourceOffsets.of({str(number): "1" for number in range(12)})
    assert SourceOffsets.from_json(stored(found.to_json())) == found


def test_offsets_that_differ_only_in_blanks_and_key_order_are_equal() -> None:
    assert SourceOffsets.of({"0": '{"b": 1, "a": 2}'}) == SourceOffsets.of({"0": '{"a":2,"b":1}'})


def test_offsets_that_are_not_json_are_compared_to_the_letter() -> None:
    assert SourceOffsets.of({"0": "shard-1 at 5"}) != SourceOffsets.of({"0": "shard-1  at 5"})


def test_no_offset_is_not_an_offset_that_says_null() -> None:
    assert SourceOffsets.of({"0": None}) != SourceOffsets.of({"0": "null"})


def test_a_slice_without_progress_is_empty() -> None:
    here = SourceOffsets.of({"0": '{"offset":3}'})
    assert Slice(here, here).empty
    assert not Slice(SourceOffsets.of({"0": None}), here).empty
    assert SourceOffsets.of({"0": None, "1": None}).unset


def test_a_marker_of_a_newer_format_is_refused() -> None:
    with pytest.raises(UnreadableMarker, match="format 2"):
        Marker.from_json({"format": 2})


@pytest.mark.parametrize("value", [{"format": 1}, {"format": 1, "pipeline": "p", "sink": "s", "fence": 7}])
def test_a_damaged_marker_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(UnreadableMarker, match="damaged"):
        Marker.from_json(value)


def test_a_receipt_tells_one_coordinate() -> None:
    receipt = Receipt("s", 1, "c", "i", (("timeline", 3),), 5)
    assert (receipt.at("timeline"), receipt.at("version")) == (3, None)
