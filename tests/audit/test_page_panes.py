"""What the audit page shows of windows: how many are open, and results by when they were written."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.audit.histories import epoch_after
from tests.audit.pages import SINKS, TAKEN, judged, ledger_facts, line_of, sink_facts, story
from tests.cli.scores import Scores

from onceonly.audit import Facts
from onceonly.audit.page import render
from onceonly.audit.page.time_charts import windows_of, windows_picture
from onceonly.windows import AtCount, AtWatermark
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochWindows, ResultCounts
from onceonly_checkpoints.model import Adoption, AdoptionKind


def at(windows: int, early: int = 0, on_time: int = 0, late: int = 0, dropped: int = 0) -> EpochWindows:
    return EpochWindows(
        "whole", "meaning", Digest(windows), 9, dropped, 1000, result_counts=ResultCounts(early, on_time, late)
    )


def epochs(*panes: EpochWindows | None) -> list[Epoch]:
    made: list[Epoch] = []
    for plain, one in zip(line_of(len(panes)), panes, strict=True):
        before, rows = made[-1] if made else None, plain.digest.rows
        made.append(epoch_after(before, rows, written=plain.written, sinks=SINKS, lineage=plain.lineage, panes=one))
    return made


def shown(line: list[Epoch]) -> str:
    held = tuple(sink_facts(line, sink) for sink in SINKS)
    return render(judged(Facts("orders", held, ledger_facts(line, held))), TAKEN)


def told(text: str) -> dict[str, Any]:
    found = re.search(r'<script[^>]*id="facts"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])["pipelines"][0]["epoch_columns"]


def test_where_no_epoch_says_anything_of_windows_there_is_no_panel_and_no_number() -> None:
    text = render(judged(story(3)), TAKEN)
    assert ">Windows <" not in text
    assert told(text)["windows"] is None


def test_open_windows_and_results_by_when_are_shown_over_the_epochs_that_say_them() -> None:
    line = epochs(None, at(3, early=2), at(1200, 1, 4, 2, dropped=3))
    text = shown(line)
    assert "1,200 open; 3 rows in none" in text
    assert [re.sub("<[^>]*>", "", one) for one in re.findall(r'shade".*?</svg>(.*?</span>)', text)] == [
        "3 early",
        "4 on time",
        "2 late",
    ]
    assert told(text)["windows"] == {"open": [None, 3, 1200], "results": [None, [2, 0, 0], [1, 4, 2]]}
    known = windows_of(line)
    assert known
    opened, written = windows_picture(known, 600)["vconcat"]
    assert [(one["from"], one["open"]) for one in opened["layer"][0]["data"]["values"]] == [
        (1.5, 3),
        (2.5, 1200),
        (3.5, 1200),
    ]
    assert [(one["timing"], one["low"], one["high"]) for one in written["layer"][0]["data"]["values"]] == [
        ("early", 0, 2),
        ("early", 0, 1),
        ("on time", 1, 5),
        ("late", 5, 7),
    ]


def test_an_operators_epoch_repeats_what_is_open_and_has_written_nothing() -> None:
    line = epochs(at(3, early=2))
    line.append(epoch_after(line[0], 0, sinks=SINKS, panes=at(3, early=2), adoption=Adoption(AdoptionKind.CONTINUE)))
    known = windows_of(line)
    assert known
    assert known.results == (2, 0, 0)
    assert known.to_json([1, 2]) == {"open": [3, 3], "results": [[2, 0, 0], [0, 0, 0]]}


def test_of_many_epochs_a_column_shows_what_the_last_left_and_the_results_of_all() -> None:
    known = windows_of(epochs(at(1, 1), at(5, 2), at(2, 0, 3)))
    assert known
    opened, written = windows_picture(known, 2)["vconcat"]
    assert [one["open"] for one in opened["layer"][0]["data"]["values"]] == [5, 2, 2]
    assert [(one["tip"], one["high"]) for one in written["layer"][0]["data"]["values"]] == [
        ("epochs 1 to 2: 3 early", 3),
        ("epoch 3: 3 on time", 3),
    ]


def test_windows_that_write_nothing_leave_a_picture() -> None:
    assert "0 open" in shown(epochs(at(0), at(0)))


@pytest.mark.parametrize("how", ["accumulating", "retracting"])
def test_an_epoch_counts_the_results_that_its_sinks_got(tmp_path: Path, how: str) -> None:
    scores = Scores(
        tmp_path / "scores", trigger=AtWatermark(AtCount(1), "closing"), allowed_lateness=5, accumulation=how
    )
    scores.writes([("a", 1, 5), ("b", 2, 7)], [("a", 12, 4)], [("a", 9, 1)], [("a", 30, 1)])
    sink = scores.sinks()[0]
    sink.open("orders")
    counted = Counter[tuple[int, str]]()
    for epoch, row in sink.read_by_epoch((1, 4)) or ():
        counted[epoch, row["timing"]] += row["sign"] > 0
    for marker, _ in sink.history():
        told, number = marker.epoch.windows, marker.epoch.number
        assert told is not None
        wanted = (counted[number, timing] for timing in ("EARLY", "ON_TIME", "LATE"))
        assert told.result_counts == ResultCounts(*wanted), number
    assert counted[4, "LATE"] == 1


def test_what_an_epoch_wrote_comes_back_from_its_marker() -> None:
    for one in (at(3, 1, 2, 3), at(0), replace(at(1, late=1), since=2)):
        assert EpochWindows.from_json(one.to_json()) == one
    assert at(3, 1).given_up(7).result_counts == ResultCounts()
