"""Every Python block of the documentation runs. Blocks that need Spark say so and are run by an integration test."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<info>.*)$")
KNOWN = {"python", "python spark"}
"""Info strings of Python blocks: run here, and run where there is a Spark session."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        info: what stands after the opening fence.
        line: line number of the opening fence.
        code: the text between the fences.
    """

    info: str
    line: int
    code: str

    @property
    def padded(self) -> str:
        """The code behind as many empty lines as stand before it, so that tracebacks name lines of the page."""
        return "\n" * self.line + self.code


def blocks(text: str) -> Iterator[Block]:
    opened: tuple[str, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, inside = (fence["info"].strip(), number), []
        elif fence and not fence["info"].strip():
            yield Block(*opened, "\n".join(inside))
            opened = None
        else:
            inside.append(line)
    assert opened is None, f"the block of line {opened[1]} is never closed"


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page.read_text()) if block.info == "python"]


def run(page: Path, found: list[Block], given: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Run the blocks of a page one after the other in one module, as a reader would; return the names it ends with."""
    module = ModuleType(f"docs_{page.stem.replace('-', '_')}")
    module.__dict__.update(given or {})
    sys.modules[module.__name__] = module
    try:
        for block in found:
            exec(compile(block.padded, str(page), "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module.__dict__


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, runnable(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_python_block_says_whether_it_needs_spark(page: Path) -> None:
    unknown = [block for block in blocks(page.read_text()) if block.info.startswith("py") and block.info not in KNOWN]
    assert not unknown, unknown


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, missing


def test_a_block_that_fails_is_noticed_at_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nfine = 1\n```\n\n```python\nassert fine == 2\n```\n")
    with pytest.raises(AssertionError) as caught:
        run(page, list(blocks(page.read_text())))
    assert caught.traceback[-1].lineno + 1 == 8


def test_a_block_that_is_never_closed_is_noticed() -> None:
    with pytest.raises(AssertionError, match="line 1 is never closed"):
        list(blocks("```python\nfine = 1\n"))
