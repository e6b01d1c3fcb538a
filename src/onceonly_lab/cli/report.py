"""``onceonly lab report``: recorded runs judged, told in a table and drawn as one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say, talk
from onceonly.errors import refuse
from onceonly_lab.checker import Judgement, Verdict, judge
from onceonly_lab.history import History, load

HistoriesArgument = Annotated[
    list[Path], typer.Argument(metavar="HISTORY...", help="Recorded runs: JSON lines.", show_default=False)
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the page: one file that needs no network.")
]
GoldenOption = Annotated[
    Path | None,
    typer.Option("--golden", metavar="HISTORY", help="The same run without faults: its last reads are what is right."),
]
EXIT_CODES = {Verdict.ANOMALY: 1, Verdict.INCONCLUSIVE: 2, Verdict.CLEAN: 0}
"""By verdict, what outweighs the others first."""


def command(
    histories: HistoriesArgument,
    *,
    html: HtmlOption = None,
    golden: GoldenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge recorded runs, and with --html write a page: verdict, findings, who did what, offsets, what was broken.

    Needs no server and no Spark. Exit code: 0 all clean, 1 an anomaly, 2 inconclusive, 3 a history cannot be read.
    """
    read = [(str(path), load(path)) for path in histories]
    right = None if golden is None else load(golden)
    judged = [(place, judge(history, right)) for place, history in read]
    if html is not None:
        _write(html, read, right)
    if output is Output.JSON:
        emit_json({"runs": [{"history": place, **judgement.to_json()} for place, judgement in judged]})
    else:
        _show(judged)
    verdicts = {judgement.verdict for _, judgement in judged}
    raise typer.Exit(next(code for verdict, code in EXIT_CODES.items() if verdict in verdicts))


def _write(path: Path, read: Sequence[tuple[str, History]], golden: History | None) -> None:
    try:
        from onceonly.page import Taken
        from onceonly_lab import report

        report.write(path, [report.run_of(place, history, golden) for place, history in read], Taken.now())
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("onceonly"):
            raise
        raise refuse(
            "E108", what="The lab's report", package=missing.name, distribution="onceonly", extra="report"
        ) from missing
    talk(f"The report is in {path}")


def _show(judged: Sequence[tuple[str, Judgement]]) -> None:
    emit_table(("history", "verdict", "called", "epochs", "rows", "reads"), [_row(*one) for one in judged])
    for place, judgement in judged:
        for reason in judgement.missing:
            say(f"{place} is inconclusive: {reason}")


def _row(place: str, judged: Judgement) -> tuple[Any, ...]:
    called = ", ".join(sorted(judged.anomalies))
    return place, judged.verdict, called, judged.epochs, judged.rows, judged.reads
