"""The order of events: input, database, each act of the demo through its kills, judge, audit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.audit import gather
from onceonly.audit import judge as judge_facts
from onceonly.errors import OnceOnlyError
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.sqlledger import SqlLedger
from onceonly_lab.demo import flights
from onceonly_lab.demo.job import Job
from onceonly_lab.demo.judge import judge
from onceonly_lab.demo.killer import KillNeverFired, Run, torment
from onceonly_lab.demo.options import Options
from onceonly_lab.demo.plan import epochs_for, plan
from onceonly_lab.demo.report import Report, RunResult, SinkResult
from onceonly_lab.demo.screen import Screen
from onceonly_lab.demo.several import several
from onceonly_lab.demo.stage import Stage, fetch, postgres
from onceonly_lab.demo.targets import Target, query_name
from onceonly_lab.driver import DriverEnded
from onceonly_lab.kafka import KafkaDidNotStart
from onceonly_lab.postgres import PostgresDidNotStart

if TYPE_CHECKING:
    import pyarrow as pa


_FAILURES = (DriverEnded, TimeoutError, KillNeverFired, PostgresDidNotStart, KafkaDidNotStart)


class CouldNotAnswer(RuntimeError):
    """The demo did not come to its end; the text says why."""


def play(options: Options, folder: Path, screen: Screen) -> Report:
    """Run the demo in ``folder``.

    Raises:
        CouldNotAnswer: a driver failed or hung, a kill never fired, a sink could not be read in time, or a jar,
            Postgres or Kafka could not be had.
    """
    try:
        return _play(options, folder, screen)
    except (*_FAILURES, OnceOnlyError) as failure:
        raise CouldNotAnswer(str(failure)) from failure


def _play(options: Options, folder: Path, screen: Screen) -> Report:
    started = time.monotonic()
    flights.write(folder / "input", options.rows, epochs_for(options.kills))
    (folder / "logs").mkdir()
    fetch(options, screen)
    with postgres(options, folder, screen) as dsn:
        stage = Stage(options, folder, dsn, flights.read(folder / "input"), screen)
        results = {variant: _variant(stage, variant) for variant in options.variants if options.sinks}
        together = several(stage) if options.several else None
    seconds = time.monotonic() - started
    return Report(options.seed, options.rows, results.get("onceonly"), results.get("plain"), seconds, together)


def _variant(stage: Stage, variant: str) -> RunResult:
    options, screen, epochs = stage.options, stage.screen, epochs_for(stage.options.kills)
    targets = _targets(stage, variant)
    checkpoints = stage.folder / variant / "checkpoint"
    checkpoints.mkdir(parents=True)
    job = Job(variant, str(stage.folder / "input"), str(checkpoints), targets)
    screen.begin(variant, list(options.sinks), epochs)
    kills = plan(options.seed, options.kills, options.sinks)
    run = torment(job, kills, stage.folder / "logs", screen.watch, stage.archive(options.sinks))
    screen.say(f"{variant:8} comparing every row with the input")
    sinks = {target.kind: _result(target, run, stage.given) for target in targets}
    return RunResult(sinks, [kill.moment for kill in run.fired], run.restarts, run.seconds)


def _targets(stage: Stage, variant: str) -> tuple[Target, ...]:
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
        facts = gather(ledger, query_name(target.kind), [sink])
    finally:
        ledger.close()
        sink.close()
    answer = judge_facts(facts)
    skipped = sum(event.kind is EventKind.SKIPPED for event in facts.ledger.events) if facts.ledger else 0
    return SinkResult(finding, len(answer.epochs), tally.replayed, skipped, answer.verdict, facts)
