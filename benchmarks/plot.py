"""Figures over time as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any


def picture(samples: Sequence[Any], names: Sequence[str], title: str) -> str:
    """Attributes of samples over their ``second``, each in a field of its own, as SVG."""
    width, height, gap = 300, 70, 34
    total = (height + gap) * ((len(names) + 1) // 2) + 20
    style = "font-family:ui-sans-serif,system-ui,sans-serif;font-size:11px;background:#fff"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * width + 60} {total}" role="img" style="{style}">'
    ]
    parts.append(f"<title>{escape(title)}</title>")
    end = max(samples[-1].second, 1)
    for at, name in enumerate(names):
        values = [float(getattr(one, name)) for one in samples]
        top = max(values) or 1.0
        x, y = 20 + (at % 2) * (width + 20), 24 + (at // 2) * (height + gap)
        points = " ".join(
            f"{x + width * one.second / end:.1f},{y + height - height * value / top:.1f}"
            for one, value in zip(samples, values, strict=True)
        )
        parts.append(f'<text x="{x}" y="{y - 6}">{name}, 0 to {top:,.0f}</text>')
        parts.append(f'<path d="M{x} {y + height} h{width}" stroke="#57606a"/>')
        parts.append(f'<polyline points="{points}" fill="none" stroke="#0969da"/>')
    return "\n".join([*parts, "</svg>\n"])
