"""Every figure of Streaming 102 on real queries into Postgres, its drivers killed: ``python -m integration.figures``.

Each epoch costs two drivers their lives: one when the engine has planned the batch, so that its entry in the offset log
can get the script's clock, and one before or behind the commit. The next one replays, goes on and plans what follows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from integration.jobs import Job
from integration.processes import Drivers, fork_server, was_killed
from integration.targets import PostgresTarget
from tests.panes import story
from tests.panes.test_crashes import BY_WALL_CLOCK, LATER, by_engine, later

from onceonly.faults import Point
from onceonly.spark.jars import fast_options
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.demo.streaming102 import Case, Result, bring, cases, milliseconds, set_clock, written
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_lab.servers.spark import WarmJvm

_MS = 1000


@dataclass(frozen=True)
class Played:
    """What came of a figure.

    Attributes:
        case: which.
        kills: drivers that SIGKILL ended.
        got: the rows that stand.
        dropped: rows that came after their window was closed, by the epochs in the ledger.
        seconds: how long it took.
    """

    case: Case
    kills: int
    got: Sequence[Result]
    dropped: int
    seconds: float

    @property
    def same(self) -> bool:
        """Whether all is as it must be."""
        return list(self.got) == self.case.results and self.dropped == self.case.dropped


def play(case: Case, pg: PostgresTarget, root: Path, drivers: Drivers, shifted: int | None = None) -> Played:
    """Play a figure, with two kills in each epoch.

    Args:
        case: which.
        pg: an empty database.
        root: a directory for input and checkpoint.
        drivers: to kill.
        shifted: an epoch, from 0, that is killed before its commit and replayed by the time of day: what must differ.
    """
    began, kills = time.monotonic(), 0
    inbox, checkpoint = root / "in", root / "ck"
    inbox.mkdir(parents=True)
    job = Job("scores", "postgres:orders", pg.dsn, str(inbox), str(checkpoint), figure=case.name)

    def killed(fault: str) -> None:
        nonlocal kills
        driver = drivers.start(job, fault=fault)
        if not was_killed(driver):
            raise RuntimeError(f"{case.name}: the driver outlived {fault}\n{driver.last_words()}")
        kills += 1

    for number, epoch in enumerate(case.epochs):
        bring(case, number, inbox)
        killed(f"{Point.DISCOVER_AFTER}:killgroup:{min(number, 1) + 1}")
        set_clock(checkpoint, number, milliseconds(epoch["clock"]))
        before = number % 2 or number == shifted
        killed(f"{Point.COMMIT_BEFORE if before else Point.COMMIT_AFTER}:killgroup")
        if number == shifted:
            set_clock(checkpoint, number, milliseconds(epoch["clock"]) + LATER * _MS)
    drivers.finish(job)
    return Played(case, kills, written(pg.dsn, "orders"), _dropped(pg), time.monotonic() - began)


def _dropped(pg: PostgresTarget) -> int:
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    found = sum(epoch.epoch.windows.dropped for epoch in ledger.epochs("scores") if epoch.epoch.windows)
    ledger.close()
    return found


# ---- the campaign


def campaign(names: Sequence[str], lanes: int, folder: Path) -> Iterator[Played]:
    """Play figures, some at a time, each in a database of its own; in the order in which they were named."""
    told = cases()
    with ExitStack() as running:
        postgres = running.enter_context(EmbeddedPostgres(folder / "postgres"))
        free: SimpleQueue[Drivers] = SimpleQueue()
        for lane in range(lanes):
            free.put(running.enter_context(_lane(folder / f"lane-{lane}")))

        def one(numbered: tuple[int, str]) -> Played:
            number, name = numbered
            drivers = free.get()
            try:
                pg = PostgresTarget(postgres.database(f"figure_{number}"))
                return play(told[name], pg, folder / f"figure-{number}", drivers)
            finally:
                free.put(drivers)

        with ThreadPoolExecutor(lanes) as pool:
            yield from pool.map(one, enumerate(names))


@contextmanager
def _lane(folder: Path) -> Iterator[Drivers]:
    """Drivers of a JVM that outlives them."""
    folder.mkdir()
    options = {"spark.master": "local[2]", "spark.app.name": "warm", **fast_options(kafka=False)}
    with WarmJvm(options, folder / "jvm.log") as jvm, fork_server(folder) as forks:
        drivers = Drivers(folder, jvm.environment(), forks)
        try:
            yield drivers
        finally:
            drivers.close()


# ---- what is printed


def line(played: Played) -> str:
    """A row of the table, and both lists where they differ."""
    case, expected = played.case, played.case.results
    verdict = "equal" if played.same else "DIFFERENT"
    numbers = f"{len(case.epochs):6} {played.kills:5} {len(expected):8} {len(played.got):5} {case.dropped:8}"
    told = f"{case.name:32} {numbers} {played.dropped:4} {played.seconds:6.0f} s  {verdict}"
    if played.same:
        return f"{told}\n    {', '.join(map(pane, played.got))}"
    return f"{told}\n    expected {', '.join(map(pane, expected))}\n    got      {', '.join(map(pane, played.got))}"


def pane(row: Result) -> str:
    """A row of a pane, in short: total with its sign, timing, and when it fired."""
    fired = time.strftime("%H:%M:%S", time.gmtime(row.fired_at / _MS))
    return f"{'-' * (row.sign < 0)}{row.total} {row.timing[0]} {fired}"


HEAD = f"{'figure':32} epochs kills expected   got  dropped  got     time"


def controls() -> bool:
    """Replay each epoch by the time of day, without Spark: whether that shows wherever it must."""
    found = True
    for name in BY_WALL_CLOCK:
        case = story.cases()[name]
        truth = by_engine(case.rules, case.epochs)
        spoiled = sum(by_engine(case.rules, later(case.epochs, at)) != truth for at in range(len(case.epochs)))
        wrong = spoiled != BY_WALL_CLOCK[name][1]
        print(f"{name:32} {spoiled} of {len(case.epochs)} replays by the time of day differ{' (WRONG)' * wrong}")
        found = found and not wrong
    return found


def drawn(number: int | None, seed: int) -> list[str]:
    """All figures, or some of them."""
    names = list(cases())
    return names if number is None else random.Random(seed).sample(names, number)


def as_json(played: Sequence[Played]) -> Mapping[str, object]:
    """What came out, for pictures."""
    rows = {one.case.name: [row._asdict() for row in one.got] for one in played}
    return {"kills": sum(one.kills for one in played), "rows": rows}


def main(argv: Sequence[str]) -> int:
    """0 when every figure came out as it must."""
    parser = argparse.ArgumentParser(prog="make streaming102")
    parser.add_argument("--cases", type=int, choices=range(1, len(cases()) + 1), help="draw so many; default: all")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="for the draw")
    parser.add_argument("--lanes", type=int, choices=range(1, 9), default=2, help="figures at a time, each with a JVM")
    parser.add_argument("--controls", action="store_true", help="replay by the time of day as well, which must show")
    parser.add_argument("--write", type=Path, help="a file for the rows, as JSON")
    said = parser.parse_args(argv)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    names = drawn(said.cases, said.seed)
    print(f"{len(names)} figures, seed {said.seed}\n{HEAD}")
    played = []
    with tempfile.TemporaryDirectory(prefix="onceonly-") as folder:
        for one in campaign(names, min(said.lanes, len(names)), Path(folder)):
            played.append(one)
            print(line(one), flush=True)
            if said.write:
                said.write.write_text(json.dumps(as_json(played), indent=1) + "\n")
    equal = sum(one.same for one in played)
    print(f"{sum(one.kills for one in played)} drivers killed; {equal} of {len(played)} figures equal")
    return 0 if equal == len(names) and (not said.controls or controls()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
