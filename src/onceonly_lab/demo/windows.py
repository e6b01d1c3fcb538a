"""Second act of the demo: lacking conditions, windows, sessions, an idle writer, reads during kills.

One driver runs all queries and dies twice. This process reads its tables all the while.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from onceonly.audit import judge as judge_facts
from onceonly_lab.demo import claims, input, pictures
from onceonly_lab.demo.claims import Reads, Sample, Wait, WindowsReport
from onceonly_lab.demo.input import CLICK_NOON, CLICK_WRITERS, SCORES, SESSIONS, WINDOWS, Target
from onceonly_lab.demo.job import windowed
from onceonly_lab.demo.plan import plan_windows
from onceonly_lab.demo.stage import Options, Screen, Stage, gathered, postgres
from onceonly_lab.demo.streaming102 import Case, Result, bring, cases, written
from onceonly_lab.necessity.crashes import Shown, shown

if TYPE_CHECKING:
    from onceonly.audit import Facts
    from onceonly_lab.demo.killer import Run

ORDERS = {"A": "row 5 accumulating heuristic", "B": "P102-7 order B"}
"""Cases of two orders in which the same values arrive; both bring early, on-time and late results."""

DASHBOARD = "dashboard"
"""Second table of the query with early, on-time and late results."""

_MINUTES, _IDLE_MINUTES, _UNTIL = 70, 20, CLICK_NOON + timedelta(minutes=60)
"""Of clicks: of the busy writer, of the idle one before it pauses, and the hour that is waited for."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the seed draws: the order in which values arrive, and which writer is idle."""

    seed: int
    order: str
    scores: Case
    sessions: Case
    idle: str

    @classmethod
    def drawn(cls, seed: int) -> Setting:
        """The same for the same seed."""
        chance, by_name = random.Random(seed), cases()
        order, idle = chance.choice([*ORDERS]), chance.choice(CLICK_WRITERS)
        return cls(seed, order, by_name[ORDERS[order]], by_name["row 9 sessions"], idle)

    @property
    def figures(self) -> dict[str, Case]:
        """Queries to what they compute."""
        return {SCORES: self.scores, SESSIONS: self.sessions}

    def write(self, folder: Path) -> None:
        """Write the input of each query, one file per epoch."""
        for name, case in self.figures.items():
            (folder / name).mkdir(parents=True)
            for number in range(len(case.epochs)):
                bring(case, number, folder / name)
        for name in CLICK_WRITERS:
            minutes = range(_IDLE_MINUTES if name == self.idle else _MINUTES)
            input.write_clicks(folder / name, random.Random(self.seed).sample(minutes, len(minutes)))


def targets_in(dsn: str) -> tuple[Target, ...]:
    """Two tables of one query, each with a transaction of its own and a view, and a table of the other."""
    return (
        Target("postgres", dsn, SCORES, ledger=dsn, query=SCORES, commit_timeout=60.0),
        Target("postgres", dsn, DASHBOARD, ledger=dsn, query=SCORES, commit_timeout=61.0),
        Target("postgres", dsn, SESSIONS, ledger=dsn, query=SESSIONS),
    )


def play(options: Options, folder: Path, screen: Screen) -> WindowsReport:
    """Run the act in ``folder``; errors as of the first act."""
    started = time.monotonic()
    setting = Setting.drawn(options.seed)
    setting.write(folder / "input")
    (folder / "logs").mkdir()
    screen.say(f"{WINDOWS:8} designs that lack a condition, through every pair of crashes")
    designs = shown()
    designed = time.monotonic()
    with postgres(options, folder, screen) as dsn:
        stage = Stage(options, folder, dsn, pa.table({}), screen)
        with closing(Observer(stage, setting.idle)) as observer:
            names = {name: case.name for name, case in setting.figures.items()}
            job = stage.job(WINDOWS, targets_in(dsn), figures=names, idle=setting.idle)
            kills = plan_windows(setting.seed, sorted({result.epoch for result in setting.scores.results}))
            epochs = {name: len(case.epochs) for name, case in setting.figures.items()}
            run = stage.torment(job, epochs, kills, observer.watch)
        tables = {target.table: written(dsn, target.table) for target in targets_in(dsn)}
        audits = [_audited(case, job.queries[name]) for name, case in setting.figures.items()]
    seconds = {"designs": designed - started, "drivers": run.seconds, "total": time.monotonic() - started}
    found = _claims(setting, designs, tables, observer, audits)
    drawn = _pictures(setting, designs, tables, observer, run)
    return WindowsReport(
        options.seed, setting.order, [kill.moment for kill in run.fired], found, seconds, audits, drawn
    )


def _audited(case: Case, targets: Sequence[Target]) -> Facts:
    """The audit's facts of a query with its table of open windows."""
    sinks = windowed(case, targets).arguments.sinks
    with ExitStack() as stack:
        for sink in sinks:
            stack.callback(sink.close)
        facts, _ = gathered(targets[0].query, targets[0].ledger, sinks)
    return facts


def _claims(
    setting: Setting,
    designs: Shown,
    tables: dict[str, list[Result]],
    observer: Observer,
    audits: Sequence[Facts],
) -> list[claims.Claim]:
    return [
        claims.of_designs(designs),
        claims.of_results("results", setting.scores, tables[SCORES]),
        claims.of_results("second table", setting.scores, tables[DASHBOARD]),
        claims.of_results("sessions", setting.sessions, tables[SESSIONS]),
        claims.of_sessions(setting.sessions, tables[SESSIONS]),
        claims.of_writers(setting.idle, f"{_UNTIL:%H:%M}", observer.waits),
        claims.of_reads(observer.reads, len(observer.kills)),
        *(claims.of_audit(facts, judge_facts(facts).verdict) for facts in audits),
    ]


def _pictures(
    setting: Setting, designs: Shown, tables: dict[str, list[Result]], observer: Observer, run: Run
) -> dict[str, str]:
    scores, sessions = setting.scores, setting.sessions
    # Each driver begins with the epoch in which the one before it died.
    first, second = (kill.batch for kill in run.fired)
    figure = pictures.figure(scores.name, scores.epochs, tables[SCORES], killed=(first, first + second - 1))
    captioned = [
        (f"Early, on-time and late results, values in order {setting.order}", figure),
        ("Retracting sessions", pictures.figure(sessions.name, sessions.epochs, tables[SESSIONS])),
    ]
    return {
        "windows.svg": pictures.stacked("Windows under two kills", captioned),
        "necessity.svg": pictures.necessity(designs),
        "reads.svg": pictures.reads(observer.reads, observer.kills),
    }


# ---- This process reads while drivers work and die, and asks until when the clicks are complete.

_READ = f"""
SELECT (SELECT coalesce(max(_epoch), 0) FROM {SCORES}), (SELECT count(*) FROM {SCORES}),
       (SELECT coalesce(max(_epoch), 0) FROM {DASHBOARD}), (SELECT count(*) FROM {DASHBOARD}),
       (SELECT coalesce(max(_epoch), 0) FROM {SCORES}_sealed), (SELECT count(*) FROM {SCORES}_sealed),
       (SELECT coalesce(max(_epoch), 0) FROM {DASHBOARD}_sealed), (SELECT count(*) FROM {DASHBOARD}_sealed)
"""


@dataclass
class Observer:
    """Watches the run, and reads at each look.

    Attributes:
        reads: of tables and views, each pair in one statement.
        kills: seconds after the first start.
        waits: answers while a writer is idle, and when it has gone on.
    """

    stage: Stage
    idle: str
    reads: Reads = field(default_factory=Reads)
    kills: list[float] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._connection = psycopg.connect(self.stage.dsn, autocommit=True)

    def close(self) -> None:
        """Close the connection of the reads."""
        self._connection.close()

    def watch(self, run: Run, event: dict[str, Any]) -> None:
        """Follow a run; see ``killer.Watcher``."""
        self.stage.screen.watch(run, event)
        if event["event"] == "killed":
            self.kills.append(time.monotonic() - self._started)
        if event["event"] == "idle":
            self._wait_for_idle_writer()
        self._read()

    def _read(self) -> None:
        try:
            row = self._connection.execute(_READ.encode()).fetchone()
        except psycopg.errors.UndefinedTable:
            return  # the first epoch creates tables and views
        assert row is not None
        first, second, third, fourth = zip(row[::2], row[1::2], strict=True)
        self.reads.add(Sample(time.monotonic() - self._started, (first, second), (third, fourth)))

    def _wait_for_idle_writer(self) -> None:
        say = self.stage.screen.say
        say(f"{WINDOWS:8} {' '.join(self._command('2s')[2:7])}")
        self.waits.append(_answered(self._start("2s")))
        say(f"{WINDOWS:8} waits for {', '.join(self.waits[0].waits_for)}, which now goes on")
        waiting = self._start("120s")
        input.write_clicks(self.stage.folder / "input" / self.idle, [_MINUTES])
        self.waits.append(_answered(waiting))

    def _start(self, timeout: str) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command(timeout), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _command(self, timeout: str) -> list[str]:
        until = f"{_UNTIL:%Y-%m-%dT%H:%MZ}"
        options = ["--ledger", self.stage.dsn, "--timeout", timeout, "--poll", "1s", "--output", "json"]
        return [sys.executable, "-m", "onceonly", "time", "wait", CLICK_WRITERS[0], until, *options]


def _answered(waiting: subprocess.Popen[str]) -> Wait:
    words, problem = waiting.communicate()
    if waiting.returncode not in (0, 1):
        raise TimeoutError(f"The command time wait has no answer:\n{problem}")
    (sink,) = json.loads(words)["sinks"]
    return Wait(waiting.returncode, tuple(sink["held"]), sink.get("lower_at", ""))
