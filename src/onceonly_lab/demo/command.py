"""Command of the demo: options, output and exit code."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from onceonly_checkpoints.install import hint
from onceonly_lab.demo import input, preflight
from onceonly_lab.demo.input import KINDS, SEVERAL
from onceonly_lab.demo.stage import Options

if TYPE_CHECKING:
    from onceonly_lab.demo.claims import WindowsReport
    from onceonly_lab.demo.judge import Report

ACTS = (*KINDS, SEVERAL)
"""What ``--sink`` chooses from."""

REPORT = "demo-report"
"""Folder of the report, below the current one or ``--keep``."""

_UNANSWERED = 2
_INTERRUPTED = 130
_FULL_KILLS = 3
_DESCRIPTION = (
    "Streams the flights of 2013 into Delta, SIGKILLs the driver, and compares every row with the input: first with a"
    " plain foreachBatch, then with exactly_once(). At last one query writes them to Postgres, Kafka and Delta at once,"
    f" and is killed between their commits (several). Leaves the folder {REPORT}, which needs no network."
)
_EPILOG = "Exit code: 0 every row exactly once and every kill fired, 1 rows are wrong, 2 it could not answer."


def main(argv: list[str]) -> int:
    """Run the demo. 0: every row exactly once and every kill fired; 1: rows are wrong; 2: it could not answer."""
    try:
        options = _parse(argv)
    except SystemExit as end:
        return int(end.code or 0)
    with _terminated_as_interrupt():
        try:
            return _demo(options)
        except KeyboardInterrupt:
            print("interrupted; every driver is stopped", file=sys.stderr)
            return _INTERRUPTED


def _parse(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="onceonly demo", description=_DESCRIPTION, epilog=_EPILOG)
    add = parser.add_argument
    add("--output", choices=("table", "json"), default="table", help="what goes to stdout (default: table)")
    add("--keep", type=Path, metavar="DIR", help="keep tables, checkpoints, ledger, logs, report in a new folder")
    add("--windows", action="store_true", help="the second act: windows, sessions, an idle writer, reads during kills")
    add("--rows", type=int, help=f"flights to stream (default: all {input.AVAILABLE:,})")
    add(
        "--sink",
        action="append",
        choices=ACTS,
        help="play only this part; may be given more than once (default: delta and several)",
    )
    add("--kills", type=int, help="SIGKILLs for each job (default: 1, of several 2)")
    add("--seed", type=int, help="seed that draws kills and order of values (default: a new one, printed)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="one kill, Delta alone, no plain foreachBatch")
    size.add_argument("--full", action="store_true", help=f"Postgres alone, too; {_FULL_KILLS} kills for each job")
    arguments = parser.parse_args(argv)
    flights = ("rows", "sink", "kills", "quick", "full")
    if arguments.windows and (mixed := [f"--{name}" for name in flights if getattr(arguments, name)]):
        parser.error(f"--windows: has no flights, leave {', '.join(mixed)} out")
    acts = arguments.sink or (ACTS if arguments.full else ACTS[:1] if arguments.quick else (ACTS[0], SEVERAL))
    default = _FULL_KILLS if arguments.full else 1
    options = Options(
        output=arguments.output,
        keep=arguments.keep.resolve() if arguments.keep else None,
        rows=input.AVAILABLE if arguments.rows is None else arguments.rows,
        sinks=() if arguments.windows else tuple(kind for kind in KINDS if kind in acts),
        several=SEVERAL in acts and not arguments.windows,
        kills=default if arguments.kills is None else arguments.kills,
        several_kills=max(2, default) if arguments.kills is None else arguments.kills,
        seed=arguments.seed if arguments.seed is not None else random.randrange(10_000),
        variants=("onceonly",) if arguments.quick else ("plain", "onceonly"),
        windows=arguments.windows,
    )
    _check(parser, options)
    return options


def _check(parser: argparse.ArgumentParser, options: Options) -> None:
    if options.kills < 1:
        parser.error("--kills: without a kill there is nothing to prove; give 1 or more")
    if not options.epochs <= options.rows <= input.AVAILABLE:
        parser.error(f"--rows: with {options.kills} kills, from {options.epochs} to {input.AVAILABLE}")
    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep: {options.keep} is not empty; name a new folder")


@contextmanager
def _terminated_as_interrupt() -> Generator[None]:
    """A SIGTERM unwinds like Ctrl-C, so that no driver and no database is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _folder(keep: Path | None) -> Generator[Path]:
    """Everything lies here: ``keep``, or a folder that is deleted in the end."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="onceonly-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _demo(options: Options) -> int:
    # At once: what follows imports and checks for a second or more before it has anything to show.
    print(f"{_subject(options)}, seed {options.seed}", file=sys.stderr, flush=True)
    with _folder(options.keep) as folder:
        if problems := preflight.missing(options.kinds, folder):
            return _give_up(options, problems)
        # Only now: these need what was just looked for.
        from onceonly_lab.demo.play import CouldNotAnswer, play
        from onceonly_lab.demo.stage import Screen, show

        try:
            with Screen() as screen:
                shown = play(options, folder, screen)
        except CouldNotAnswer as reason:
            return _give_up(options, [str(reason)])
        if options.output == "json":
            print(json.dumps(shown.to_json(), indent=2), flush=True)
        else:
            show(shown)
        _leave((options.keep or Path.cwd()) / REPORT, shown)
        return shown.exit_code


def _subject(options: Options) -> str:
    if options.windows:
        return "The ten values of Streaming 102, 2 SIGKILLs"
    jobs = {"each job": options.kills} if options.sinks else {}
    counts = jobs | ({"the one into three sinks": options.several_kills} if options.several else {})
    kills = ", ".join(f"{count} SIGKILL{'s' * (count > 1)} for {job}" for job, count in counts.items())
    return f"{options.rows:,} flights of 2013, {kills}"


def _leave(folder: Path, shown: Report | WindowsReport) -> None:
    """Write the report and name its files, on stderr: stdout ends with the verdict."""
    try:
        from onceonly_lab.demo import report

        names = report.write(folder, shown)
    except ModuleNotFoundError as missing:
        print(f"The report was left out: it needs {missing.name}: {hint('report')}", file=sys.stderr)
        return
    index, *others = names
    print(f"The report is in {folder / index}, beside {', '.join(others)}", file=sys.stderr)


def _give_up(options: Options, problems: Sequence[str]) -> int:
    from onceonly_lab.demo.judge import unanswered

    for problem in problems:
        print(f"onceonly demo: {problem}", file=sys.stderr)
    if options.output == "json":
        print(json.dumps(unanswered(options.seed, "; ".join(problems)), indent=2))
    else:
        print(f"CANNOT TELL: the demo did not finish (seed {options.seed}), see above.")
    return _UNANSWERED
