"""Prints the import layers of the packages, read from the source; ``--picture FILE`` draws them.

Layers come from the contracts of import-linter in ``pyproject.toml``, where a package that no layer names is an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp
import tomllib

ROOT = Path(__file__).parent.parent
_FOLDERS = {
    "onceonly_checkpoints": "checkpoints",
    "onceonly": "src",
    "onceonly_sinks": "sinks",
    "onceonly_lab": "src",
    "pyspark_onceonly": "src",
}
_HOLDS = {
    "pyspark_onceonly": 'the class that Spark finds by this name: format("onceonly")',
    "onceonly_lab": "the fault lab: model, explorer, chaos, checker, servers",
    "onceonly_sinks": "one package per destination, and the suite that each must pass",
    "onceonly": "decides and runs; knows no driver and no broker",
    "onceonly_checkpoints": "value types, Spark's checkpoint files, the ledger",
}
_TITLE = "Import layers: what stands above may import what stands below"
_WIDTH, _GAP, _ROW = 860, 14, 46
_STYLE = "font-family:ui-sans-serif,system-ui,sans-serif;font-size:14px;background:#fff"


@dataclass(frozen=True)
class Package:
    """One package of a layer.

    Attributes:
        name: dotted.
        modules: how many ``.py`` files it has.
        lines: of all of them.
        imports: names of its neighbours that it imports, and by how many import statements.
    """

    name: str
    modules: int
    lines: int
    imports: dict[str, int]

    @property
    def leaf(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]

    def line(self) -> str:
        """What is printed of it."""
        ordered = sorted(self.imports.items(), key=lambda one: -one[1])
        below = ", ".join(f"{name.rpartition('.')[2]} {count}" for name, count in ordered) or "nothing of ours"
        return f"{self.leaf:22} {self.modules:4} modules {self.lines:7,} lines   imports {below}"


Layers = Sequence[Sequence[Package]]
"""From top to bottom; packages of one layer import nothing of each other."""


def layers(graph: grimp.ImportGraph, container: str = "") -> Layers:
    """Layers inside of a package, or of all packages, as the contract says them.

    Raises:
        SystemExit: no contract speaks of them.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for contract in contracts:
        if contract["type"] == "layers" and contract.get("containers", [""]) == [container]:
            above = f"{container}." if container else ""
            names = [[above + one.strip() for one in layer.split("|")] for layer in contract["layers"]]
            every = [name for layer in names for name in layer]
            return [[_package(graph, name, every) for name in layer] for layer in names]
    raise SystemExit(f"no contract of type layers speaks of {container or 'the packages'}")


def _package(graph: grimp.ImportGraph, name: str, neighbours: list[str]) -> Package:
    files = sorted((ROOT / _FOLDERS[name.partition(".")[0]] / name.replace(".", "/")).rglob("*.py"))
    lines = sum(len(file.read_text().splitlines()) for file in files)
    return Package(name, len(files), lines, _imports(graph, name, neighbours))


def _imports(graph: grimp.ImportGraph, name: str, neighbours: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for module in (name, *graph.find_descendants(name)):
        for imported in graph.find_modules_directly_imported_by(module):
            home = next((neighbour for neighbour in neighbours if f"{imported}.".startswith(f"{neighbour}.")), name)
            if home != name:
                statements = graph.get_import_details(importer=module, imported=imported)
                found[home] = found.get(home, 0) + len(statements)
    return found


def picture(outer: Layers, inner: Layers) -> str:
    """The layers as boxes in SVG; without sizes, so that it changes only when the layers or what they import do."""
    body: list[str] = []
    y = _GAP
    for layer in outer:
        (package,) = layer
        inside = inner if package.name == "onceonly" else ()
        height = _ROW + len(inside) * (_ROW + 8) + (6 if inside else 0)
        body += _box((_GAP, y, _WIDTH - 2 * _GAP, height), package.leaf, _HOLDS[package.name], "#eef2f6")
        for row, beside in enumerate(inside):
            width = (_WIDTH - 4 * _GAP - 8 * (len(beside) - 1)) / len(beside)
            for at, one in enumerate(beside):
                below = ", ".join(sorted(name.rpartition(".")[2] for name in one.imports))
                place = (2 * _GAP + at * (width + 8), y + _ROW + row * (_ROW + 8), width, _ROW)
                body += _box(place, one.leaf, f"imports {below}" if below else "imports none of these", "#ddebf7")
        y += height + _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img"'
    return "\n".join([f'{head} aria-label="{_TITLE}" style="{_STYLE}">', f"<title>{_TITLE}</title>", *body, "</svg>\n"])


def _box(place: tuple[float, float, float, float], heading: str, said: str, fill: str) -> Iterator[str]:
    x, y, width, height = place
    size = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
    yield f'<rect {size} rx="5" fill="{fill}" stroke="#57606a"/>'
    yield f'<text x="{x + 10:.0f}" y="{y + 19:.0f}" font-weight="600" fill="#1f2328">{escape(heading)}</text>'
    yield f'<text x="{x + 10:.0f}" y="{y + 36:.0f}" font-size="11" fill="#57606a">{escape(said)}</text>'


def main() -> int:
    """The command; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the layers as SVG")
    asked = parser.parse_args()
    graph = grimp.build_graph(*_FOLDERS, cache_dir=None)
    outer, inner = layers(graph), layers(graph, "onceonly")
    print(*(one.line() for layer in outer for one in layer), sep="\n")
    print("", "inside of onceonly:", *(one.line() for layer in inner for one in layer), sep="\n")
    if asked.picture:
        asked.picture.write_text(picture(outer, inner))
    return 0


if __name__ == "__main__":
    sys.exit(main())
