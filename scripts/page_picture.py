"""Takes a picture of an audit page with the Chromium of this machine: PAGE.html PICTURE.png [light|dark] [HEIGHT]."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH = 1100


def take(page: Path, picture: Path, theme: str, height: int) -> None:
    """Open the page in a theme and keep its upper part; a height of 0 keeps all of it."""
    path = os.environ.get("ONCEONLY_TEST_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        context = browser.new_context(viewport={"width": WIDTH, "height": height or 900}, color_scheme=theme)
        opened = context.new_page()
        opened.goto(page.resolve().as_uri())
        opened.screenshot(path=picture, full_page=not height)
        browser.close()


def main(page: str, picture: str, theme: str = "light", height: str = "0") -> int:
    """0 when the picture was taken."""
    take(Path(page), Path(picture), theme, int(height))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
