"""``onceonly lab``: the fault lab. Exit codes: 0 clean, 1 anomaly, 2 inconclusive, 3 the lab itself could not do it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onceonly.cli.calm import DEBUG, words_for
from onceonly.cli.failing import tell
from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say
from onceonly_lab.checker import Finding, Judgement, Verdict, judge
from onceonly_lab.cli import mutants, necessity, points, report, rules, run, schedules, up
from onceonly_lab.history import History, UnreadableHistory, load
from onceonly_lab.junit import junit as to_junit
from onceonly_lab.schedule import UnreadableSchedule

FAILED = 3
"""The exit code where no run was judged: a file cannot be read or written, an argument is wrong."""

_STYLES = {Verdict.CLEAN: "bold green", Verdict.ANOMALY: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}


class LabGroup(TyperGroup):
    """The lab's own exit code: 2 is a verdict here, so what went wrong in the lab itself is 3."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; whatever keeps it from a verdict becomes words and code 3."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except UnreadableHistory as error:
            tell(f"Cannot judge: {error}")
        except UnreadableSchedule as error:
            tell(f"Cannot play: {error}")
        except Exception as error:
            usage: Any = error
            if hasattr(usage, "exit_code"):
                # Errors of usage know how to show themselves; only their code is another one here.
                usage.exit_code = FAILED
                raise
            if os.environ.get(DEBUG):
                raise
            tell(words_for(error))
        raise typer.Exit(FAILED)


app = typer.Typer(cls=LabGroup, no_args_is_help=True, help="The fault lab: break a pipeline on purpose and judge it.")

app.command("up")(up.command)
app.command("run")(run.command)
app.command("replay")(schedules.replay)
app.command("shrink")(schedules.shrink)
app.command("points")(points.command)
app.command("necessity")(necessity.command)
app.command("rules-off")(rules.command)
app.command("mutants")(mutants.command)
app.command("report")(report.command)

HistoryArgument = Annotated[Path, typer.Argument(metavar="HISTORY", help="A recorded run: JSON lines.")]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit XML too, a case per anomaly.")
]


@app.callback()
def root() -> None:
    """The fault lab: break a pipeline on purpose and judge it."""
    # What the product logs of the faults that it is given here is no news; without a handler, Python prints it.
    for room in ("onceonly", "onceonly_sinks"):
        logging.getLogger(room).addHandler(logging.NullHandler())


@app.command()
def recheck(
    history: HistoryArgument,
    *,
    golden: report.GoldenOption = None,
    output: OutputOption = Output.TABLE,
    junit: JunitOption = None,
) -> None:
    """Judge a recorded run again.

    Needs no server and no Spark. Exit code: 0 clean, 1 anomaly, 2 inconclusive, 3 the history cannot be read.
    """
    judged = judge(load(history), _golden(golden))
    if junit is not None:
        junit.write_text(to_junit(judged), encoding="utf-8")
    if output is Output.JSON:
        emit_json(judged.to_json())
    else:
        _show(judged)
    raise typer.Exit(report.EXIT_CODES[judged.verdict])


def _golden(path: Path | None) -> History | None:
    return None if path is None else load(path)


def _show(judged: Judgement) -> None:
    if judged.run:
        say(judged.run)
    for finding in _first_of_each(judged):
        say(f"{finding.anomaly}: {finding.must_hold}")
    if judged.findings:
        emit_table(("anomaly", "sink", "epoch", "what was seen", "rows", "lines"), map(_row, judged.findings))
    for reason in judged.missing:
        say(f"inconclusive: {reason}")
    say(judged.sentence, style=_STYLES[judged.verdict])


def _first_of_each(judged: Judgement) -> Iterator[Finding]:
    named = {finding.anomaly: finding for finding in reversed(judged.findings)}
    yield from reversed(named.values())


def _row(finding: Finding) -> tuple[object, ...]:
    rows, lines = ", ".join(finding.witnesses), ", ".join(map(str, finding.lines))
    return finding.anomaly, finding.sink, finding.epoch, finding.what, rows, lines
