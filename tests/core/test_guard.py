"""The rules that every sink shares, as a table."""

from __future__ import annotations

import pytest

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Superseded
from onceonly.protocol.guard import NewestEpoch, check_fence, check_follows, check_install
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence, Marker
from onceonly_checkpoints.model import Slice, SourceOffsets

OURS = Fence(5, "us")
HIGHER, LOWER, RIVAL = Fence(6, "them"), Fence(4, "them"), Fence(5, "them")


def marker(number: int, previous: str, first: int = 1) -> Marker:
    offsets = SourceOffsets.of({"0": "1"})
    sinks = (("memory:rows", first),)
    epoch = Epoch(number, Slice(offsets, offsets), f"c{number}", previous, Digest(0), "", sinks, None)
    return Marker("orders", "memory:rows", OURS, epoch)


def said(refused: Exception | None) -> str | Fence | None:
    if isinstance(refused, Superseded):
        return refused.current_fence
    return refused.code if isinstance(refused, OnceOnlyError) else None


@pytest.mark.parametrize(
    ("found", "answer"), [(OURS, None), (HIGHER, HIGHER), (RIVAL, RIVAL), (LOWER, "E508"), (None, "E508")]
)
def test_only_our_own_fence_lets_us_go_on(found: Fence | None, answer: str | Fence | None) -> None:
    assert said(check_fence("memory:rows", found, OURS)) == answer


@pytest.mark.parametrize("found", [OURS, None])
def test_who_installed_no_fence_has_none(found: Fence | None) -> None:
    assert said(check_fence("memory:rows", found, None)) == "E508"


@pytest.mark.parametrize(
    ("found", "answer"), [(OURS, None), (HIGHER, HIGHER), (RIVAL, RIVAL), (LOWER, None), (None, None)]
)
def test_a_fence_goes_above_lower_ones_only(found: Fence | None, answer: Fence | None) -> None:
    assert said(check_install("memory:rows", found, OURS)) == answer


@pytest.mark.parametrize(
    ("held", "number", "previous", "answer"),
    [
        (NewestEpoch(), 1, "", None),
        (NewestEpoch(2, "c2"), 3, "c2", None),
        (NewestEpoch(2, None), 3, "c2", None),
        (NewestEpoch(2, "c2"), 4, "c3", "E207"),
        (NewestEpoch(2, None), 4, "c3", "E207"),
        (NewestEpoch(), 2, "c1", "E207"),
        (NewestEpoch(2, "other"), 3, "c2", "E210"),
        (NewestEpoch(3, "other"), 3, "c2", "E210"),
        (NewestEpoch(3, "c3"), 3, "c2", "E210"),
        (NewestEpoch(4, "c4"), 3, "c2", "E210"),
        (NewestEpoch(4, None), 3, "c2", "E210"),
        (NewestEpoch(1, "c1"), 1, "", "E210"),
    ],
)
def test_an_epoch_follows_the_one_before_it(held: NewestEpoch, number: int, previous: str, answer: str | None) -> None:
    assert said(check_follows(marker(number, previous), held)) == answer


@pytest.mark.parametrize(
    ("held", "answer"),
    [
        (NewestEpoch(), None),
        (NewestEpoch(3, "old"), None),
        (NewestEpoch(6, "old"), None),
        (NewestEpoch(7, "c7"), "E210"),
    ],
)
def test_a_sinks_own_first_epoch_goes_above_any_lower_one(held: NewestEpoch, answer: str | None) -> None:
    assert said(check_follows(marker(7, "c6", first=7), held)) == answer


@pytest.mark.parametrize(("held", "contested"), [(NewestEpoch(2, "x"), "epoch 2"), (NewestEpoch(3, "x"), "epoch 3")])
def test_two_histories_are_named_at_the_epoch_where_they_meet(held: NewestEpoch, contested: str) -> None:
    refused = check_follows(marker(3, "c2"), held)
    assert contested in str(refused)
