"""The index of the second act as a reader sees it, in the Chromium of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.lab.test_demo_claims import TAKEN, drawn, right, whole

from onceonly_lab.demo import report
from onceonly_lab.necessity.crashes import shown as play_designs

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1180, 390])
def test_verdict_and_pictures_are_seen_and_nothing_is_fetched(shown: Any, width: int) -> None:
    pictures = {f"{name}.svg": picture for name, picture in drawn(play_designs()).items()}
    page = report.render(replace(whole(*right()), pictures=pictures), TAKEN)
    found = shown(lambda target: target.write_text(page), color_scheme="dark")
    found.page.set_viewport_size({"width": width, "height": 900})
    assert found.page.locator("h1").bounding_box()["y"] < 200
    boxes = [chart.bounding_box() for chart in found.page.locator("svg.chart").all()]
    assert [box["height"] > 100 and box["width"] > 300 for box in boxes] == [True] * 3
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found.calm()
