"""The report as a reader sees it, in the Chromium of this machine."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from tests.browser import colour, contrast, luminance
from tests.lab.report_tales import TAKEN, clean, damaged, hostile, inconclusive

from onceonly_lab.report import Run, write

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(shown: Any) -> Any:
    return lambda *runs, **options: shown(lambda target: write(target, runs, TAKEN), **options)


@pytest.mark.parametrize(
    ("run", "verdict"),
    [(clean(), "CLEAN"), (damaged(), "ANOMALY"), (inconclusive(), "INCONCLUSIVE")],
    ids=["clean", "damaged", "inconclusive"],
)
def test_the_verdict_is_seen_without_scrolling_and_nothing_is_fetched_or_wrong(
    opened: Any, run: Run, verdict: str
) -> None:
    found = opened(run)
    heading = found.page.locator("h1")
    assert verdict in heading.inner_text()
    assert heading.bounding_box()["y"] < 200
    assert found.page.locator("svg.chart").count() >= 2
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found.calm()


def test_a_hostile_name_stays_a_name(opened: Any) -> None:
    found = opened(hostile(), damaged())
    assert "alert(1)" in found.page.locator("#run-1 h1").inner_text()
    assert found.page.locator("main img").count() == 0
    assert found.page.locator("script").count() == 2
    found.calm()


def test_the_copy_button_copies_the_command_that_runs_it_again(opened: Any) -> None:
    found = opened(damaged(), permissions=["clipboard-read", "clipboard-write"])
    button = found.page.locator(".copy").first
    button.focus()
    found.page.keyboard.press("Enter")
    found.page.wait_for_function("document.querySelector('.copy').textContent === 'Copied'")
    copied = found.page.evaluate("navigator.clipboard.readText()")
    assert shlex.split(copied) == ["onceonly", "lab", "replay", "it's here.json", "--level", "L2"]
    found.calm()


def test_marks_say_what_they_are_under_the_pointer(opened: Any) -> None:
    page = opened(damaged()).page
    for words in ("commit epoch 4 postgres", "breaks commit.sent:lose answer", "kafka taken, 0 to 1, epoch 1"):
        page.locator(f'[data-tip*="{words}"]').first.hover()
        assert words in page.locator("#tip").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_switch_with_enough_contrast(opened: Any, scheme: str) -> None:
    page = opened(damaged(), color_scheme=scheme).page
    assert (luminance(colour(page, "body")) > 0.5) == (scheme == "light")
    surface = colour(page, ".panel")
    for selector in ("h1", ".called", ".evidence", ".error .severity", ".quoted .at", ".coverage .miss"):
        assert contrast(colour(page, selector, "color"), surface) >= 4.5, selector
    tint = colour(page, ".coverage .hit")
    assert contrast(colour(page, ".coverage .hit", "color"), tint) >= 4.5
    page.locator("#theme").click()
    assert (luminance(colour(page, "body")) > 0.5) != (scheme == "light")


def test_print_is_light_and_has_no_buttons(opened: Any) -> None:
    page = opened(damaged(), color_scheme="dark").page
    page.emulate_media(media="print")
    assert luminance(colour(page, "body")) > 0.9
    assert not page.locator(".copy").first.is_visible()
    assert len(page.pdf()) > 20_000


def test_a_narrow_screen_needs_no_sideways_scrolling(opened: Any) -> None:
    page = opened(damaged(), clean()).page
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
