"""The offset chart shows every hole and every overlap of every partition, and draws the broken ones first."""

from __future__ import annotations

from dataclasses import replace

from tests.audit.histories import epoch_after, epochs, slice_
from tests.audit.pages import line_of

from onceonly.audit.page.outcomes import Break, Outcome, offset_charts
from onceonly_checkpoints.model import Slice, SourceOffsets


def test_contiguous_steps_are_one_line() -> None:
    (chart,) = offset_charts(epochs())
    assert (chart.name, chart.sound, chart.breaks) == ("events/0", True, ())
    assert chart.points == ((0, 0), (1, 100), (2, 200), (3, 300), (4, 400))


def test_a_hole_and_an_overlap_are_told_apart() -> None:
    one = epoch_after(None, 5, written=slice_(0, 100))
    two = epoch_after(one, 5, written=slice_(130, 200))
    three = epoch_after(two, 5, written=slice_(180, 300))
    (chart,) = offset_charts([one, two, three])
    assert chart.breaks == (Break(2, 100, 130, Outcome.GAP), Break(3, 180, 200, Outcome.DOUBLED))
    assert not chart.sound


def test_a_position_that_an_operator_moved_is_no_gap() -> None:
    one = epoch_after(None, 5, written=slice_(0, 100))
    moved = epoch_after(one, 0, written=slice_(100, 250), adoption="start")
    (chart,) = offset_charts([one, moved])
    assert chart.breaks == (Break(2, 100, 250, Outcome.ADOPTED),)
    assert chart.sound


def test_the_broken_partition_comes_first() -> None:
    line = line_of(5, partitions=4)
    start = SourceOffsets.of({"0": '{"orders":{"0":1,"1":2,"2":999999,"3":4}}'})
    found = offset_charts([*line[:3], replace(line[3], written=Slice(start, line[3].written.end)), line[4]])
    assert len(found) == 4
    assert not found[0].sound


def test_each_source_has_an_offset_chart_of_its_own() -> None:
    both = Slice(
        SourceOffsets.of({"0": '{"a":{"0":1}}', "1": None}), SourceOffsets.of({"0": '{"a":{"0":4}}', "1": "7"})
    )
    assert [chart.name for chart in offset_charts([epoch_after(None, 3, written=both)])] == ["0: a/0", "1: offset"]


def test_offsets_that_are_no_json_are_not_drawn() -> None:
    opaque = Slice(SourceOffsets.of({"0": "here"}), SourceOffsets.of({"0": "there"}))
    assert offset_charts([epoch_after(None, 3, written=opaque)]) == ()


def test_thinning_keeps_the_ends_and_the_breaks() -> None:
    line = line_of(400, partitions=1)
    torn = replace(line[201], written=Slice(SourceOffsets.of({"0": '{"orders":{"0":5}}'}), line[201].written.end))
    (chart,) = offset_charts([*line[:201], torn, *line[202:]])
    thin = chart.thinned(50)
    assert len(thin.points) <= 55
    assert {0, 201, 202, 400} <= {epoch for epoch, _ in thin.points}
    assert thin.breaks == chart.breaks
