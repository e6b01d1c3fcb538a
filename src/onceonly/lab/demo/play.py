"""The order of events: input, database, each variant of the job through its kills, judge, audit."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.audit import audit
from onceonly.errors import OnceOnlyError
from onceonly.lab import jars
from onceonly.lab.demo import flights
from onceonly.lab.demo.job import Job
from onceonly.lab.demo.judge import judge
from onceonly.lab.demo.killer import KillNeverFired, Run, torment
from onceonly.lab.demo.options import Options
from onceonly.lab.demo.plan import epochs_for, plan
from onceonly.lab.demo.report import Report, RunResult, SinkResult
from onceonly.lab.demo.screen import Screen
from onceonly.lab.demo.targets import Target
from onceonly.lab.driver import DriverEnded, DriverSilent
from onceonly.lab.jvmarchive import JvmArchive
from onceonly.lab.postgres import EmbeddedPostgres, PostgresDidNotStart
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.sqlledger import SqlLedger

if TYPE_CHECKING:
    import pyarrow as pa


class CouldNotAnswer(RuntimeError):
    """The demo did not come to its end; the text says why."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """What both variants of the job share."""

    options: Options
    folder: Path
    dsn: str
    given: pa.Table
    archive: JvmArchive
    screen: Screen


def play(options: Options, folder: Path, screen: Screen) -> Report:
    """Run the demo in ``folder``.

    Raises:
        CouldNotAnswer: a driver failed or hung, a kill never fired, or a jar or Postgres could not be had.
    """
    try:
        return _play(options, folder, screen)
    except (DriverEnded, DriverSilent, KillNeverFired, PostgresDidNotStart, OnceOnlyError) as failure:
        raise CouldNotAnswer(str(failure)) from failure


def _play(options: Options, folder: Path, screen: Screen) -> Report:
    started = time.monotonic()
    flights.write(folder / "input", options.rows, epochs_for(options.kills))
    (folder / "logs").mkdir()
    archive = JvmArchive("demo", _jars(options, screen))
    with _postgres(options, folder, screen) as dsn:
        stage = _Stage(options, folder, dsn, flights.read(folder / "input"), archive, screen)
        results = {variant: _variant(stage, variant) for variant in options.variants}
    seconds = time.monotonic() - started
    return Report(options.seed, options.rows, results["onceonly"], results.get("plain"), seconds)


def _jars(options: Options, screen: Screen) -> list[Path]:
    if "delta" not in options.sinks:
        return []
    screen.say("looking for Delta's jars (fetched on first use)")
    return jars.delta_jars()


@contextmanager
def _postgres(options: Options, folder: Path, screen: Screen) -> Generator[str]:
    """DSN of a server of our own, if a sink needs it; its data moves to ``--keep`` once it has stopped."""
    if "postgres" not in options.sinks:
        yield ""
        return
    screen.say("starting an embedded Postgres")
    # As root the server runs as another user, and every folder above its data is opened to it: not one the user named.
    own = Path(tempfile.mkdtemp(prefix="onceonly-pg-"))
    try:
        with EmbeddedPostgres(own / "data") as server:
            yield server.dsn
        if options.keep:
            shutil.move(own / "data", folder / "postgres")
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _variant(stage: _Stage, variant: str) -> RunResult:
    options, screen, epochs = stage.options, stage.screen, epochs_for(stage.options.kills)
    targets = _targets(stage, variant)
    checkpoints = stage.folder / variant / "checkpoint"
    checkpoints.mkdir(parents=True)
    job = Job(variant, str(stage.folder / "input"), str(checkpoints), targets)
    screen.begin(variant, list(options.sinks), epochs)
    kills = plan(options.seed, options.kills, options.sinks)
    run = torment(job, kills, stage.folder / "logs", screen.watch, stage.archive)
    screen.say(f"{variant:8} comparing every row with the input")
    sinks = {target.kind: _result(target, run, stage.given) for target in targets}
    return RunResult(sinks, [kill.moment for kill in run.fired], run.restarts, run.seconds)


def _targets(stage: _Stage, variant: str) -> tuple[Target, ...]:
    wrapped = variant == "onceonly"
    table, ledger = str(stage.folder / variant / "delta"), str(stage.folder / "ledger.db")
    made = {
        "delta": Target("delta", table, ledger=ledger if wrapped else ""),
        "postgres": Target("postgres", stage.dsn, f"flights_{variant}", ledger=stage.dsn if wrapped else ""),
    }
    return tuple(made[kind] for kind in stage.options.sinks)


def _result(target: Target, run: Run, given: pa.Table) -> SinkResult:
    finding, tally = judge(given, target.read()), run.tallies[target.kind]
    if not target.ledger:
        return SinkResult(finding, tally.batches, tally.replayed, skipped=0)
    sink, ledger = target.sink(), SqlLedger(target.ledger)
    try:
        ledger.open()
        answer = audit(ledger, target.query, [sink])
        skipped = sum(event.kind is EventKind.SKIPPED for event in ledger.events(target.query))
    finally:
        ledger.close()
        sink.close()
    return SinkResult(finding, len(answer.epochs), tally.replayed, skipped, answer.verdict)
