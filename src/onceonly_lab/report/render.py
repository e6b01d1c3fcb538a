"""Writes the lab's report: judged histories in, one HTML file out that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onceonly.page import Shell, Taken, put
from onceonly_lab.report.charts import FAULT, PAINTS, SHAPES, STRETCHES, TONES
from onceonly_lab.report.coverage import coverage
from onceonly_lab.report.run import Run, by_verdict, worst
from onceonly_lab.report.view import KEYS, view_of
from onceonly_lab.schedule import NOT_SENT

SCHEMA_VERSION = 1
"""Version of the embedded form."""

PICTURED = 40
"""At most so many runs are drawn, the worst first; of all others verdict and faults are told."""

_SHELL = Shell("onceonly_lab.report", "report")


_LEGEND = {"paints": PAINTS, "shapes": SHAPES, "tones": TONES, "fault": FAULT, "stretches": STRETCHES}


def render(runs: Sequence[Run], taken: Taken) -> str:
    """The page over one or several runs.

    Args:
        runs: at least one.
        taken: when.
    """
    ordered = by_verdict(runs)
    views = [view_of(run, pictures=index < PICTURED) for index, run in enumerate(ordered)]
    covered = coverage(run.history for run in runs)
    return _SHELL.render(
        taken,
        _document(ordered, taken),
        views=views,
        verdict=worst(runs),
        keys=KEYS,
        covered=covered,
        actions=covered.actions,
        not_sent=NOT_SENT,
        legend=_LEGEND,
        pictured=PICTURED,
    )


def write(path: Path, runs: Sequence[Run], taken: Taken) -> None:
    """Render into a file, which is there completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    put(path, render(runs, taken))


def _document(runs: Sequence[Run], taken: Taken) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "taken_ms": taken.at_ms,
        "onceonly": taken.onceonly,
        "verdict": str(worst(runs)),
        "runs": [{"history": run.place, **run.judgement.to_json()} for run in runs],
    }
