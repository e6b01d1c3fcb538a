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
_HEAD = """# Recovery commands, walked

You see here every command that a refusal prints, and the result of running it. You need it when you doubt a command.
Each line is a damage to a pipeline of four epochs, the code that the query stopped with, and what followed. `-` means
that the query went on by itself.

A test took the command from the message, ran it, and ran it again with `--yes`. Then it started the query and compared
every row with the input. It followed the commands of a second refusal, too. Each line began with a fresh copy of the
damaged pipeline.

"Tells, changes nothing" is a command that only shows the state. "Nothing lost" also means nothing doubled. "three" is a
pipeline into two Postgres databases and a Delta table. Damage to a sink is damage to the first database.
"""
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "tests/cli/test_ways_out.py": ("E202", "E213", "E216", "E218", "E219", "E228"),
    "integration/test_wrapper.py": ("E201", "E217"),
    "tests/core/test_opening.py": ("E210",),
    "integration/test_remedies.py": ("E215",),
    "integration/test_state_version.py": ("E248",),
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
Not walked: options such as `Recovery(adopt="here")`, which are arguments, and a restored backup, which is no command.
`make ways-out` walks everything again and writes this page from [ways-out.json](ways-out.json).

It also walks 24 pairs of damages, drawn by a printed seed. Two of these are combined: a lost checkpoint, ledger, sink
or staging, a lost input file, lost Spark state, a recreated topic. Or a table or database is restored: from a dump,
rows alone, by RESTORE to a moment, over vacuumed files. No row may be lost or doubled that no command named, and the
audit must agree with the count. Where Spark itself stops first, because the state directory is gone or a topic ends
before the checkpoint's offset, you begin with a new checkpoint. The commands that are printed then lead on.
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
    tally = f"\n{len(lines)} of {wrecks} damages, {len(ways)} remedies. {bad} of them led nowhere.\n"
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
