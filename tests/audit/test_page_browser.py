"""The page as a reader sees it, in the Chromium of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.audit.pages import TAKEN, damaged, judged, story
from tests.audit.test_page import hostile
from tests.browser import colour, contrast, luminance

from onceonly.audit import Facts
from onceonly.audit.page import write

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(shown: Any) -> Any:
    return lambda facts, **options: shown(lambda target: write(target, judged(facts), TAKEN), **options)


@pytest.mark.parametrize(
    ("facts", "verdict"), [(story(), "EXACTLY ONCE"), (damaged(), "GAPS")], ids=["clean", "damaged"]
)
def test_the_verdict_is_seen_without_scrolling_and_nothing_is_fetched_or_wrong(
    opened: Any, facts: Facts, verdict: str
) -> None:
    found = opened(facts)
    heading = found.page.locator("h1")
    assert verdict in heading.inner_text()
    assert heading.bounding_box()["y"] < 200
    assert found.page.locator("svg.chart").count() >= 6
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found.calm()


def test_the_first_disagreement_and_its_command_are_on_the_first_screen(opened: Any) -> None:
    found = opened(damaged())
    box = found.page.locator(".first .command").first.bounding_box()
    assert box["y"] + box["height"] < 900


def test_a_hostile_name_stays_a_name(opened: Any) -> None:
    found = opened(hostile())
    assert "alert(1)" in found.page.locator("h1").inner_text()
    assert found.page.locator("main img").count() == 0
    assert found.page.locator("script").count() == 2
    found.calm()


def test_the_copy_button_copies_the_command(opened: Any) -> None:
    found = opened(damaged(), permissions=["clipboard-read", "clipboard-write"])
    button = found.page.locator(".first .copy").first
    button.focus()
    found.page.keyboard.press("Enter")
    found.page.wait_for_function("document.querySelector('.first .copy').textContent === 'Copied'")
    assert found.page.evaluate("navigator.clipboard.readText()") == button.get_attribute("data-copy")
    found.calm()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_switch_with_enough_contrast(opened: Any, scheme: str) -> None:
    page = opened(damaged(), color_scheme=scheme).page
    before = luminance(colour(page, "body"))
    assert (before > 0.5) == (scheme == "light")
    paper, surface = colour(page, "body"), colour(page, ".panel")
    for selector in ("h1", ".scope", ".counts dt", ".evidence", ".error .severity", ".quiet", ".command button"):
        assert contrast(colour(page, selector, "color"), surface) >= 4.5, selector
    assert contrast(colour(page, ".taken", "color"), paper) >= 4.5
    for key in ("exact", "gap", "doubled", "doubt", "unknown", "adopted", "marked", "proven"):
        tone = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{key}').trim()")
        rgb = tuple(int(tone[at : at + 2], 16) for at in (1, 3, 5))
        assert contrast(rgb, surface) >= 3, key
    page.locator("#theme").click()
    assert (luminance(colour(page, "body")) > 0.5) != (scheme == "light")


def test_an_epoch_can_be_looked_up_by_keyboard(opened: Any) -> None:
    page = opened(damaged()).page
    box = page.locator("[data-reader] input")
    assert box.input_value() == "12"
    assert "A121" in page.locator("[data-reader] dl").inner_text()
    box.focus()
    page.keyboard.press("ArrowUp")
    assert "A121" in page.locator("[data-reader] dl").inner_text()
    page.keyboard.press("ArrowUp")
    assert "A121" not in page.locator("[data-reader] dl").inner_text()
    assert "exactly once" in page.locator("[data-reader] dl").inner_text()


def test_a_mark_says_what_it_is_under_the_pointer(opened: Any) -> None:
    page = opened(damaged()).page
    page.locator('[data-tip="epoch 12 in delta:orders: gap (A121)"]').hover()
    assert "epoch 12 in delta:orders: gap" in page.locator("#tip").inner_text()


def test_findings_can_be_filtered(opened: Any) -> None:
    page = opened(replace(damaged(), ledger=None)).page
    shown = page.locator(".finding:visible")
    everything = shown.count()
    page.locator("input[data-severity=error]").uncheck()
    assert shown.count() < everything


def test_print_is_light_and_has_no_buttons(opened: Any) -> None:
    page = opened(damaged(), color_scheme="dark").page
    page.emulate_media(media="print")
    assert luminance(colour(page, "body")) > 0.9
    assert not page.locator(".copy").first.is_visible()
    assert page.locator("h1").is_visible()
    assert len(page.pdf()) > 20_000


def test_a_narrow_screen_needs_no_sideways_scrolling(opened: Any) -> None:
    page = opened(damaged()).page
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ten_thousand_epochs_open_within_two_seconds(opened: Any) -> None:
    page = opened(story(10_000)).page
    page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
    assert page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") < 2_000


@pytest.mark.parametrize(("width", "display"), [(500, "block"), (1100, "none")])
def test_a_picture_that_goes_on_beyond_a_narrow_window_says_so(opened: Any, width: int, display: str) -> None:
    found = opened(story(1))
    found.page.set_viewport_size({"width": width, "height": 900})
    hint = found.page.evaluate("""() => [...document.querySelectorAll('.scroll')]
        .filter(box => box.querySelector(':scope > .chart'))
        .map(box => [box, getComputedStyle(box, '::before')])
        .map(([box, hint]) => [hint.display, box.scrollWidth > box.clientWidth, hint.content])""")
    assert hint
    assert {(one, scrolls) for one, scrolls, _ in hint} == {(display, display == "block")}
    assert all("scroll sideways" in words for _, _, words in hint)
