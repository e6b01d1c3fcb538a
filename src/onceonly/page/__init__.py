"""Page kit: one offline HTML file with charts, light and dark.

Charts are drawn before the page, and no text from data can act as code. The audit page and the lab's report have
templates of their own, which extend ``shell.html.j2``. Needs the extra ``report``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup, escape

from onceonly_checkpoints.epoch_time import clock

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Shell", "Spec", "Provenance", "Undrawable", "clock", "embedded", "facts", "put", "svg"]

# ---- Turns a Vega-Lite chart into SVG that belongs into the page: its colours, its fonts, nothing that could run.
#
# The chart is drawn here and not in the reader's browser: the page then needs no chart library, opens at once, prints
# as it is seen, and follows light and dark through the style sheet, since colours are names of CSS variables.

Spec = Mapping[str, Any]

_TAGS = frozenset({"svg", "g", "path", "text", "tspan", "rect", "line"})
_SHAPE = frozenset({"viewBox", "d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height"})
_LOOK = frozenset({"fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity"})
_ATTRIBUTES = _SHAPE | _LOOK | {"text-anchor", "font-size", "font-weight"}
_FRACTION = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_SIZE = frozenset({"width", "height"})

_TEXT = {"labelColor": "var(--muted)", "titleColor": "var(--muted)", "titleFontWeight": "normal"}
_CONFIG = {
    "background": None,
    "font": "Liberation Sans, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "gridColor": "var(--line)",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "titlePadding": 8,
    },
    "axisX": {"grid": False, "domain": True, "domainColor": "var(--line)", "titleAnchor": "end"},
    "axisY": {"titleAnchor": "end", "tickCount": 4},
    "legend": {**_TEXT, "orient": "top", "labelFontSize": 11, "title": None, "symbolType": "square"},
    "header": {**_TEXT, "labelFontSize": 11},
}


class Undrawable(RuntimeError):
    """The chart library returned an element that is not allowed in the page."""


def svg(spec: Spec, label: str) -> Markup:
    """Draw a chart.

    Args:
        spec: a Vega-Lite specification. Colours may be CSS, and ``description`` channels become tooltips.
        label: text for screen readers.

    Raises:
        Undrawable: the drawing holds an element that is not part of a picture.
    """
    import vl_convert

    drawn = vl_convert.vegalite_to_svg({"config": _CONFIG, **spec}, show_warnings=False)
    root = ElementTree.fromstring(drawn)
    return Markup("".join(_written(root, f' class="chart" role="img" aria-label="{escape(label)}"')))


def _written(element: ElementTree.Element, extra: str = "") -> Iterator[str]:
    tag = element.tag.rpartition("}")[2]
    if tag not in _TAGS:
        raise Undrawable(f"a chart holds <{tag}>")
    yield f"<{tag}{extra}{''.join(_attributes(element, tag))}>"
    yield escape(element.text or "")
    for child in element:
        yield from _written(child)
    yield f"</{tag}>"


def _attributes(element: ElementTree.Element, tag: str) -> Iterator[str]:
    for name, value in element.attrib.items():
        if name in _ATTRIBUTES and not (tag == "svg" and name in _SIZE) and (name, value) != ("opacity", "1"):
            yield f' {name}="{escape(_FRACTION.sub(_rounded, value) if name in _SHAPE else value)}"'
    # Only marks: Vega describes axes and legends as well, which are groups.
    if tag == "path" and element.get("role") == "graphics-symbol":
        yield f' data-tip="{escape(element.get("aria-label", ""))}"'


def _rounded(number: re.Match[str]) -> str:
    """Round to a hundredth of a pixel, finer than any screen. Otherwise a third of the page would be digits."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


# ---- What all charts have in common: paints with a texture each, channels, layers, room for names. Pure.

TIP = {"field": "tip", "type": "nominal"}
"""The channel of what is shown under the pointer."""

NAMES = {"labelLimit": 220, "title": None, "grid": False}
"""The axis of lanes that have names."""

_WIDEST = 36
"""Letters of a name that fit beside a chart."""


def paint(key: str) -> str:
    """Return colour and texture by their names in the style sheet. A healthy outcome has no texture."""
    return f"var(--{key})" if key == "exact" else f"url(#paint-{key})"


def painted(field: str, keys: Mapping[Any, str]) -> dict[str, Any]:
    """Return the colour channel of a field, by the paint of each of its values. The page has a legend of its own."""
    scale = {"domain": list(keys), "range": [paint(key) for key in keys.values()]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}


def quantity(field: str, title: str | None, **more: Any) -> dict[str, Any]:
    """Return the channel of a number."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def lanes(field: str, names: Iterable[str], scale: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channel of lanes that have names, in their order."""
    return {"field": field, "type": "nominal", "sort": list(names), "axis": NAMES, "scale": scale}


def room(names: Iterable[str]) -> dict[str, Any]:
    """Return the padding for names: they are measured in one font and shown in another, perhaps a wider one."""
    longest = max((len(name) for name in names), default=0)
    return {"left": 8 + min(_WIDEST, longest) * 1.5, "right": 12, "top": 5, "bottom": 5}


def layer(values: Iterable[Mapping[str, Any]], mark: Mapping[str, Any], **encoding: Any) -> Iterator[dict[str, Any]]:
    """Return one layer over some values, or none without values."""
    listed = list(values)
    if listed:
        yield {"data": {"values": listed}, "mark": mark, "encoding": encoding}


# ---- Puts a page together: templates with escaping, one style sheet, one script that the page allows by its hash.

HOME = "onceonly.page"
"""The package with the templates, styles and script that every page has."""

_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Time (``at_ms``, milliseconds since 1970) and versions with which a page was written."""

    at_ms: int
    onceonly: str
    python: str

    @classmethod
    def now(cls) -> Provenance:
        """Here and now."""
        return cls(time.time_ns() // 1_000_000, version("onceonly"), platform.python_version())


@dataclass(frozen=True)
class Shell:
    """The frame around one kind of page.

    Attributes:
        room: package with a folder ``templates``, in which ``<name>.html.j2`` extends ``shell.html.j2``.
        name: of that template, and of ``<name>.css`` and ``<name>.js``, which follow the common style and script.
            Either may be absent.
    """

    room: str
    name: str

    def render(self, taken: Provenance, document: dict[str, Any], **values: Any) -> str:
        """Render the page.

        The facts in ``document`` are embedded as JSON in the element ``#facts``. Texts among ``values`` are escaped.
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
        own = files(self.room) / "templates" / f"{self.name}.{suffix}"
        common = (files(HOME) / "templates" / f"page.{suffix}").read_text(encoding="utf-8")
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
    """Return JSON for a ``<script>`` element. No text in it can end the element or begin another one."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


def facts(version: int, provenance: Provenance, verdict: str, **parts: Any) -> dict[str, Any]:
    """Build the document behind a page. ``version`` is that of the embedded form."""
    return {
        "schema_version": version,
        "taken_ms": provenance.at_ms,
        "onceonly": provenance.onceonly,
        "verdict": verdict,
        **parts,
    }


def put(path: Path, page: str) -> None:
    """Write a page into a file, atomically (``OSError``: it cannot be written)."""
    # A reader who reloads must never see half a page.
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(page, encoding="utf-8")
    unfinished.replace(path)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}"
