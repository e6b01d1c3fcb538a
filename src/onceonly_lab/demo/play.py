"""Sequence of the demo: input, database, acts with kills, judge, audit.

The last act writes into several sinks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.audit import SinkFacts
from onceonly.audit import judge as judge_facts
from onceonly.errors import OnceOnlyError
from onceonly.protocol import Sink
from onceonly_lab.demo import input, windows
from onceonly_lab.demo.claims import WindowsReport
from onceonly_lab.demo.input import SEVERAL, TOGETHER, Target, query_name
from onceonly_lab.demo.judge import Held, Report, RunResult, SeveralResult, SinkResult, differing, judge
from onceonly_lab.demo.killer import KillNeverFired, Run
from onceonly_lab.demo.plan import plan, plan_several
from onceonly_lab.demo.stage import Options, Screen, Stage, audited, fetch, kafka, opened, postgres
from onceonly_lab.driver import DriverEnded
from onceonly_lab.servers.kafka import KafkaDidNotStart
from onceonly_lab.servers.postgres import PostgresDidNotStart

if TYPE_CHECKING:
    import pyarrow as pa


# ---- The last act: one query into Postgres, Kafka and Delta, killed above all between two of their commits.

_PARTITIONS = 3


def several(stage: Stage) -> SeveralResult:
    """Run the act and judge it: every row of each sink, every epoch across the sinks, and the audit.

    Raises:
        DriverEnded: a driver failed by itself.
        DriverSilent: a driver hung.
        KafkaDidNotStart: the broker did not start.
        KillNeverFired: the input ended before the last kill.
    """
    with kafka(stage) as broker:
        targets = _several_targets(stage, broker.servers, broker.topic("flights", _PARTITIONS))
        return _tormented(stage, targets)


def _several_targets(stage: Stage, servers: str, topic: str) -> tuple[Target, ...]:
    made = {
        "postgres": Target("postgres", stage.dsn, f"flights_{SEVERAL}", ledger=stage.dsn, query=SEVERAL),
        "kafka": Target("kafka", servers, topic, ledger=stage.dsn, query=SEVERAL),
        "delta": Target("delta", str(stage.folder / SEVERAL / "delta"), ledger=stage.dsn, query=SEVERAL),
    }
    return tuple(made[kind] for kind in TOGETHER)


@dataclass(slots=True)
class _Witness:
    """Looks into every sink where a driver died between two commits, and says which epochs they hold."""

    stage: Stage
    targets: Sequence[Target]
    moments: list[str] = field(default_factory=list)

    def watch(self, run: Run, event: dict[str, Any]) -> None:
        self.stage.screen.watch(run, event)
        if event["event"] == "killed":
            kill = run.fired[-1]
            self.moments.append(f"{kill.moment}: {self._standing()}" if kill.written else kill.moment)

    def _standing(self) -> str:
        with opened(self.targets) as sinks:
            newest = {target.kind: _newest(sink) for target, sink in zip(self.targets, sinks, strict=True)}
        summary = ", ".join(f"{kind} holds {epoch}" for kind, epoch in newest.items())
        self.stage.screen.say(f"{SEVERAL:8} epochs now: {summary}")
        return summary


def _newest(sink: Sink) -> int:
    sink.open(query_name(SEVERAL))
    return max((marker.epoch.number for marker, _ in sink.history()), default=0)


def _tormented(stage: Stage, targets: tuple[Target, ...]) -> SeveralResult:
    options, screen = stage.options, stage.screen
    screen.say(f"{SEVERAL:8} one query into {', then '.join(TOGETHER)}: the same flights")
    witness = _Witness(stage, targets)
    kills = plan_several(options.seed, options.several_kills, len(targets))
    run = stage.torment(stage.job(SEVERAL, targets), {SEVERAL: options.epochs}, kills, witness.watch)
    screen.say(f"{SEVERAL:8} comparing every row with the input, every epoch across sinks")
    return _judged(stage, targets, run, witness.moments)


def _judged(stage: Stage, targets: Sequence[Target], run: Run, moments: Sequence[str]) -> SeveralResult:
    tally = run.tallies[SEVERAL]
    facts, skipped = audited(SEVERAL, targets)
    verdict = judge_facts(facts).verdict
    results = {
        target.kind: SinkResult(
            judge(stage.given, target.read()), len(held.history), tally.replayed, skipped, verdict, facts
        )
        for target, held in zip(targets, facts.sinks, strict=True)
    }
    unlike = differing([_held(sink) for sink in facts.sinks])
    return SeveralResult(RunResult(results, moments, run.restarts, run.seconds), unlike)


def _held(sink: SinkFacts) -> dict[int, Held]:
    rows = sink.rows
    return {
        epoch.number: Held(epoch.chain, None if rows is None else rows.get(epoch.number, 0)) for epoch in sink.epochs
    }


# ---- The order of events: input, database, each act of the demo through its kills, judge, audit.

_FAILURES = (DriverEnded, TimeoutError, KillNeverFired, PostgresDidNotStart, KafkaDidNotStart)


class CouldNotAnswer(RuntimeError):
    """The demo did not come to its end; the text says why."""


def play(options: Options, folder: Path, screen: Screen) -> Report | WindowsReport:
    """Run an act of the demo in ``folder``.

    Raises:
        CouldNotAnswer: a driver failed or hung, a kill never fired, a sink could not be read in time, or a jar,
            Postgres or Kafka could not be had.
    """
    try:
        return windows.play(options, folder, screen) if options.windows else _play(options, folder, screen)
    except (*_FAILURES, OnceOnlyError) as failure:
        raise CouldNotAnswer(str(failure)) from failure


def _play(options: Options, folder: Path, screen: Screen) -> Report:
    started = time.monotonic()
    input.write(folder / "input", options.rows, options.epochs)
    (folder / "logs").mkdir()
    fetch(options, screen)
    with postgres(options, folder, screen) as dsn:
        stage = Stage(options, folder, dsn, input.read(folder / "input"), screen)
        results = {variant: _variant(stage, variant) for variant in options.variants if options.sinks}
        several_result = several(stage) if options.several else None
    seconds = time.monotonic() - started
    return Report(options.seed, options.rows, results.get("onceonly"), results.get("plain"), seconds, several_result)


def _variant(stage: Stage, variant: str) -> RunResult:
    options, screen = stage.options, stage.screen
    targets = _targets(stage, variant)
    kills = plan(options.seed, options.kills, options.sinks)
    run = stage.torment(stage.job(variant, targets), dict.fromkeys(options.sinks, options.epochs), kills, screen.watch)
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


def _result(target: Target, run: Run, source_rows: pa.Table) -> SinkResult:
    finding, tally = judge(source_rows, target.read()), run.tallies[target.kind]
    if not target.ledger:
        return SinkResult(finding, tally.batches, tally.replayed, skipped=0)
    facts, skipped = audited(target.kind, [target])
    answer = judge_facts(facts)
    return SinkResult(finding, len(answer.epochs), tally.replayed, skipped, answer.verdict, facts)
