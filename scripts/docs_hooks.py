"""Makes pages that are read in the repository fit the site: links into it become labels, ``python spark`` is Python."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

_LINK = re.compile(r"\[(?P<label>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
_ELSEWHERE = {"../README.md": "index.md", "../CHANGELOG.md": "changelog.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the repository that stand in the site under another name, by path from ``docs``."""

_SPARK = re.compile(r"^```(python|sql) (?:spark|postgres|chaos|untried)$", re.MULTILINE)
_UNKNOWN = re.compile(r"^```\w+ (?!title=\"[^\"]*\"$).*$", re.MULTILINE)
"""Opens a block that the site would not take for one: its code and all that follows would be shown as text."""

_FENCED = re.compile(r"(^```.*?^```\s*$)", re.MULTILINE | re.DOTALL)
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//[^>]*>|<link\b[^>]*stylesheet[^>]*//[^>]*>"
)
"""An element for which a browser would ask another place."""


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Take links out that lead from the site into the repository, and give blocks a language that the site knows.

    Raises:
        PluginError: a block has none.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in _ELSEWHERE:
            there = posixpath.relpath(_ELSEWHERE[path], folder or ".")
            return f"[{link['label']}]({there}{link['anchor'] or ''})"
        return link[0] if files.get_file_from_path(path) is not None else link["label"]

    parts = _FENCED.split(markdown)
    told = (_SPARK.sub(r"```\1", part) if index % 2 else _LINK.sub(shown, part) for index, part in enumerate(parts))
    text = "".join(told)
    if unknown := _UNKNOWN.search(text):
        raise PluginError(f"{page.file.src_uri} has a block that the site cannot show: {unknown[0]}")
    return text


def on_post_build(config: Any, **_: Any) -> None:
    """Demand that no page fetches a script, style or picture from elsewhere when it is read.

    Raises:
        PluginError: one does.
    """
    for page in Path(config["site_dir"]).rglob("*.html"):
        if found := _FETCHED.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page.name} is not readable offline: {found[0]}")
