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
from onceonly_lab.demo import input, plan, preflight
from onceonly_lab.demo.input import KINDS, SEVERAL
from onceonly_lab.demo.stage import Options

if TYPE_CHECKING:
    from onceonly_lab.demo.judge import Report

ACTS = (*KINDS, SEVERAL)
"""What ``--sink`` chooses from."""

_UNANSWERED = 2
_INTERRUPTED = 130
_DEFAULT_KILLS = 3
_DESCRIPTION = (
    "Streams the flights of 2013 into Delta and Postgres, SIGKILLs the driver again and again, and compares every row"
    " with the input: first with a plain foreachBatch, then with exactly_once(). At last one query writes them to"
    " Postgres, Kafka and Delta at once, and is killed between their commits (several)."
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
    add("--keep", type=Path, metavar="DIR", help="keep tables, checkpoints, ledger, logs and the JSON in a new folder")
    add("--rows", type=int, default=input.AVAILABLE, help=f"flights to stream (default: all {input.AVAILABLE:,})")
    add(
        "--sink",
        action="append",
        choices=ACTS,
        help="play only this part; may be given more than once (default: all)",
    )
    add("--kills", type=int, help=f"SIGKILLs for each job (default: {_DEFAULT_KILLS})")
    add("--seed", type=int, help="seed that draws the kills (default: a new one, printed)")
    add(
        "--quick",
        action="store_true",
        help="one kill, the first sink, no plain foreachBatch; --kills and --sink take precedence",
    )
    arguments = parser.parse_args(argv)
    acts = arguments.sink or (ACTS[:1] if arguments.quick else ACTS)
    kills = arguments.kills if arguments.kills is not None else 1 if arguments.quick else _DEFAULT_KILLS
    if kills < 1:
        parser.error("--kills: without a kill there is nothing to prove; give 1 or more")
    if not plan.epochs_for(kills) <= arguments.rows <= input.AVAILABLE:
        parser.error(f"--rows: with {kills} kills, from {plan.epochs_for(kills)} to {input.AVAILABLE}")
    if arguments.keep is not None and arguments.keep.exists() and any(arguments.keep.iterdir()):
        parser.error(f"--keep: {arguments.keep} is not empty; name a new folder")
    return Options(
        output=arguments.output,
        keep=arguments.keep.resolve() if arguments.keep else None,
        rows=arguments.rows,
        sinks=tuple(kind for kind in KINDS if kind in acts),
        several=SEVERAL in acts,
        kills=kills,
        seed=arguments.seed if arguments.seed is not None else random.randrange(10_000),
        variants=("onceonly",) if arguments.quick else ("plain", "onceonly"),
    )


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
    kills = f"{options.kills} SIGKILL{'s' if options.kills > 1 else ''}"
    print(f"{options.rows:,} flights of 2013, {kills} for each job, seed {options.seed}", file=sys.stderr, flush=True)
    with _folder(options.keep) as folder:
        if problems := preflight.missing(options.kinds, folder):
            return _give_up(options, problems)
        # Only now: these need what was just looked for.
        from onceonly_lab.demo.play import CouldNotAnswer, play
        from onceonly_lab.demo.stage import Screen, show

        try:
            with Screen() as screen:
                report = play(options, folder, screen)
        except CouldNotAnswer as reason:
            return _give_up(options, [str(reason)])
        document = json.dumps(report.to_json(), indent=2)
        if options.keep:
            (folder / "report.json").write_text(document + "\n")
        if options.output == "json":
            print(document)
        else:
            show(report)
        if options.keep:
            _write_page(folder / "report.html", report)
        return report.exit_code


def _write_page(path: Path, report: Report) -> None:
    from onceonly.audit import judge, page
    from onceonly_lab.demo.judge import told

    runs = [page.LabRun(name, *told(run), tuple(run.kills)) for name, run in report.runs.items()]
    try:
        page.write(path, [(facts, judge(facts)) for facts in report.facts], page.Provenance.now(), runs)
    except ModuleNotFoundError as missing:
        print(f"The audit page was left out: it needs {missing.name}: {hint('report')}", file=sys.stderr)
        return
    print(f"The audit page is in {path}", file=sys.stderr)


def _give_up(options: Options, problems: Sequence[str]) -> int:
    from onceonly_lab.demo.judge import unanswered

    for problem in problems:
        print(f"onceonly demo: {problem}", file=sys.stderr)
    if options.output == "json":
        print(json.dumps(unanswered(options.seed, "; ".join(problems)), indent=2))
    else:
        print(f"CANNOT TELL: the demo did not finish (seed {options.seed}), see above.")
    return _UNANSWERED
