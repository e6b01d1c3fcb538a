"""The nouns survive every store: text and JSON forms are exact, and stores that reorder keys do no harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly_checkpoints.code_version import PlanFingerprint
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence, Lineage, Marker, Receipt, ResumePoint
from onceonly_checkpoints.model import (
    Adoption,
    AdoptionKind,
    InputFile,
    Slice,
    SourceIdentity,
    SourceKind,
    SourceOffsets,
    UnreadableMarker,
)

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
plans = st.builds(PlanFingerprint, numbers, names, names, names, st.text(max_size=4))
lineages = st.builds(Lineage, names, names, names, numbers, numbers, numbers, st.text(max_size=4), st.none() | plans)
files = st.builds(InputFile, names, numbers, numbers, names)
identities = st.builds(SourceIdentity, names, st.none() | names, st.none() | names)
adoptions = st.builds(
    Adoption,
    st.sampled_from(AdoptionKind),
    st.lists(names, max_size=2).map(tuple),
    numbers,
    numbers,
    st.lists(names, max_size=2).map(tuple),
    st.none() | slices,
    st.text(max_size=5),
    st.text(max_size=5),
    numbers,
)
standings = st.builds(ResumePoint, st.none() | lineages, st.lists(adoptions, max_size=2).map(tuple), st.none() | slices)
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
    st.none() | adoptions,
    st.none() | slices,
    st.none() | standings,
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
    assert ("resume" in epoch.to_json()) is (epoch.carried is not None)
    assert epoch.planned == (epoch.offered or epoch.written)


@given(receipts)
def test_a_receipt_comes_back(receipt: Receipt) -> None:
    assert Receipt.from_json(stored(receipt.to_json())) == receipt


@given(st.one_of(slices, digests, lineages, files, identities, adoptions, standings, epochs))
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


def _with(path: tuple[str, ...], marker: Marker) -> dict[str, Any]:
    value: dict[str, Any] = stored(marker.to_json())
    inner = value
    for name in path:
        inner = inner[name]
    inner["novelty"] = 1
    return value


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("fence",),
        ("epoch",),
        ("epoch", "slice"),
        ("epoch", "digest"),
        ("epoch", "lineage"),
        ("epoch", "adoption"),
        ("epoch", "resume"),
    ],
    ids="/".join,
)
def test_a_member_that_this_version_does_not_know_stops_the_reader(path: tuple[str, ...]) -> None:
    here = Slice(SourceOffsets.of({"0": None}), SourceOffsets.of({"0": "1"}))
    batch = Lineage("q", "r", "file:/ck", 0, 1, 2)
    said = Adoption(AdoptionKind.START, offsets=here)
    epoch = Epoch(
        1, here, "c", "", Digest(1), "s", (("a", 1),), batch, adoption=said, carried=ResumePoint(batch, (said,))
    )
    marker = Marker("p", "a", Fence(1, "o"), epoch)
    assert Marker.from_json(stored(marker.to_json())) == marker
    with pytest.raises(UnreadableMarker, match="unknown member novelty"):
        Marker.from_json(_with(path, marker))


def test_what_is_absent_is_left_out_of_the_text() -> None:
    here = Slice(SourceOffsets.of({"0": None}), SourceOffsets.of({"0": "1"}))
    epoch = Epoch(1, here, "c", "", Digest(0), "", (("a", 1),), None)
    assert sorted(epoch.to_json()) == ["chain", "digest", "number", "sinks", "slice"]


@pytest.mark.parametrize("value", [{"format": 1}, {"format": 1, "pipeline": "p", "sink": "s", "fence": 7}])
def test_a_damaged_marker_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(UnreadableMarker, match="damaged"):
        Marker.from_json(value)


def test_a_receipt_tells_one_coordinate() -> None:
    receipt = Receipt("s", 1, "c", "i", (("timeline", 3),), 5)
    assert (receipt.at("timeline"), receipt.at("version")) == (3, None)


@pytest.mark.parametrize(
    ("identity", "kind", "name"),
    [
        ("files:/in/orders", SourceKind.FILES, "/in/orders"),
        ('kafka:{"cluster":"c","topics":{}}', SourceKind.KAFKA, '{"cluster":"c","topics":{}}'),
        ("0d1f7c6e-table", SourceKind.OTHER, "0d1f7c6e-table"),
        ("other:kafka:x", SourceKind.OTHER, "other:kafka:x"),
        ("kafka", SourceKind.OTHER, "kafka"),
        (None, SourceKind.UNNAMED, ""),
    ],
)
def test_a_source_has_a_kind_by_the_text_of_its_identity(identity: str | None, kind: SourceKind, name: str) -> None:
    source = SourceIdentity("0", identity)
    assert (source.kind, source.name) == (kind, name)
    assert SourceIdentity.from_json(source.to_json()) == source
    if kind in {SourceKind.FILES, SourceKind.KAFKA}:
        assert kind.named(name) == identity


@pytest.mark.parametrize("kind", AdoptionKind)
def test_a_kind_of_adoption_is_kept_as_its_plain_text(kind: AdoptionKind) -> None:
    said = Adoption(kind, reason="by hand")
    assert type(said.to_json()["kind"]) is str
    assert json.dumps(said.to_json()) == f'{{"kind": "{kind.value}", "reason": "by hand"}}'
    assert Adoption.from_json(said.to_json()) == said
    assert Adoption.from_json(said.to_json()).kind is kind
    assert said.words == f"{kind.value}: by hand"


def test_a_kind_of_adoption_that_this_version_does_not_know_stops_the_reader() -> None:
    with pytest.raises(UnreadableMarker, match="'accept-fate': a newer version wrote it"):
        Adoption.from_json({"kind": "accept-fate"})


def test_a_kind_of_adoption_that_is_given_as_text_is_the_kind() -> None:
    assert Adoption("accept-loss").kind is AdoptionKind.ACCEPT_LOSS  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="skip"):
        Adoption("skip")  # type: ignore[arg-type]


def test_the_folder_of_a_source_of_files_is_what_stands_in_its_brackets_whatever_it_is_called() -> None:
    said = {
        "files:FileStreamSource[file:/in]": "file:/in",
        "files:FileStreamSource[file:/in[1]]": "file:/in[1]",
        "files:FileStreamSource": "",
        "kafka:cluster[a]": "",
    }
    assert {identity: SourceIdentity("0", identity).folder for identity in said} == said
    assert SourceIdentity("0", None).folder == ""
