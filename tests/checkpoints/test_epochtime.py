"""What an epoch says of time survives its JSON form, says nothing of what is absent, and is read only whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly_checkpoints.epoch_time import END, EpochTime, Unit, WriterProgress
from onceonly_checkpoints.model import UnreadableMarker, canonical

names = st.text(min_size=1, max_size=12)
numbers = st.integers(min_value=-(2**63), max_value=END)
counts = st.integers(min_value=0, max_value=2**62)
units: st.SearchStrategy[Unit] = st.sampled_from(["ms", "integer"])
marks = st.builds(WriterProgress, names, counts, st.none() | numbers, numbers, counts)
times = st.builds(
    EpochTime,
    unit=units,
    complete_until=st.none() | numbers,
    dataset_complete_until=st.none() | numbers,
    max_time=st.none() | numbers,
    closed_until=st.none() | numbers,
    earliest=st.none() | numbers,
    latest=st.none() | numbers,
    late_before=st.none() | numbers,
    late_rows=counts,
    rows_without_time=counts,
    batch_timestamp_ms=numbers,
    writers=st.lists(marks, max_size=4).map(tuple),
    timed_out=st.lists(names, max_size=3).map(tuple),
    resets=counts,
    column=st.none() | names,
)


@given(times)
def test_a_time_comes_back_as_it_was(time: EpochTime) -> None:
    assert EpochTime.from_json(json.loads(canonical(time.to_json()))) == time


def test_what_is_absent_is_not_said_and_nought_is() -> None:
    said = EpochTime(
        "integer", complete_until=0, dataset_complete_until=None, max_time=0, batch_timestamp_ms=7
    ).to_json()
    assert said == {"unit": "integer", "complete_until": 0, "max_time": 0, "batch_timestamp_ms": 7}


@pytest.mark.parametrize("place", ["record", "mark"])
def test_a_member_that_nobody_knows_is_not_passed_over(place: str) -> None:
    said = EpochTime("ms", 1, 1, 1, writers=(WriterProgress("web", 1, 1, 1),)).to_json()
    (said if place == "record" else said["writers"][0])["zone"] = "UTC"
    with pytest.raises(UnreadableMarker, match="zone"):
        EpochTime.from_json(said)
