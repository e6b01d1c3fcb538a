"""Time of real input: what each epoch says of a year of flights is what a plain loop says, over SIGKILLs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.departures_job import DAYS, DELAY_HOURS
from integration.processes import REPOSITORY
from integration.targets import DeltaTarget, PostgresTarget

from onceonly.faults import Point
from onceonly_checkpoints.epoch import Epoch
from onceonly_lab.demo import input
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kill, pytest.mark.slow]

DEATHS = (f"{Point.COMMIT_SENT}:killgroup:5", f"{Point.COMMIT_AFTER}:killgroup:7", f"{Point.STAGE_AFTER}:killgroup:6")
"""Before the first sink has answered, between the two, before any of them."""

JULY = "2013-07-01T00:00Z"
PAST_ALL = "2014-06-01T00:00Z"


# ---- The input: flights in the order in which they took off, a file a day.


@dataclass(frozen=True)
class Flight:
    """A flight, and when it should have taken off and did, in UTC."""

    row: dict[str, object]
    departure: datetime
    seen: datetime


def flights(place: Path) -> list[Flight]:
    """All of them; one that was cancelled is known of when it should have taken off."""
    input.write(place, input.AVAILABLE, 12)
    found: list[Flight] = []
    for row in input.read(place).to_pylist():
        departure = row["time_hour"] + timedelta(minutes=row["minute"])
        found.append(Flight(row, departure, departure + timedelta(minutes=row["dep_delay"] or 0)))
    return sorted(found, key=lambda one: one.seen)


def arrive(known: Sequence[Flight], inbox: Path) -> list[list[Flight]]:
    """Write a file for each day; a file source reads older ones first."""
    inbox.mkdir()
    days = [list(of_day) for _, of_day in groupby(known, key=lambda one: one.seen.date())]
    for number, day in enumerate(days):
        path = inbox / f"{day[0].seen:%Y-%m-%d}.parquet"
        pq.write_table(pa.Table.from_pylist([one.row for one in day], input.arrow_schema()), path)
        os.utime(path, (1_388_534_400 + number, 1_388_534_400 + number))
    return days


# ---- What is expected, without Spark and without us.


@dataclass(frozen=True)
class Expected:
    """What an epoch must say."""

    noted: int | None
    horizon: int | None
    late: int
    first: int | None
    last: int | None


def says(epoch: Epoch) -> Expected:
    """What it does say."""
    time = epoch.time
    assert time is not None
    assert (time.dataset_complete_until, time.rows_without_time) == (time.complete_until, 0)
    return Expected(time.complete_until, time.late_before, time.late_rows, time.earliest, time.latest)


def ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def expected(days: Sequence[Sequence[Flight]], delay: timedelta) -> Iterator[Expected]:
    noted: int | None = None
    latest = 0
    for start in range(0, len(days), DAYS):
        times = [ms(one.departure) for day in days[start : start + DAYS] for one in day]
        late = 0
        for time in times:
            if noted is not None and time < noted:
                late += 1
        before, latest = noted, max(latest, *times)
        noted = latest - int(delay.total_seconds()) * 1000
        yield Expected(noted, before, late, min(times), max(times))


# ---- The run.


def command(*words: str) -> list[str]:
    return [str(Path(sys.executable).parent / "onceonly"), *words]


class Run:
    """A process, and what it says: into files, so that it never waits for somebody to read it."""

    def __init__(self, folder: Path, words: Sequence[str], fault: str = "") -> None:
        environment = {**os.environ, **({"ONCEONLY_FAULT": fault} if fault else {})}
        made = Path(tempfile.mkdtemp(dir=folder))
        self._out, self._err = made / "out", made / "err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                words, cwd=REPOSITORY, env=environment, start_new_session=True, stdout=out, stderr=err
            )

    def ends(self, code: int, within: float = 300) -> str:
        """It must end with this exit code; what it wrote to stdout."""
        found = self._process.wait(within)
        assert found == code, self._out.read_text() + self._err.read_text()[-3000:]
        return self._out.read_text()

    def close(self) -> None:
        """Leave nothing of it running, its JVM included."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    started: list[Run] = []

    def start(words: Sequence[str], fault: str = "") -> Run:
        started.append(Run(tmp_path, words, fault))
        return started[-1]

    yield start
    for one in started:
        one.close()


COMPLETE = """
SELECT w.lower, (SELECT count(*) FROM departures WHERE departure < onceonly.at(w.lower))
FROM onceonly.time_window w WHERE w.target = 'departures'::regclass
"""


@pytest.mark.slow
def test_a_year_of_flights_says_what_a_plain_loop_says_of_it_and_a_wait_ends_when_its_rows_are_there(
    tmp_path: Path, pg: PostgresTarget, delta: DeltaTarget, run: Callable[..., Run]
) -> None:
    known = flights(tmp_path / "original")
    days = arrive(known, tmp_path / "flights")
    assert not any(one.late for one in expected(days, timedelta(days=1))), "no flight of that year was a day behind"
    wanted = list(expected(days, timedelta(hours=DELAY_HOURS)))
    told = [str(tmp_path / "flights"), pg.dsn, delta.path, str(tmp_path / "checkpoint")]
    job = [sys.executable, "-m", "integration.departures_job", *told]

    def dies(fault: str) -> None:
        """Of one snapshot: nothing is missing before what is complete, but what comes late."""
        run(job, fault).ends(-signal.SIGKILL)
        [(lower, rows)] = pg.says(COMPLETE)
        here = next(number for number, one in enumerate(wanted, start=1) if one.noted == lower)
        arrived = (one for day in days[: here * DAYS] for one in day)
        assert rows == sum(ms(one.departure) < lower for one in arrived)

    dies(DEATHS[0])
    waits = run(command("time", "wait", "departures", JULY, "--ledger", pg.dsn, "--timeout", "10m"))
    in_vain = run(command("time", "wait", "departures", PAST_ALL, "--ledger", pg.dsn, "--timeout", "20s"))
    for fault in DEATHS[1:]:
        dies(fault)
    in_vain.ends(1)
    last = run(job)
    assert waits.ends(0).count("complete until 2013-") == 2, "in both sinks"
    [(there,)] = pg.says("SELECT count(*) FROM departures WHERE departure < '2013-07-01 00:00Z'")
    last.ends(0)
    july = datetime(2013, 7, 1, tzinfo=timezone.utc)
    at = next(number for number, one in enumerate(wanted, start=1) if one.noted and one.noted >= ms(july))
    assert there >= sum(one.departure < july for day in days[: at * DAYS] for one in day)

    for sink in (PostgresSink(pg.dsn, table="departures"), delta.sink()):
        sink.open("departures")
        assert [says(marker.epoch) for marker, _ in sink.history()] == wanted, sink.id
        sink.close()
    assert pg.says("SELECT row FROM departures ORDER BY row") == [(number + 1,) for number in range(input.AVAILABLE)]
    late = {number: one.late for number, one in enumerate(wanted, start=1) if one.late}
    print(f"{len(wanted)} epochs of {len(days)} files, {sum(late.values())} late rows in {len(late)} of them")
    assert len(late) > 5, "the word is not kept by all of them"
    words = ("--ledger", pg.dsn, "--history", "--limit", str(len(wanted)), "--output", "json")
    epochs = json.loads(run(command("time", "show", "departures", *words)).ends(0))["epochs"]
    assert sum(epoch["rows"] for epoch in epochs) == input.AVAILABLE
    assert {epoch["epoch"]: epoch["late_rows"] for epoch in epochs if epoch.get("late_rows")} == late
