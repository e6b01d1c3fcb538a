"""Pages of the site that are made of what stands elsewhere: codes, command line, README, changelog."""

from __future__ import annotations

import html
import inspect
import re
import subprocess
import sys
from pathlib import Path

import mkdocs_gen_files

from onceonly import errors
from onceonly.audit.catalogue import RULES
from onceonly.cli.explain import all_codes, page_of
from onceonly.errors.codes import FAMILIES, parse, text_of
from onceonly_lab.checker import Anomaly

ROOT = Path(__file__).parent.parent


def write(page: str, text: str, source: str) -> None:
    """Add a page to the site.

    Args:
        page: path below ``docs``.
        text: its Markdown.
        source: file of the repository that it is made of.
    """
    with mkdocs_gen_files.open(page, "w") as file:
        file.write(text)
    mkdocs_gen_files.set_edit_path(page, source)


def code_page(code: str) -> str:
    """The page of one code: what ``onceonly explain`` prints, word for word."""
    page = page_of(code)
    parts = [f"# {page.pop('code')}", f"**{_literal(page.pop('what'))}**"]
    more = page.pop("more", "")
    for title, text in page.items():
        body = f"```text\n{text}\n```" if title == "next" else _literal(text)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{body}")
    if more:
        parts.append(f"## Background\n\n{_literal(more)}")
    parts.append(f"```text\n$ onceonly explain {code}\n```")
    return "\n\n".join(parts) + "\n"


def _literal(text: str) -> str:
    """A text of a message as Markdown that shows every character of it."""
    escaped = re.sub(r"([\\`*_{}\[\]])", r"\\\1", html.escape(text, quote=False))
    return escaped.replace("|", "&#124;")


def code_index() -> str:
    """All codes with their first lines, by family."""
    parts = [
        "# Codes",
        "Every error, warning and finding has a code that stays, and a page. So has every anomaly of the lab.",
    ]
    for family in FAMILIES:
        text = text_of(family)
        parts.append(_table(text.split("\n", 1)[0].removeprefix("# "), [code for code, _ in parse(text)]))
    parts.append(_table("Axxx: findings of an audit", list(RULES)))
    parts.append(_table("X-...: anomalies that the lab looks for", list(Anomaly)))
    return "\n\n".join(parts) + "\n"


def _table(title: str, codes: list[str]) -> str:
    rows = [f"| [{code}]({code}.md) | {_literal(page_of(code)['what'])} |" for code in codes]
    return "\n".join([f"## {title}\n", "| code | what happened |", "|---|---|", *rows])


_TYPER = """
from functools import partialmethod
from typer.cli import main
from typer.core import TyperCommand, TyperGroup
for kind in (TyperCommand, TyperGroup):
    kind.get_short_help_str = partialmethod(kind.get_short_help_str, limit=500)
main()
"""


def command_line() -> str:
    """The whole command tree, as typer documents it, with whole sentences in its lists of commands."""
    command = [sys.executable, "-c", _TYPER, "onceonly.cli.app", "utils", "docs", "--name", "onceonly"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return text.replace("# `onceonly`", "# Command line", 1)


def error_classes() -> str:
    """The table of error classes, with the codes of each."""
    lines = ["| class | codes | meaning | `retry` |", "|---|---|---|---|"]
    codes = {code: errors.class_of(code) for code in errors.CATALOGUE if not code.startswith("W")}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.OnceOnlyError) and kind is not errors.OnceOnlyError:
            told = [code for code, found in codes.items() if issubclass(found, kind)]
            if kind.__base__ is errors.OnceOnlyError:
                told = [f"{told[0][:2]}xx"]
            meaning = inspect.getdoc(kind).partition("\n")[0].replace(f" ({told[0]})", "")
            link, retry = f"[`{name}`][onceonly.errors.{name}]", "yes" if kind.retry else "no"
            lines.append(f"| {link} | {', '.join(told)} | {_literal(meaning)} | {retry} |")
    return "\n".join(lines)


def from_the_root(text: str) -> str:
    """A page that stands above ``docs``, as one below it: its links start one folder deeper."""
    return re.sub(r"\]\(docs/", "](", text)


def main() -> None:
    """Write them all."""
    for code in all_codes():
        write(f"codes/{code}.md", code_page(code), "src/onceonly/errors/codes")
    write("codes/index.md", code_index(), "src/onceonly/errors/codes")
    write("reference/cli.md", command_line(), "src/onceonly/cli/tree.py")
    page = "reference/python/errors.md"
    text = (ROOT / "docs" / page).read_text().replace("<!-- error classes -->", error_classes())
    write(page, text, "src/onceonly/errors/__init__.py")
    write("index.md", from_the_root((ROOT / "README.md").read_text()), "README.md")
    write("changelog.md", from_the_root((ROOT / "CHANGELOG.md").read_text()), "CHANGELOG.md")


main()
