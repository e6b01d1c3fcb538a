"""The page of ways out is what the walk has found: no dead end, every code of the family."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.waysout import page
from integration.waysout.situations import SITUATIONS
from integration.waysout.world import SHAPES

from onceonly.errors.codes import CATALOGUE

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]


def test_the_page_tells_what_was_found() -> None:
    assert (ROOT / "docs" / page.PAGE).read_text() == page.page(page.read())


def test_no_way_of_a_wreck_is_a_dead_end() -> None:
    found = {(line["source"], line["state"], line["sinks"], line["situation"]) for line in page.read()}
    assert found == {
        (s.source, s.state, s.sinks, name) for s in SHAPES for name, what in SITUATIONS.items() if what.fits(s)
    }
    assert all(line["ways"] and all(way["good"] for way in line["ways"]) for line in page.read())


def test_every_code_of_the_family_is_shown_here_or_by_a_named_test() -> None:
    assert {code for code in CATALOGUE if code.startswith("E2")} <= page.codes(page.read())
    for test, codes in page.ELSEWHERE.items():
        assert all(code in (ROOT / test).read_text() for code in codes), test
