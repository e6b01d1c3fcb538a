"""``onceonly lab`` commands for users' jobs and recorded runs.

They run a job, replay it and shrink a schedule. They judge, print and draw a recorded run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say, talk
from onceonly.errors import refuse
from onceonly_lab.chaos import campaign
from onceonly_lab.chaos.coverage import Covered, covered
from onceonly_lab.chaos.least import DEFAULT
from onceonly_lab.chaos.pipeline import Pipeline, load
from onceonly_lab.chaos.result import SCHEDULE_FILE, Result
from onceonly_lab.chaos.result import junit as to_junit
from onceonly_lab.checker import Judgement, Verdict, judge
from onceonly_lab.history import History
from onceonly_lab.history import load as load_history
from onceonly_lab.schedule import Action, Level, Schedule

# ---- ``onceonly lab report``: recorded runs judged, told in a table and drawn as one page.

HistoriesArgument = Annotated[
    list[Path], typer.Argument(metavar="HISTORY...", help="Recorded runs: JSON lines.", show_default=False)
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the page: one file that needs no network.")
]
GoldenOption = Annotated[
    Path | None,
    typer.Option(
        "--golden", metavar="HISTORY", help="The same run without faults: its last reads are the expected rows."
    ),
]
REPORT_EXIT_CODES = {Verdict.ANOMALY: 1, Verdict.INCONCLUSIVE: 2, Verdict.CLEAN: 0}
"""By verdict, what outweighs the others first."""


def report(
    histories: HistoriesArgument,
    *,
    html: HtmlOption = None,
    golden: GoldenOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge recorded runs, and with --html write a page: verdict, findings, actors, offsets, faults.

    Needs no server and no Spark. Exit code: 0 all clean, 1 an anomaly, 2 inconclusive, 3 a history cannot be read.
    """
    read = [(str(path), load_history(path)) for path in histories]
    right = None if golden is None else load_history(golden)
    judged = [(history_path, judge(history, right)) for history_path, history in read]
    if html is not None:
        _write(html, read, right)
    if output is Output.JSON:
        emit_json({"runs": [{"history": history_path, **judgement.to_json()} for history_path, judgement in judged]})
    else:
        _show(judged)
    verdicts = {judgement.verdict for _, judgement in judged}
    raise typer.Exit(next(code for verdict, code in REPORT_EXIT_CODES.items() if verdict in verdicts))


def _write(path: Path, read: Sequence[tuple[str, History]], golden: History | None) -> None:
    try:
        from onceonly.page import Provenance
        from onceonly_lab import report

        report.write(
            path, [report.run_of(history_path, history, golden) for history_path, history in read], Provenance.now()
        )
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("onceonly"):
            raise
        raise refuse("E108", what="The lab's report", package=missing.name, extra="report") from missing
    talk(f"The report is in {path}")


def _show(judged: Sequence[tuple[str, Judgement]]) -> None:
    emit_table(("history", "verdict", "called", "epochs", "rows", "reads"), [_row(*pair) for pair in judged])
    for history_path, judgement in judged:
        for reason in judgement.missing:
            say(f"{history_path} is inconclusive: {reason}")


def _row(history_path: str, judged: Judgement) -> tuple[Any, ...]:
    called = ", ".join(sorted(judged.anomalies))
    return history_path, judged.verdict, called, judged.epochs, judged.rows, judged.reads


# ---- Jobs of users in ``onceonly lab``: run, played again, made smaller; printed, and written for build servers.

BUDGET = "3m"
"""The longest that a job is run, if nobody says otherwise."""

EXIT_CODES = {Verdict.CLEAN: 0, Verdict.ANOMALY: 1, Verdict.INCONCLUSIVE: 2}
_STYLES = {Verdict.CLEAN: "bold green", Verdict.ANOMALY: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}

JobArgument = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="A function under @pipeline: module:name, or path/to/file.py:name."),
]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", metavar="TIME", help=f"Longest time for a job: 90s, 3m. Default {BUDGET}.")
]
LeastOption = Annotated[
    str | None,
    typer.Option(
        "--at-least", metavar="N", help=f"What a job must go through: '20 kills, 8 cells'. Default {DEFAULT}."
    ),
]
OnlyOption = Annotated[Action | None, typer.Option("--only", help="Play only schedules with this action.")]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--to", metavar="DIR", help="Folder for input, logs, tables and the schedule of a failure; must be empty."
    ),
]
JunitOption = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit too.")]


def demand_none(flags: Mapping[str, object], cause: str) -> None:
    """Refuse options that do not go with the rest.

    Raises:
        ConfigurationError: E110, one of them was given.
    """
    named = ", ".join(name for name, value in flags.items() if value is not None)
    if named:
        line = "onceonly lab run --level L3 module:job"
        raise refuse("E110", problem=f"{named} cannot be used here.", cause=cause, next=line)


def demand_job(**options: object) -> None:
    """Refuse options that only a job can have, where there is none; by name.

    Raises:
        ConfigurationError: E110, one of them was given.
    """
    flags = {f"--{name}": value for name, value in options.items()}
    demand_none(flags, "it is for a job: module:name, or file.py:name")


@dataclass(frozen=True, slots=True)
class Asked:
    """How a job is to be run; see :func:`onceonly_lab.chaos.campaign.chaos`."""

    budget: str
    seed: int
    level: Level
    only: Action | None = None
    most: int | None = None
    at_least: str | None = None


def run(job: str, request: Asked, to: Path | None, junit: Path | None, output: Output) -> int:
    """Run a job and return the exit code."""
    pipeline = found_job(job)
    with folder(to) as at:
        chosen: dict[str, Any] = {"only": request.only, "most": request.most, "at_least": request.at_least}
        result = campaign.chaos(
            pipeline, at, request.budget, seed=request.seed, level=request.level, progress=talk, **chosen
        )
        return _shown(result, junit, output)


def run_samples(request: Asked, to: Path | None, output: Output) -> int:
    """Run jobs of our own and return the exit code."""
    with folder(to) as at:
        longest = campaign.seconds_of(request.budget)
        return shown_all(
            covered(request.level, None, longest, request.seed, at, progress=talk, most=request.most), output
        )


def shown_all(real: Covered, output: Output) -> int:
    """Print what jobs went through; the exit code: the worst of theirs, and 2 where a point was never passed."""
    if output is Output.JSON:
        emit_json(real.to_json())
    else:
        for result in real.results:
            for line in result.findings():
                say(line)
        for line in real.matrix.lines():
            say(line)
        say(real.sentence, style=_STYLES[real.verdict])
    return EXIT_CODES[real.verdict]


def replay(schedule: Schedule, level: Level | None, to: Path | None, junit: Path | None, output: Output) -> int:
    """Play a schedule on its job and return the exit code."""
    campaign.check_playable(schedule, level)
    with folder(to) as at:
        return _shown(campaign.replay(schedule, found_job(schedule.job), at, level, talk), junit, output)


def shrink(schedule: Schedule, to: Path | None, output: Output) -> int:
    """Make a schedule of a job smaller and return the exit code."""
    campaign.check_playable(schedule)
    with folder(None) as at:
        result = campaign.replay(schedule, found_job(schedule.job), at, None, talk, smaller=True)
    if result.schedule and to:
        to.write_text(result.schedule.text, encoding="utf-8")
    return _shown(result, None, output)


def found_job(location: str) -> Pipeline:
    """Load a job as Python would from here: the working directory comes first."""
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    return load(location)


@contextmanager
def folder(to: Path | None) -> Generator[Path]:
    """Where everything goes. One of our own stays only if there is a failure to look at."""
    if to is not None:
        if to.is_dir() and any(to.iterdir()):
            raise typer.BadParameter(f"{to} is not empty", param_hint="--to")
        yield to.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="onceonly-lab-"))
    try:
        yield made
    finally:
        if not any(made.rglob(SCHEDULE_FILE)):
            shutil.rmtree(made, ignore_errors=True)


def _shown(result: Result, junit: Path | None, output: Output) -> int:
    if junit is not None:
        junit.write_text(to_junit(result.judgement), encoding="utf-8")
    if output is Output.JSON:
        emit_json(result.to_json())
    else:
        *lines, verdict = result.lines()
        for line in lines:
            say(line)
        say(verdict, style=_STYLES[result.verdict])
    return EXIT_CODES[result.verdict]
