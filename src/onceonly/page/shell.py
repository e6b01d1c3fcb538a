"""Puts a page together: templates with escaping, one style sheet, one script that the page allows by its hash."""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment

HOME = "onceonly.page"
"""The package with the templates, styles and script that every page has."""

_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Taken:
    """When and with what a page was written.

    Attributes:
        at_ms: milliseconds since 1970.
        onceonly: version of this package.
        python: version of Python.
    """

    at_ms: int
    onceonly: str
    python: str

    @classmethod
    def now(cls) -> Taken:
        """Here and now."""
        return cls(time.time_ns() // 1_000_000, version("onceonly"), platform.python_version())


@dataclass(frozen=True)
class Shell:
    """The frame around one kind of page.

    Attributes:
        room: package with a folder ``templates``, in which ``<name>.html.j2`` extends ``shell.html.j2``.
        name: of that template, and of ``<name>.css`` and ``<name>.js``, which follow the common style and script;
            either may be absent.
    """

    room: str
    name: str

    def render(self, taken: Taken, document: dict[str, Any], **values: Any) -> str:
        """The page.

        Args:
            taken: when.
            document: the facts, embedded as JSON in the element ``#facts``.
            values: what else the template names; texts among them are escaped.
        """
        script = self._joined("js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return self._templates.get_template(f"{self.name}.html.j2").render(
            taken=taken,
            facts=Markup(embedded(document)),
            style=Markup(self._joined("css")),
            script=Markup(script),
            # Nothing but this very script may run, and nothing may be fetched, whatever else the page may hold.
            policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'none'",
            **values,
        )

    def _joined(self, suffix: str) -> str:
        own = files(self.room).joinpath("templates", f"{self.name}.{suffix}")
        common = files(HOME).joinpath("templates", f"page.{suffix}").read_text(encoding="utf-8")
        return common + own.read_text(encoding="utf-8") if own.is_file() else common

    @cached_property
    def _templates(self) -> Environment:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

        made = Environment(
            loader=ChoiceLoader([PackageLoader(self.room), PackageLoader(HOME)]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters.update(clock=clock, thousands=lambda number: f"{number:,}", ms=_milliseconds)
        return made


def embedded(document: dict[str, Any]) -> str:
    """JSON that stands inside a ``<script>`` element: no text in it can end the element or begin another one."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


def put(path: Path, page: str) -> None:
    """Write a page into a file, which is there completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    # A reader who reloads must never see half a page.
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(page, encoding="utf-8")
    unfinished.replace(path)


def clock(milliseconds: int) -> str:
    """Milliseconds since 1970 as a readable time in UTC; ``-`` for 0."""
    if not milliseconds:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}"
