"""The benchmark program: what to measure, in which order, and what becomes of the result."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import bars, long, machine, memory, points, recovery, report, streams
from benchmarks.data import Shape, generate
from benchmarks.destinations import TestBed
from benchmarks.model import Bar, Result, Run, compare
from benchmarks.streams import SETTLING
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.postgres import EmbeddedPostgres

RESULTS = Path(__file__).parent / "results"

ALONE = ("long", "points")
"""Groups of bars that have a result of their own when they are asked for by name."""

_WARM_EPOCHS, _WARM_EPOCHS_SMALL = 3, 8
_FEW = 100
_MESSAGE_TASKS = 2
"""Spark's Kafka sink writes by as many producers as there are tasks: its job has one for each of two cores."""

_MANY_CONNECTIONS = {"max_connections": "200"}
_BROKER = ("-Xmx1g", "-XX:TieredStopAtLevel=4")
"""Sized and compiled as for work; what tests run is small and quick to start."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call measures.

    Attributes:
        bars: which.
        rounds: counted rounds.
        shapes: inputs of the jobs, large ones first.
        age: how old the old pipeline of the long job gets.
        judged: whether bars are held against the result.
    """

    bars: tuple[Bar, ...]
    rounds: int
    shapes: tuple[Shape, ...]
    age: int
    judged: bool

    @property
    def large(self) -> Shape:
        """Input of the large jobs."""
        return self.shapes[0]

    @property
    def needs_kafka(self) -> bool:
        """Whether a broker is written to."""
        return any("Kafka" in bar.ours for bar in self.bars)

    def of(self, group: Sequence[Bar]) -> tuple[Bar, ...]:
        """The wanted bars of a group."""
        return tuple(bar for bar in group if bar in self.bars)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 if every bar is met, 1 if one is missed, 2 for a wrong call."""
    asked = _parse(arguments)
    try:
        plan = _plan(asked)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found = _measure(plan)
    text = report.as_markdown(found)
    print(text)
    if folder := _folder(asked, plan):
        name = asked.only or "bench"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        (folder / f"{name}.md").write_text(text)
    missed = [bar["name"] for bar in found["bars"] if not bar["met"]]
    return int(plan.judged and bool(missed))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default %(default)s)")
    parser.add_argument("--only", metavar="NAME", help="bars whose name contains NAME; 'long' is measured only so")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large jobs (default %(default)s)")
    parser.add_argument(
        "--tasks",
        type=int,
        default=1,
        help="row groups per file of the large jobs; the messages for Kafka have two at least",
    )
    parser.add_argument("--age", type=int, default=10_000, help="epochs of the old pipeline of the long jobs")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, no judgement")
    parser.add_argument("--out", type=Path, help="where to write; a full run writes to benchmarks/results")
    return parser.parse_args(arguments)


def _plan(asked: argparse.Namespace) -> Plan:
    usual = (*bars.STREAMS, *bars.MEMORY, *bars.RECOVERIES, *bars.POINTS)
    chosen = tuple(bar for bar in (*usual, *bars.LONG) if asked.only in bar.name) if asked.only else usual
    if not chosen:
        names = ", ".join(bar.name for bar in (*usual, *bars.LONG))
        raise ValueError(f"no bar is called {asked.only!r}; there are: {names}")
    if min(asked.rounds, asked.rows, asked.tasks) < 1 or asked.age < 2 * long.YOUNG:
        raise ValueError(f"--rounds, --rows and --tasks count from 1, --age from {2 * long.YOUNG}")
    if asked.quick:
        return Plan(chosen, 1, _shapes(5, 20_000, 12, asked.tasks), 300, judged=False)
    shapes = _shapes(10, -(-asked.rows // 10), 30, asked.tasks)
    return Plan(chosen, asked.rounds, shapes, asked.age, judged=True)


def _shapes(epochs: int, rows: int, small_epochs: int, tasks: int) -> tuple[Shape, ...]:
    large = Shape("large", epochs, rows, tasks)
    wide = replace(large, name="wide", kind="orders for Kafka, too")
    messages = replace(large, name="messages", kind="messages", tasks=max(_MESSAGE_TASKS, tasks))
    small = Shape("small", small_epochs, _FEW)
    return large, wide, messages, small, replace(small, name="few messages", kind="messages")


def _folder(asked: argparse.Namespace, plan: Plan) -> Path | None:
    """Where results go: only a full run replaces the committed ones."""
    whole = not asked.quick and asked.rows == 1_000_000 and asked.only in (None, *ALONE)
    folder: Path | None = asked.out or (RESULTS if whole else None)
    return folder


def _measure(plan: Plan) -> dict[str, Any]:
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-bench-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        # As root the server runs as another user, who must be able to reach its directory.
        root.chmod(0o755)
        server = stack.enter_context(EmbeddedPostgres(root / "postgres", _MANY_CONNECTIONS))
        results: list[Result] = []
        settings: dict[str, Any] = {"rounds": plan.rounds}
        broker = EmbeddedKafka(root / "kafka", java_options=_BROKER)
        servers = stack.enter_context(broker).servers if plan.needs_kafka else ""
        runs, java = _streams(plan, server, servers, root, results, settings)
        about = machine.describe(server.dsn, java)
        if wanted := plan.of(bars.LONG):
            found, said = long.measure(wanted, server.dsn, root, plan.age)
            results += found
            settings |= said
        if wanted := plan.of(bars.POINTS):
            found, said = points.measure(wanted, server.dsn, root, plan.rounds)
            results += found
            settings |= said
        return report.as_json(about, settings, results, runs)


def _streams(
    plan: Plan, server: EmbeddedPostgres, servers: str, root: Path, results: list[Result], settings: dict[str, Any]
) -> tuple[list[Run], str | None]:
    """Everything that needs Spark."""
    wanted, remembered, recovered = plan.of(bars.STREAMS), plan.of(bars.MEMORY), plan.of(bars.RECOVERIES)
    if not wanted and not remembered and not recovered:
        return [], None
    settings |= {"rows": plan.large.total, "tasks": plan.large.tasks, "settling": SETTLING}
    testbed = TestBed(streams.session(), server.dsn, server.jdbc_url, servers, root)
    java = str(testbed.spark.sparkContext._jvm.System.getProperty("java.version"))
    runs: list[Run] = []
    try:
        for shape in plan.shapes:
            runs += _rounds(testbed, shape, _sides(wanted, shape), plan.rounds)
    finally:
        testbed.spark.stop()
    results += [compare(bar, runs) for bar in wanted]
    if remembered:
        results += memory.measure(remembered, memory.one_epoch(plan.large), testbed, 1)
    if recovered:
        found, parts = recovery.measure(
            recovered, replace(plan.shapes[-1], name="recovery", epochs=8), testbed, plan.rounds
        )
        results += found
        settings |= parts
    return runs, java


def _sides(wanted: Sequence[Bar], shape: Shape) -> list[str]:
    sides = [side for bar in wanted if bar.shape == shape.name for side in (*bar.peers, bar.ours)]
    return [bars.NOOP, *dict.fromkeys(side for side in sides if side != bars.NOOP)] if sides else []


def _rounds(testbed: TestBed, shape: Shape, sides: Sequence[str], rounds: int) -> list[Run]:
    """Round 0 warms up and is not counted; each round begins with another variant."""
    if not sides:
        return []
    epochs = _WARM_EPOCHS_SMALL if shape.rows <= _FEW else _WARM_EPOCHS
    warm = replace(shape, epochs=min(epochs, shape.epochs) + 1)
    for each in (warm, shape):
        generate(each)
    found: list[Run] = []
    for number in range(rounds + 1):
        first = number % len(sides)
        order = (*sides[first:], *sides[:first])
        for again in range(_TRIES):
            # Ledgers remember a run by its name.
            named = number + again * _APART
            one = [_told(streams.run(testbed, shape if number else warm, variant, named)) for variant in order]
            if max(run.others for run in one) <= _QUIET or not number:
                break
            print(f"{shape.name} {number}: others were busy, {_TRIES - again - 1} more tries", file=sys.stderr)
        found += one if number else []
    return found


_QUIET, _TRIES, _APART = 0.5, 4, 1000
"""Processors that others may use before a round is repeated, how often it is run at most, and how far apart its numbers
are."""


def _told(run: Run) -> Run:
    cpu, servers = run.cpu
    times = f"{run.seconds:.2f} s, {run.rate:,.0f} rows/s, epoch p50 {run.epoch_ms:.0f} ms"
    told = f"{times}, cpu {cpu:.2f} + {servers:.2f} s, others {run.others:.2f}"
    print(f"{run.shape} {run.number}: {run.variant}: {told}", file=sys.stderr)
    return run
