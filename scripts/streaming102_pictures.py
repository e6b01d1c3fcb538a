"""Draw the figures of Streaming 102 from a run of ``make streaming102``: RUN.json FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from onceonly_lab.demo.pictures import figure
from onceonly_lab.demo.streaming102 import Result, data

RECORDS = Path(__file__).parent.parent / "tests" / "panes" / "data" / "streaming102.json"


def main(run: str, folder: str) -> int:
    """Draw each figure of a run."""
    arrivals = {record["event"]: record["arrival_a"] for record in json.loads(RECORDS.read_text())["records"]}
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, rows in json.loads(Path(run).read_text())["rows"].items():
        epochs = data()[name]["epochs"]
        # One epoch has all records: each is drawn where it arrived.
        late = arrivals if len(epochs) == 1 else None
        picture = figure(name, epochs, [Result(**row) for row in rows], arrivals=late)
        (place / f"{name.lower().replace(' ', '-')}.svg").write_text(picture)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
