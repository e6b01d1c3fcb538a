"""Write the table of Sparks and Pythons in ``docs/install.md`` from ``docs/lines.json``, and print it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onceonly.spark.versions import LINES, minor_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "install.md"
RESULT = ROOT / "docs" / "lines.json"
START, END = "<!-- lines:start -->\n", "<!-- lines:end -->\n"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def table(outcomes: Iterable[Mapping[str, Any]]) -> str:
    """A row for each Spark, a column for each Python; what nobody ran is called untried."""
    found = {(outcome["line"], minor_of(outcome["python"])): outcome for outcome in outcomes}
    pythons = [*PYTHONS, *sorted({python for _, python in found} - set(PYTHONS))]
    heads = ["PySpark", *(f"Python {python}" for python in pythons), "Delta jar", "Kafka jars"]
    heads += ["Spark Connect", '`format("onceonly")`']
    rows = []
    for line in LINES.values():
        cells = [_cell(found.get((line.minor, python))) for python in pythons]
        delta = line.delta.version if line.delta else "none"
        kafka = line.kafka or "none"
        ran = [found[line.minor, python] for python in pythons if (line.minor, python) in found]
        ways = [_way(ran, "connect", able=line.spark_connect), _way(ran, "format", able=line.data_source)]
        rows.append([line.minor, *cells, delta, kafka, *ways])
    head, *body = (f"| {' | '.join(row)} |\n" for row in (heads, *rows))
    return "".join([head, f"|{'---|' * len(heads)}\n", *body])


def _cell(outcome: Mapping[str, Any] | None) -> str:
    return f"{outcome['pyspark']}: {_counts(outcome)}" if outcome else "untried"


def _way(outcomes: Iterable[Mapping[str, Any]], way: str, *, able: bool) -> str:
    """What ran by one way in, on whichever Pythons; where the line has not got it, that it was refused is no more."""
    counts = {minor_of(outcome["python"]): outcome[way] for outcome in outcomes if any(outcome.get(way, {}).values())}
    failed = any(count["failed"] for count in counts.values())
    if not able and not failed:
        return "refused"
    ran = [f"{python}: {_counts(one)}" for python, one in counts.items() if one["passed"] or one["failed"]]
    return "; ".join(ran) or "untried"


def _counts(found: Mapping[str, Any]) -> str:
    failed = f"**{found['failed']} failed**, " if found["failed"] else ""
    skipped = f", {found['skipped']} skipped" if found["skipped"] else ""
    return f"{failed}{found['passed']} passed{skipped}"


def written(page: str, made: str) -> str:
    """The page with this table in place of the one that it has."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{made}{END}{after}"


def main() -> None:
    """Write the table."""
    made = table(json.loads(RESULT.read_text()))
    PAGE.write_text(written(PAGE.read_text(), made))
    print(made, end="")


if __name__ == "__main__":
    main()
