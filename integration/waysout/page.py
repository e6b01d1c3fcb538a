"""Keeps what a walk has found, and writes the page of the docs: ``python -m integration.waysout.page``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from integration.waysout.situations import SITUATIONS
from integration.waysout.walk import Cell
from integration.waysout.world import SHAPES

FACTS, PAGE = "ways-out.json", "ways-out.md"
DOCS = Path(__file__).parents[2] / "docs"
_ORDER = ("files", "Kafka", "stateless", "stateful", "Postgres", "Delta", "three")
_HEAD = """# Ways out

Each line is something that happened to a pipeline which held four epochs, and what led out of it. The code is the one
that the query stopped with; `-` means that it went on by itself. Each command was taken from the message, run, and run
again with `--yes` as its plan prints it. Then the query was started, and every row was compared with the input. Where a
second refusal came, its commands were followed, too. Each way began in a fresh copy of the same wreck.

"Tells, changes nothing" shows where the pipeline stands. "Nothing lost" also means that nothing was doubled.
"three" is a pipeline into two Postgres databases and a Delta table; what happens to a sink happens to the first
database.
"""
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "tests/cli/test_ways_out.py": ("E202", "E213", "E216", "E218", "E219", "E228"),
    "integration/test_wrapper.py": ("E201", "E217"),
    "tests/core/test_opening.py": ("E210",),
    "integration/test_remedies.py": ("E215",),
    "integration/test_overlap.py": ("E220",),
    "tests/cli/test_taking_over.py": ("E221",),
    "integration/test_refresh.py": ("E246",),
    "tests/core/test_refresh_several.py": ("E247",),
    "tests/cli/test_panes_command.py": ("E226",),
    "tests/cli/test_rewind_command.py": ("E231", "E232"),
    "integration/test_rewind.py": ("E233",),
    "integration/test_replay.py": ("E230", "E234", "E235", "E236", "E238"),
    "tests/core/test_read_at.py": ("E243", "E244", "E245"),
    "tests/core/test_rerun.py": ("E239",),
    "integration/test_growing_sources.py": ("E250",),
    "integration/test_publish.py": ("E240", "E241", "E242"),
}
"""Tests of the codes that no line shows: they need no wreck, or one that is not made here."""

_TAIL = """
Options such as `adopt="here"` are arguments of a first start, and a backup that is put back is nobody's command.
`make ways-out` walks all of it again and writes this page; the facts are in [ways-out.json](ways-out.json).
It also walks out of 24 pairs of losses and dumps, drawn by a seed that it prints: checkpoint, ledger, one
sink, staging, an input file, Spark's state, a topic made again, two at a time; a table or a database restored from a
dump, rows restored alone, RESTORE to a moment and over vacuumed files. There no row may be lost or doubled that no
command on the way named, and the audit's verdict is held against the count. Where Spark itself stops before onceonly
is called, because the directory of state is gone or a topic ends before the checkpoint's offset, the way is a new
checkpoint; what is printed then leads on.
"""

Line = Mapping[str, Any]


def _key(line: Line) -> tuple[int, ...]:
    place = [_ORDER.index(line[name]) for name in ("source", "state", "sinks")]
    return (list(SITUATIONS).index(line["situation"]), *place)


def read(folder: Path = DOCS) -> list[Line]:
    """The lines found so far, in the order of the page."""
    place = folder / FACTS
    return json.loads(place.read_text()) if place.exists() else []


def write(cells: Sequence[Cell], folder: Path = DOCS) -> None:
    """Put new lines in the place of those of an earlier walk, and write the page."""
    lines = {_key(line): line for line in read(folder)}
    lines |= {_key(cell.to_dict()): cell.to_dict() for cell in cells}
    folder.mkdir(parents=True, exist_ok=True)
    told = [lines[key] for key in sorted(lines)]
    (folder / FACTS).write_text(json.dumps(told, indent=1) + "\n")
    (folder / PAGE).write_text(page(told))


def page(lines: Sequence[Line]) -> str:
    """The page: a section per situation, a line per pipeline and way."""
    ways = [way for line in lines for way in line["ways"]]
    bad = sum(not way["good"] for way in ways)
    wrecks = sum(what.fits(shape) for what in SITUATIONS.values() for shape in SHAPES)
    tally = f"\n{len(lines)} of {wrecks} wrecks were walked: {len(ways)} ways, {bad} of them dead ends.\n"
    return _HEAD + tally + "".join(_sections(lines)) + _elsewhere() + _TAIL


def _elsewhere() -> str:
    rows = [f"| {', '.join(codes)} | `{test}` |\n" for test, codes in ELSEWHERE.items()]
    return "\n## Codes shown elsewhere\n\n| codes | shown by |\n|---|---|\n" + "".join(rows)


def codes(lines: Sequence[Line]) -> set[str]:
    """Every code that a line or a named test shows."""
    return {line["code"] for line in lines} | {code for codes in ELSEWHERE.values() for code in codes}


def _sections(lines: Sequence[Line]) -> Iterator[str]:
    for situation in dict.fromkeys(line["situation"] for line in lines):
        yield f"\n## {situation[0].upper()}{situation[1:]}\n\n| pipelines | code | way | ends |\n|---|---|---|---|\n"
        rows: dict[tuple[str, str, str], list[str]] = {}
        for line in lines:
            for way in line["ways"] if line["situation"] == situation else ():
                row = (line["code"] or "-", way["remedy"], way["verdict"])
                rows.setdefault(row, []).append(" ".join(line[name] for name in ("source", "state", "sinks")))
        for (code, remedy, verdict), pipelines in rows.items():
            yield f"| {'; '.join(pipelines)} | {code} | `{remedy}` | {verdict.replace('|', '/')} |\n"


if __name__ == "__main__":
    write(())
