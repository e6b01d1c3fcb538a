"""The Chromium of this machine, a page in it with everything that it should not do, and colours as they are seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "ONCEONLY_TEST_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_path() -> str:
    named = os.environ.get(VARIABLE)
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"the page is NOT EXERCISED in a browser: no {', '.join(NAMES)} here, and {VARIABLE} names none")
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    path = browser_path()
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox does not start for root, as whom containers run tests.
    sandbox = os.geteuid() != 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=sandbox)
        yield browser
        browser.close()


class Opened:
    """A page with everything it did that it should not."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.console: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("dialog", lambda dialog: self.console.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def calm(self) -> None:
        assert self.console == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []


def colour(page: Any, selector: str, what: str = "background-color") -> tuple[float, ...]:
    text = page.eval_on_selector(selector, f"e => getComputedStyle(e).getPropertyValue('{what}')")
    return tuple(float(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])


def luminance(rgb: tuple[float, ...]) -> float:
    parts = [part / 255 for part in rgb]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.fixture
def shown(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open what is written to a path by a function; further arguments are those of a browser context."""
    contexts = []

    def show(write: Callable[[Path], None], **options: Any) -> Opened:
        target = tmp_path / "page.html"
        write(target)
        context = chromium.new_context(viewport={"width": 1180, "height": 900}, **options)
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.goto(target.as_uri())
        return found

    yield show
    for context in contexts:
        context.close()
