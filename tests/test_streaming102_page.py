"""The page on Streaming 102 shows what a run wrote, and the run wrote what the data asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from scripts import streaming102_pictures
from tests.panes import story

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parent.parent
RUN = ROOT / "docs" / "streaming102.json"
PAGE = ROOT / "docs" / "streaming-102.md"
PICTURES = ROOT / "docs" / "images" / "streaming102"
CASES = story.cases()


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(RUN.read_text())["rows"]
    return found


def test_the_run_has_every_case_with_two_kills_in_each_epoch(rows: dict[str, list[dict[str, Any]]]) -> None:
    assert rows.keys() == CASES.keys()
    assert json.loads(RUN.read_text())["kills"] == 2 * sum(len(case.epochs) for case in CASES.values())


def test_the_rows_of_the_run_are_those_of_the_data(rows: dict[str, list[dict[str, Any]]]) -> None:
    shown, expected = {}, {}
    for name, case in CASES.items():
        told = [(r["epoch"], r["total"], r["timing"], r["fired_at"] // 1000 % 86_400) for r in rows[name]]
        signs = [row["sign"] for row in rows[name]]
        added = [row for row, sign in zip(told, signs, strict=True) if sign > 0]
        shown[name] = (added, [row[1] for row, sign in zip(told, signs, strict=True) if sign < 0])
        panes = [(number, pane.value, pane.timing, pane.fired_at) for number, pane in case.panes]
        expected[name] = (panes, [value for _, pane in case.panes for _, value in pane.retracts])
    assert shown == expected


def test_the_pictures_are_drawn_from_the_run(rows: dict[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    streaming102_pictures.main(str(RUN), str(tmp_path))
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in PICTURES.iterdir()}
    assert len(drawn) == len(rows)
    assert set(re.findall(r"images/streaming102/([^)]+)", PAGE.read_text())) == drawn.keys()
