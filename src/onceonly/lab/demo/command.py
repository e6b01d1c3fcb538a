"""The demo's command: options, order of events, exit code."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from onceonly.lab.demo import flights, plan, preflight
from onceonly.lab.demo.targets import KINDS, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.lab.demo.killer import Run
    from onceonly.lab.demo.report import Report, RunResult, SinkResult
    from onceonly.lab.demo.screen import Screen

_UNANSWERED = 2
_INTERRUPTED = 130
_DEFAULT_KILLS = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        output: ``table`` or ``json``.
        keep: folder that keeps everything; ``None`` deletes it.
        rows: flights to stream.
        sinks: kinds, in the order of :data:`~onceonly.lab.demo.targets.KINDS`.
        kills: SIGKILLs for each variant of the job.
        seed: of the kills.
        variants: ``plain`` and ``onceonly``, or only the latter.
    """

    output: str
    keep: Path | None
    rows: int
    sinks: tuple[str, ...]
    kills: int
    seed: int
    variants: tuple[str, ...]


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
    parser = argparse.ArgumentParser(
        prog="onceonly demo",
        description="Streams the flights of 2013 into Delta and Postgres, SIGKILLs the driver again and again, and compares every row with the "
        "input: first with a plain foreachBatch, then with exactly_once().",
        epilog="Exit code: 0 every row exactly once and every kill fired, 1 rows are wrong, 2 it could not answer.",
    )
    parser.add_argument(
        "--output", choices=("table", "json"), default="table", help="what goes to stdout (default: table)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep tables, checkpoints, ledger, logs and the JSON in a new folder"
    )
    parser.add_argument(
        "--rows", type=int, default=flights.AVAILABLE, help=f"flights to stream (default: all {flights.AVAILABLE:,})"
    )
    parser.add_argument(
        "--sink", action="append", choices=KINDS, help="only this sink; may be repeated (default: both)"
    )
    parser.add_argument("--kills", type=int, help=f"SIGKILLs for each job (default: {_DEFAULT_KILLS})")
    parser.add_argument("--seed", type=int, help="of the kills (default: a new one, printed)")
    parser.add_argument("--quick", action="store_true", help="one sink, one kill, no plain job, unless said otherwise")
    given = parser.parse_args(argv)
    sinks = given.sink or (KINDS[:1] if given.quick else KINDS)
    kills = given.kills if given.kills is not None else 1 if given.quick else _DEFAULT_KILLS
    if kills < 1:
        parser.error("--kills: without a kill there is nothing to prove; give 1 or more")
    if not plan.epochs_for(kills) <= given.rows <= flights.AVAILABLE:
        parser.error(f"--rows: with {kills} kills, from {plan.epochs_for(kills)} to {flights.AVAILABLE}")
    if given.keep is not None and given.keep.exists() and any(given.keep.iterdir()):
        parser.error(f"--keep: {given.keep} is not empty; name a new folder")
    return Options(
        output=given.output,
        keep=given.keep.resolve() if given.keep else None,
        rows=given.rows,
        sinks=tuple(kind for kind in KINDS if kind in sinks),
        kills=kills,
        seed=given.seed if given.seed is not None else random.randrange(10_000),
        variants=("onceonly",) if given.quick else ("plain", "onceonly"),
    )


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """A SIGTERM unwinds like Ctrl-C, so that no driver and no database is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Everything lies here. ``keep``, or a short path that is deleted in the end."""
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
    with _folder(options.keep) as folder:
        if problems := preflight.missing(options.sinks, folder):
            return _give_up(options, problems)
        # Only now: these need what was just looked for.
        from onceonly.lab.demo.killer import KillNeverFired
        from onceonly.lab.demo.screen import Screen, show
        from onceonly.lab.driver import DriverEnded, DriverSilent

        try:
            with Screen() as screen:
                report = _play(options, folder, screen)
        except (DriverEnded, DriverSilent, KillNeverFired) as failure:
            return _give_up(options, [str(failure)])
        document = json.dumps(report.to_json(), indent=2)
        if options.keep:
            (folder / "report.json").write_text(document + "\n")
        if options.output == "json":
            print(document)
        else:
            show(report)
        return report.exit_code


def _give_up(options: Options, problems: Sequence[str]) -> int:
    from onceonly.lab.demo.report import unanswered

    for problem in problems:
        print(f"onceonly demo: {problem}", file=sys.stderr)
    if options.output == "json":
        print(json.dumps(unanswered(options.seed, "; ".join(problems)), indent=2))
    else:
        print(f"CANNOT TELL: the demo did not finish (seed {options.seed}), see above.")
    return _UNANSWERED


def _play(options: Options, folder: Path, screen: Screen) -> Report:
    from onceonly.lab import jars
    from onceonly.lab.demo.report import Report

    started = time.monotonic()
    screen.say(f"{options.rows:,} flights of 2013, {options.kills} SIGKILLs for each job, seed {options.seed}")
    source = folder / "input"
    flights.write(source, options.rows, plan.epochs_for(options.kills))
    given = flights.read(source)
    with ExitStack() as stack:
        dsn = _postgres(folder, screen, stack) if "postgres" in options.sinks else ""
        results = {
            variant: _variant(variant, options, folder, _targets(variant, options.sinks, folder, dsn), given, screen)
            for variant in options.variants
        }
    return Report(options.seed, options.rows, results["onceonly"], results.get("plain"), time.monotonic() - started)


def _postgres(folder: Path, screen: Screen, stack: ExitStack) -> str:
    from onceonly.lab.postgres import EmbeddedPostgres

    screen.say("starting an embedded Postgres")
    return stack.enter_context(EmbeddedPostgres(folder / "postgres")).dsn


def _targets(variant: str, sinks: Sequence[str], folder: Path, dsn: str) -> tuple[Target, ...]:
    wrapped = variant == "onceonly"
    made = {
        "delta": Target("delta", str(folder / variant / "delta"), ledger=str(folder / "ledger.db") if wrapped else ""),
        "postgres": Target("postgres", dsn, table=f"flights_{variant}", ledger=dsn if wrapped else ""),
    }
    return tuple(made[kind] for kind in sinks)


def _variant(
    variant: str, options: Options, folder: Path, targets: Sequence[Target], given: pa.Table, screen: Screen
) -> RunResult:
    from onceonly.lab.demo.job import Job
    from onceonly.lab.demo.killer import torment
    from onceonly.lab.demo.report import RunResult

    (folder / variant).mkdir()
    job = Job(variant, str(folder / "input"), str(folder / variant / "checkpoint"), tuple(targets))
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    screen.begin(variant, list(options.sinks), plan.epochs_for(options.kills))
    kills = plan.plan(options.seed, options.kills, options.sinks)
    run = torment(job, kills, logs, screen.watch)
    screen.say(f"{variant:8} comparing every row with the input")
    sinks = {target.kind: _judge(target, run, given) for target in targets}
    return RunResult(sinks, [kill.moment for kill in run.fired], run.restarts, run.seconds)


def _judge(target: Target, run: Run, given: pa.Table) -> SinkResult:
    from onceonly.lab.demo.judge import judge
    from onceonly.lab.demo.report import SinkResult

    finding, tally = judge(given, target.read()), run.tallies[target.kind]
    if not target.ledger:
        return SinkResult(finding, tally.batches, tally.replayed, skipped=0)
    return _audited(target, SinkResult(finding, tally.batches, tally.replayed, skipped=0))


def _audited(target: Target, result: SinkResult) -> SinkResult:
    from dataclasses import replace

    from onceonly.audit import audit
    from onceonly_checkpoints.ledger import EventKind
    from onceonly_checkpoints.sqlledger import SqlLedger

    sink, ledger = target.sink(), SqlLedger(target.ledger)
    try:
        ledger.open()
        answer = audit(ledger, target.query, [sink])
        skipped = sum(event.kind is EventKind.SKIPPED for event in ledger.events(target.query))
    finally:
        ledger.close()
        sink.close()
    return replace(result, epochs=len(answer.epochs), skipped=skipped, audit=answer.verdict)
