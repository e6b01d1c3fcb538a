"""The README is short, its status line is the packages' own, and its figures are those of the committed runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from benchmarks.report import as_markdown
from tests.test_docs import README, ROOT

from onceonly.spark.versions import LINES

pytestmark = pytest.mark.docs

COMPARISON = ROOT / "docs" / "comparison.md"
TUNING = ROOT / "docs" / "tuning.md"
RESULTS = ROOT / "benchmarks" / "results"


def test_the_readme_is_short() -> None:
    text = README.read_text()
    lines = text.splitlines()
    assert len(text.split()) <= 900
    assert next(number for number, line in enumerate(lines) if line.startswith("pip install ")) < 30
    assert next(number for number, line in enumerate(lines) if line.startswith('```python title="')) < 50


def test_the_status_line_is_what_the_packages_and_the_runs_have() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "Development Status :: 3 - Alpha" in project["classifiers"]
    ran = sorted(
        {outcome["python"].rpartition(".")[0] for outcome in json.loads((ROOT / "docs/lines.json").read_text())}
    )
    oldest, *_, newest = LINES.values()
    line = (
        f"**Status**: alpha {project['version']}"
        f" · Python {project['requires-python'].removeprefix('>=')} or newer (run on {', '.join(ran)})"
        f" · PySpark {oldest.minor} to {newest.minor} · Java {' or '.join(map(str, newest.java))}"
        f" · {project['license']} · Databricks not tried"
    )
    assert line in README.read_text().splitlines()


# ---- figures


def figures(page: Path) -> list[tuple[str, str, str, str]]:
    """Job, sink, ratio and the name of the run, of each row of a page's table of speed."""
    row = r"^\| ([^|]+) \| ([^|]+) \| (?:[^|]+ \| )?(\d[^|]+ \([^|]+\)) \| \[([\w-]+)\]\([^)]*results/\4\.md\) \|$"
    return re.findall(row, page.read_text(), re.MULTILINE)


def bars(run: str) -> dict[tuple[str, str], tuple[str, bool]]:
    """Ratio and whether its bar was met, by job and sink, as the table of a committed run has them."""
    kept = json.loads((ROOT / "benchmarks" / "results" / f"{run}.json").read_text())
    rows = [
        line.strip("|").split("|")
        for line in as_markdown(kept).splitlines()
        if line.endswith((" met |", " **missed** |"))
    ]
    cells = [[cell.strip(" ").replace("**", "") for cell in row] for row in rows]
    return {(job, sink): (ratio, met == "met") for job, sink, *_, ratio, _, met in cells}


@pytest.mark.parametrize(
    ("page", "rows"), [(README, 3), (COMPARISON, 8), (TUNING, 6)], ids=lambda value: str(getattr(value, "stem", value))
)
def test_the_figures_of_a_page_are_those_of_the_committed_runs(page: Path, rows: int) -> None:
    found = figures(page)
    assert len(found) >= rows
    assert {(job, sink): ratio for job, sink, ratio, _ in found} == {
        (job, sink): bars(run)[job, sink][0] for job, sink, _, run in found
    }


def test_a_bar_that_was_missed_is_on_the_page_that_compares() -> None:
    shown = {(job, sink) for job, sink, _, _ in figures(COMPARISON)}
    runs = ("bench", "delta-large", "postgres-large", "kafka-large", "long")
    missed = {key for run in runs for key, (_, met) in bars(run).items() if not met}
    assert missed
    assert missed <= shown


def test_the_figures_of_the_faq_are_those_of_the_same_runs() -> None:
    text = " ".join((ROOT / "docs" / "faq.md").read_text().split())
    large = [ratio.split()[0] for _, _, ratio, _ in figures(README)]
    assert "Delta reaches {} of the speed of the fastest peer, Postgres {}, and Kafka {}.".format(*large) in text
    added = [float(ratio.split()[0]) for ratio, _ in bars("bench").values() if " ms more per epoch " in ratio]
    assert f"takes {min(added):g} to {max(added):g} ms longer than an empty `foreachBatch`" in text


def test_the_figures_of_tuning_are_those_of_the_same_runs() -> None:
    """Latency by interval is row by row as in its run; the two restarts and the two tables are those of theirs."""
    text = " ".join(TUNING.read_text().split())
    intervals = re.findall(r"^\| .* ms \| .* ms \|$", TUNING.read_text(), re.MULTILINE)
    assert len(intervals) >= 6
    assert set(intervals) <= set((RESULTS / "intervals.md").read_text().splitlines())
    bench = " ".join((RESULTS / "bench.md").read_text().split())
    [plain] = re.findall(r"The same with `getOrCreate\(\)`: ([\d.]+) s", bench)
    [prepared] = [ratio.split()[0] for (job, _), (ratio, _) in bars("bench").items() if job.startswith("SIGKILL")]
    assert f"| `getOrCreate()` | {plain} | | prepared, as below | {prepared} |" in text
    aged = {sink: ratio.split()[0] for (_, sink), (ratio, _) in bars("long").items()}
    tended, kept = (next(aged[sink] for sink in aged if word in sink) for word in ("compacted", "every file"))
    assert f"takes {kept} times as long as epoch 100, against {tended} with those two settings" in text


# ---- the picture


def test_the_picture_of_an_epoch_is_as_its_script_draws_it(tmp_path: Path) -> None:
    drawn = tmp_path / "epoch.svg"
    subprocess.run([sys.executable, ROOT / "scripts/epoch_picture.py", drawn], check=True)
    assert drawn.read_text() == (ROOT / "docs/images/epoch.svg").read_text(), "draw it again: scripts/epoch_picture.py"
