"""Turns a Vega-Lite chart into SVG that belongs into the page: its colours, its fonts, nothing that could run.

The chart is drawn here and not in the reader's browser: the page then needs no chart library, opens at once, prints as
it is seen, and follows light and dark through the style sheet, since colours are names of CSS variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup, escape

Spec = Mapping[str, Any]

_TAGS = frozenset({"svg", "g", "path", "text", "tspan", "rect", "line"})
_SHAPE = frozenset({"viewBox", "d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height"})
_LOOK = frozenset({"fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity"})
_KEPT = _SHAPE | _LOOK | {"text-anchor", "font-size", "font-weight"}
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
    """The chart library answered with something that does not belong into the page."""


def svg(spec: Spec, label: str) -> Markup:
    """Draw a chart.

    Args:
        spec: a Vega-Lite specification; colours may be CSS, and ``description`` channels become what is shown under
            the pointer.
        label: what a screen reader says instead of the picture.

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
        if name in _KEPT and not (tag == "svg" and name in _SIZE) and (name, value) != ("opacity", "1"):
            yield f' {name}="{escape(_FRACTION.sub(_rounded, value) if name in _SHAPE else value)}"'
    # Only marks: Vega describes axes and legends as well, which are groups.
    if tag == "path" and element.get("role") == "graphics-symbol":
        yield f' data-tip="{escape(element.get("aria-label", ""))}"'


def _rounded(number: re.Match[str]) -> str:
    """A hundredth of a pixel is finer than any screen, and a third of the page would be digits."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
