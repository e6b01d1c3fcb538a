"""The page shows what epochs say of time: complete through, latest row, late rows and silent writers; else nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.audit.histories import epoch_after
from tests.audit.pages import SINKS, TAKEN, judged, ledger_facts, line_of, sink_facts, story

from onceonly import page
from onceonly.audit import Facts
from onceonly.audit.page import render
from onceonly.audit.page.time_charts import Silence, event_time_picture, steps_of, up_to_when
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochTime, Unit

NOON = 1_767_268_800_000


def at(lower: int | None, high: int | None, *silent: str, unit: Unit = "integer", **said: int) -> EpochTime:
    return EpochTime(unit, lower, lower, high, timed_out=silent, **said)


def epochs(*times: EpochTime | None) -> list[Epoch]:
    made: list[Epoch] = []
    for plain, time in zip(line_of(len(times)), times, strict=True):
        before, rows = made[-1] if made else None, plain.digest.rows
        made.append(epoch_after(before, rows, written=plain.written, sinks=SINKS, lineage=plain.lineage, time=time))
    return made


def facts(*times: EpochTime | None) -> Facts:
    line = epochs(*times)
    held = tuple(sink_facts(line, sink) for sink in SINKS)
    return Facts("orders", held, ledger_facts(line, held))


def shown(*times: EpochTime | None) -> str:
    return render(judged(facts(*times)), TAKEN)


def told(text: str) -> dict[str, Any]:
    found = re.search(r'<script[^>]*id="facts"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])["pipelines"][0]["epoch_columns"]


def values(spec: Mapping[str, Any], color: str) -> list[dict[str, Any]]:
    """What the layer of a colour draws."""
    (drawn,) = [one for one in spec["layer"] if one["mark"].get("color") == color and one["mark"].get("opacity") != 0]
    return drawn["data"]["values"]


LOWER, UPPER, LATE = "var(--exact)", "var(--marked)", "var(--gap)"


def drawn(*times: EpochTime | None, at_most: int = 600) -> dict[str, Any]:
    known = up_to_when(epochs(*times))
    assert known
    return event_time_picture(known, at_most)


def test_where_no_epoch_says_anything_of_time_there_is_no_panel_and_no_number() -> None:
    text = render(judged(story(3)), TAKEN)
    assert "Up to when" not in text
    assert told(text)["time"] is None
    assert up_to_when(epochs(None)) is None


def test_lower_and_upper_are_lines_over_the_epochs_that_say_them() -> None:
    spec = drawn(None, at(None, 9), at(5, 9), at(7, 12))
    assert [(value["from"], value["time"]) for value in values(spec, LOWER)] == [
        (1.5, None),
        (2.5, 5),
        (3.5, 7),
        (4.5, 7),
    ]
    assert [value["time"] for value in values(spec, UPPER)] == [9, 9, 12, 12]


@pytest.mark.parametrize("unit", ["ms", "integer"])
def test_a_line_goes_from_epoch_to_epoch_also_where_its_times_are_alike_or_less(unit: Unit) -> None:
    spoken = (at(NOON, NOON + 5, unit=unit), at(NOON + 3, NOON + 5, unit=unit), at(NOON + 3, NOON + 9, unit=unit))
    svg = page.svg(drawn(*spoken, at(NOON - 9, NOON - 1, unit=unit, resets=1)), "time")
    for color in (LOWER, UPPER):
        (path,) = (one for one in re.findall("<path[^>]*>", svg) if f'stroke="{color}"' in one)
        along = [float(x) for x in re.findall(r"[ML](-?[\d.]+),", path)]
        assert along == sorted(along)
        assert len(set(along)) > 3


def test_late_rows_are_marks_at_the_time_of_the_earliest() -> None:
    late = {"earliest": 2, "late_before": 5, "late_rows": 3}
    spec = drawn(at(5, 9), at(5, 9, **late), at(6, 9, earliest=3, late_before=5))
    assert [(value["from"], value["time"]) for value in values(spec, LATE)] == [(2, 2)]
    assert values(spec, LATE)[0]["tip"] == "epoch 2: 3 late, one of 2"
    text = shown(at(5, 9), at(5, 9, **late), at(6, 9))
    assert "Late rows by epoch: 1 of 1" in text
    assert "<td>2</td><td>5</td>" in text
    assert "late rows, at the time" not in shown(at(5, 9))


def test_a_silent_writer_is_a_band_from_its_first_epoch_to_its_last_each_time() -> None:
    times = (at(1, 9), at(2, 9, "app"), at(3, 9, "app", "b"), at(3, 9), at(4, 9, "app"))
    known = up_to_when(epochs(*times))
    assert known
    assert known.silences == (Silence("app", 2, 3), Silence("b", 3, 3), Silence("app", 5, 5))
    _, lanes = drawn(*times)["vconcat"]
    (bands,) = lanes["layer"]
    assert [(one["writer"], one["from"], one["to"]) for one in bands["data"]["values"]] == [
        ("app", 1.5, 3.5),
        ("b", 2.5, 3.5),
        ("app", 4.5, 5.5),
    ]
    assert "Not waited for: app in epochs 2 to 3, b in epoch 3, app in epoch 5." in shown(*times)


def test_a_new_turn_is_an_edge_and_its_numbers_may_be_less() -> None:
    spec = drawn(at(5, 9), at(6, 9), at(2, 3, resets=1), at(3, 3, resets=1))
    assert [value["from"] for value in values(spec, "var(--muted)")] == [2.5]
    assert [value["time"] for value in values(spec, UPPER)] == [9, 9, 3, 3, 3]


def test_the_facts_behind_the_page_have_the_numbers_of_all_epochs() -> None:
    found = told(shown(None, at(5, 9, earliest=2, late_before=5, late_rows=3), at(6, 9, "app"), at(7, 9, "app")))
    assert found["time"] == {
        "unit": "integer",
        "lower": [None, 5, 6, 7],
        "upper": [None, 9, 9, 9],
        "late": {"2": 3},
        "silent": [["app", 3, 4]],
    }
    assert len(found["number"]) == 4


def test_of_many_epochs_a_column_shows_the_last_word_all_late_rows_and_the_worst_of_them() -> None:
    late = [{"earliest": 40 - number, "late_before": 50, "late_rows": number} for number in (1, 2, 3)]
    known = up_to_when(epochs(*(at(50 + one["late_rows"], 60 + one["late_rows"], **one) for one in late), at(60, 70)))
    assert known
    first, second = steps_of(known, 2)
    assert (first.name, first.lower, first.upper, first.late, first.earliest) == ("epochs 1 to 2", 52, 62, 3, 38)
    assert (second.name, second.lower, second.upper, second.late, second.earliest) == ("epochs 3 to 4", 60, 70, 3, 37)
    assert not first.turned


def test_moments_are_drawn_as_such_and_the_end_of_time_is_said_and_not_drawn() -> None:
    times = (at(NOON, NOON + 5, unit="ms"), replace(at(END, NOON + 5, unit="ms"), complete_until=END))
    spec = drawn(*times)
    assert [value["time"] for value in values(spec, LOWER)] == [NOON, None, None]
    assert spec["layer"][0]["encoding"]["y"]["type"] == "temporal"
    assert [value["time"] for value in values(drawn(at(5, 9), at(END, 9)), LOWER)] == [5, None, None]
    assert "complete through the end; latest row 2026-01-01T12:00:00.005Z" in shown(*times)
    assert ">12:00:00</text>" in page.svg(drawn(at(NOON, NOON + 5000, unit="ms")), "time")


@pytest.mark.parametrize("unit", ["ms", "integer"])
def test_every_extreme_of_time_can_be_drawn(unit: Unit) -> None:
    edges = (None, -END - 1, 0, END)
    times = [
        EpochTime(unit, edge, edge, two, earliest=edge, late_before=two, late_rows=1) for edge in edges for two in edges
    ]
    assert "Up to when" in shown(*times)


def test_a_writers_name_is_text_and_nothing_more() -> None:
    text = shown(at(5, 9, "<b>&app"))
    assert "&lt;b&gt;&amp;app in epoch 1" in text
    assert "<b>&" not in text


def test_thousands_of_epochs_with_a_time_leave_the_page_small() -> None:
    times = [at(number, number + 5, *(("app",) if number % 2 else ())) for number in range(2_000)]
    assert len(shown(*times).encode()) < 2_000_000
