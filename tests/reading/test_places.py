"""Where epochs lie and where readers stand, in the count of their sinks."""

from __future__ import annotations

import json

from onceonly.event_time.marker_sources import place_of, placed, position_of
from onceonly.machine.completeness import window_at
from onceonly.machine.writer_progress import TimedMarker
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.epoch_time import EpochTime


def receipt(**position: int | str) -> Receipt:
    return Receipt("kafka:clicks", 1, "c", "i", tuple(sorted(position.items())), 1)


def offsets(*ends: int) -> Receipt:
    return receipt(end=json.dumps({"clicks": {str(part): end for part, end in enumerate(ends)}}), topics="{}")


def test_a_place_is_what_goes_up_in_a_receipt_and_nothing_else() -> None:
    assert place_of(receipt(version=12, read=11)) == {"version": 12}
    assert place_of(receipt(entry=3)) == {"entry": 3}
    assert place_of(offsets(5, 2)) == {"clicks/0": 5, "clicks/1": 2}
    assert place_of(receipt(timeline=1)) is None


def test_an_epoch_is_passed_only_with_the_rows_of_every_epoch_that_it_has_seen() -> None:
    a = TimedMarker("A", 1, EpochTime("integer", 100, None, 100))
    b = TimedMarker("B", 1, EpochTime("integer", 70, 70, 100, writers=(a.mark,)))
    found = [(a, offsets(5, 2)), (b, offsets(3, 6))]
    cuts = {one.timed.writer: one.cut for one in placed(found, {"clicks/0": 0})}
    assert cuts == {"A": {"clicks/0": 5, "clicks/1": 2}, "B": {"clicks/0": 5, "clicks/1": 6}}
    for position, lower in ({"0": 3, "1": 6}, None), ({"0": 5, "1": 6}, 70):
        at = position_of({"clicks": position}, "kafka:clicks", found)
        assert window_at(placed(found, at), at).lower == lower
