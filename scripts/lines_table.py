"""Writes the README's table of Sparks and Pythons from ``docs/lines.json``, which ``make lines`` writes; prints it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onceonly.spark.lines import LINES, minor_of

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULT = ROOT / "docs" / "lines.json"
START, END = "<!-- lines:start -->\n", "<!-- lines:end -->\n"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def table(outcomes: Iterable[Mapping[str, Any]]) -> str:
    """A row for each Spark, a column for each Python; what nobody ran is called untried."""
    found = {(one["line"], minor_of(one["python"])): one for one in outcomes}
    pythons = [*PYTHONS, *sorted({python for _, python in found} - set(PYTHONS))]
    heads = ["PySpark", *(f"Python {python}" for python in pythons), "Delta by Spark", "Spark's Kafka source"]
    rows = [heads, ["---"] * len(heads)]
    for line in LINES.values():
        cells = [_cell(found.get((line.minor, python))) for python in pythons]
        delta = f"Delta {line.delta.version}" if line.delta else "no jar: refused"
        kafka = f"jars of {line.kafka}" if line.kafka else "no jars: refused"
        rows.append([line.minor, *cells, delta, kafka])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return "untried"
    failed = f"**{outcome['failed']} failed**, " if outcome["failed"] else ""
    skipped = f", {outcome['skipped']} skipped" if outcome["skipped"] else ""
    return f"{outcome['pyspark']}: {failed}{outcome['passed']} passed{skipped}"


def written(readme: str, made: str) -> str:
    """The README with this table in place of the one that it has."""
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{made}{END}{after}"


def main() -> None:
    """Write the table."""
    made = table(json.loads(RESULT.read_text()))
    README.write_text(written(README.read_text(), made))
    print(made, end="")


if __name__ == "__main__":
    main()
