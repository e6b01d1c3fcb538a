"""Checkpoints that a full refresh left beside the new one, read as they lie there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceonly_checkpoints.model import SourceOffsets
from onceonly_checkpoints.spark.offsets import NEWEST, number_of, old_batches
from onceonly_checkpoints.storage import LocalStorage


def checkpoint(root: Path, query: str, *ends: int) -> Path:
    """A checkpoint whose batches end at these offsets."""
    (root / "offsets").mkdir(parents=True)
    (root / "metadata").write_text(json.dumps({"id": query}))
    for number, end in enumerate(ends):
        about = json.dumps({"batchWatermarkMs": 5, "batchTimestampMs": 100 + number, "conf": {}})
        (root / "offsets" / str(number)).write_text(f'v1\n{about}\n{{"events":{{"0":{end}}}}}')
    return root


def ends(*found: int) -> list[SourceOffsets]:
    return [SourceOffsets.of({"0": f'{{"events":{{"0":{end}}}}}'}) for end in found]


def test_every_lower_sibling_tells_its_newest_batches_the_nearest_first(tmp_path: Path) -> None:
    checkpoint(tmp_path / "0", "q0", 10, 20, 30, 40, 50)
    checkpoint(tmp_path / "2", "q2", 7)
    here = checkpoint(tmp_path / "3", "q3", 1)
    checkpoint(tmp_path / "4", "q4", 1)
    found = old_batches(LocalStorage(here), f"file:{here}")
    assert [(one.lineage.query_id, one.lineage.batch_id) for one in found] == [
        ("q2", 0),
        ("q0", 4),
        ("q0", 3),
        ("q0", 2),
    ]
    assert len(found) == 1 + NEWEST
    assert [one.end for one in found] == ends(7, 50, 40, 30)
    assert found[1].lineage.checkpoint == f"file:{tmp_path}/0"
    assert (found[1].lineage.batch_timestamp_ms, found[1].lineage.watermark_ms) == (104, 5)


@pytest.mark.parametrize("damage", ["metadata", "offsets/0", "nothing"])
def test_a_sibling_that_cannot_be_read_proves_nothing(tmp_path: Path, damage: str) -> None:
    old = checkpoint(tmp_path / "0", "q0", 10)
    here = checkpoint(tmp_path / "1", "q1", 1)
    if damage != "nothing":
        (old / damage).write_bytes(b"\xff{")
    assert bool(old_batches(LocalStorage(here), str(here))) is (damage == "nothing")


@pytest.mark.parametrize(
    ("path", "number"),
    [("/s/_checkpoints/orders/flow/12", 12), ("/ckpt/orders", 0), ("/ckpt/0", 0), ("/ckpt/01", 0), ("/c/1/", 1)],
)
def test_only_a_plain_number_is_a_sibling_of_others(path: str, number: int) -> None:
    assert number_of(path) == number


def test_a_checkpoint_whose_name_is_a_date_costs_one_look(tmp_path: Path) -> None:
    here = checkpoint(tmp_path / "20261123", "q1", 1)
    assert old_batches(LocalStorage(here), str(here)) == ()
