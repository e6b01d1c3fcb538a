"""The last act: one query into Postgres, Kafka and Delta, killed above all between two of their commits."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from onceonly.audit import SinkFacts, gather
from onceonly.audit import judge as judge_facts
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.sqlledger import SqlLedger
from onceonly_lab.demo.job import Job
from onceonly_lab.demo.judge import Held, differing, judge
from onceonly_lab.demo.killer import Run, torment
from onceonly_lab.demo.plan import epochs_for, plan_several
from onceonly_lab.demo.report import RunResult, SeveralResult, SinkResult
from onceonly_lab.demo.stage import Stage, kafka
from onceonly_lab.demo.targets import SEVERAL, TOGETHER, Target, query_name

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
        targets = _targets(stage, broker.servers, broker.topic("flights", _PARTITIONS))
        return _tormented(stage, targets)


def _targets(stage: Stage, servers: str, topic: str) -> tuple[Target, ...]:
    made = {
        "postgres": Target("postgres", stage.dsn, f"flights_{SEVERAL}", ledger=stage.dsn),
        "kafka": Target("kafka", servers, topic, ledger=stage.dsn),
        "delta": Target("delta", str(stage.folder / SEVERAL / "delta"), ledger=stage.dsn),
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
        with _sinks(self.targets) as sinks:
            newest = {target.kind: _newest(sink) for target, sink in zip(self.targets, sinks, strict=True)}
        said = ", ".join(f"{kind} holds {epoch}" for kind, epoch in newest.items())
        self.stage.screen.say(f"{SEVERAL:8} epochs now: {said}")
        return said


def _newest(sink: Sink) -> int:
    sink.open(query_name(SEVERAL))
    return max((marker.epoch.number for marker, _ in sink.history()), default=0)


@contextmanager
def _sinks(targets: Sequence[Target]) -> Generator[list[Sink]]:
    made = [target.sink() for target in targets]
    try:
        yield made
    finally:
        for sink in made:
            sink.close()


def _tormented(stage: Stage, targets: tuple[Target, ...]) -> SeveralResult:
    options, screen = stage.options, stage.screen
    checkpoints = stage.folder / SEVERAL / "checkpoint"
    checkpoints.mkdir(parents=True)
    job = Job(SEVERAL, str(stage.folder / "input"), str(checkpoints), targets)
    screen.say(f"{SEVERAL:8} one query into {', then '.join(TOGETHER)}: the same flights")
    screen.begin(SEVERAL, list(job.queries), epochs_for(options.kills))
    witness = _Witness(stage, targets)
    kills = plan_several(options.seed, options.kills, len(targets))
    run = torment(job, kills, stage.folder / "logs", witness.watch, stage.archive(TOGETHER))
    screen.say(f"{SEVERAL:8} comparing every row with the input, every epoch across sinks")
    return _judged(stage, targets, run, witness.moments)


def _judged(stage: Stage, targets: Sequence[Target], run: Run, moments: Sequence[str]) -> SeveralResult:
    name, tally = query_name(SEVERAL), run.tallies[SEVERAL]
    ledger = SqlLedger(stage.dsn)
    try:
        with _sinks(targets) as sinks:
            ledger.open()
            facts = gather(ledger, name, sinks)
    finally:
        ledger.close()
    skipped = sum(event.kind is EventKind.SKIPPED for event in facts.ledger.events) if facts.ledger else 0
    audited = judge_facts(facts).verdict
    results = {
        target.kind: SinkResult(
            judge(stage.given, target.read()), len(held.history), tally.replayed, skipped, audited, facts
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
