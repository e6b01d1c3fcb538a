"""The documentation site as it is read from a folder, without a server, in the Chromium of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.browser import Opened

pytestmark = pytest.mark.browser

SITE = Path(__file__).parent.parent / "site"


@pytest.fixture
def site(chromium: Any) -> Iterator[Opened]:
    if not (SITE / "index.html").exists():
        pytest.skip("the site is NOT EXERCISED in a browser: make docs builds it")
    page = chromium.new_page()
    found = Opened(page)
    page.goto((SITE / "index.html").as_uri())
    yield found
    page.close()


def test_the_search_finds_a_code_and_nothing_is_fetched_from_elsewhere(site: Opened) -> None:
    from playwright.sync_api import TimeoutError

    query = site.page.locator("[data-md-component=search-query]")
    first = site.page.locator(".md-search-result__link").first
    # What is typed before the page has read its index is lost, so a reader types again.
    for _ in range(10):
        query.fill("")
        query.press_sequentially("A121")
        with suppress(TimeoutError):
            first.wait_for(timeout=3_000)
            break
    assert "A121" in first.inner_text()
    first.click()
    site.page.wait_for_url("**/codes/A121.html*")
    assert [url for url in site.requests if not url.startswith(("file:", "data:", "blob:"))] == []
