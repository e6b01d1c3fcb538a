"""Report of an act as a folder: index, audit page, pictures, JSON. It needs no network."""

from __future__ import annotations

import json
from pathlib import Path

from markupsafe import Markup

from onceonly.audit import judge, page
from onceonly.page import Provenance, Shell, facts, put
from onceonly_lab.demo.claims import WindowsReport
from onceonly_lab.demo.judge import SCHEMA_VERSION, Report

INDEX, AUDIT, DOCUMENT = "index.html", "audit.html", "report.json"

_SHELL = Shell("onceonly_lab.demo", "demo")


def write(folder: Path, report: Report | WindowsReport) -> list[str]:
    """Write all files and return their names, the index first. Files of an earlier run are replaced.

    Raises:
        OSError: one cannot be written.
        ModuleNotFoundError: the extra ``report`` is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    taken = Provenance.now()
    put(folder / DOCUMENT, json.dumps(report.to_json(), indent=2) + "\n")
    for name, picture in report.pictures.items():
        put(folder / name, picture)
    runs = [page.LabRun(name, *outcome, tuple(report.moments[name])) for name, outcome in report.outcomes.items()]
    page.write(folder / AUDIT, [(gathered, judge(gathered)) for gathered in report.facts], taken, runs)
    put(folder / INDEX, render(report, taken))
    return [INDEX, AUDIT, *report.pictures, DOCUMENT]


def render(report: Report | WindowsReport, taken: Provenance) -> str:
    """The index: verdict, figures, pictures, kills."""
    inline = [
        (name, Markup(picture.replace("<svg ", '<svg class="chart" role="img" ', 1)))
        for name, picture in report.pictures.items()
    ]
    return _SHELL.render(
        taken,
        facts(SCHEMA_VERSION, taken, str(report.verdict), act=report.to_json()),
        report=report,
        key=page.KEYS[report.verdict],
        kills=sum(map(len, report.moments.values())),
        audit=AUDIT,
        pictures=inline,
    )
