"""Drivers are killed around epochs of random panes into Postgres and Delta: both hold what brute force says."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.jobs import DELAY, TABLE, Job
from integration.processes import Drivers, was_killed
from integration.targets import DeltaTarget, PostgresTarget
from tests.core.test_paned_epochs import IN_ONE
from tests.kafka_client import visible
from tests.panes.oracle import Epoch, Fixed, Oracle, Row, Rules, Sessions

from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kill, pytest.mark.slow]

FILES = 16
RULES = Rules(Fixed(10), count=2, late_count=1, lateness=15, retracting=True)
"""Those of the job, in the words of brute force."""

DEATHS = (
    f"{Point.STAGE_AFTER}:killgroup:2",
    f"{Point.PREPARE_AFTER}:killgroup:5",
    f"{Point.COMMIT_SENT}:killgroup:1",
    f"{Point.COMMIT_AFTER}:killgroup:1",
    f"{Point.COMMIT_SENT}:killgroup:2",
    f"{Point.RECORD_BEFORE}:killgroup:2",
)
"""Where drivers die, one after the other: before an epoch is anywhere, where one sink has it, and where all have it."""

Shown = tuple[int, str, int, int, int, str, int | None]
"""Epoch, word, start of the window, total, sign, timing, number of the pane; None for one that is taken back."""


def sent(draw: random.Random) -> list[list[Row]]:
    """Rows file by file; some come so late that their window is on time, or closed, as surely that of the last one."""
    found = [
        [
            Row(
                draw.choice(["a", "b", "c"]), 0, max(0, 8 * number + draw.randint(-40 if draw.random() < 0.3 else 0, 9))
            )
            for _ in range(draw.randint(1, 6))
        ]
        for number in range(FILES)
    ]
    found[-1].append(Row("a", 0, 0))
    return found


def wanted(files: Sequence[Sequence[Row]]) -> tuple[list[Shown], int, int]:
    """The rows of all epochs, how many rows were dropped, and how many windows stay open."""
    judge, found, greatest = Oracle(RULES), list[Shown](), 0
    for number, rows in enumerate(files, start=1):
        greatest = max([greatest, *(row.time for row in rows)])
        said = tuple(Row(row.key, row.time, row.time) for row in rows)
        for pane in judge.epoch(Epoch(number, said, greatest - DELAY)):
            for (start, _), value in pane.retracts:
                found.append((number, pane.key, start, _whole(value), -1, pane.timing, None))
            found.append((number, pane.key, pane.span[0], _whole(pane.value), 1, pane.timing, pane.index))
    return sorted(found, key=str), judge.dropped, len(judge.windows())


def come_too_late(files: Sequence[Sequence[Row]]) -> list[tuple[int, int, str, int, int]]:
    """Rows whose window an epoch before had closed: epoch, id, word, start of the window, what that had noted."""
    found, noted = list[tuple[int, int, str, int, int]](), None
    for number, rows in enumerate(files, start=1):
        for row in rows:
            start = row.time // 10 * 10
            if noted is not None and start + 10 + (RULES.lateness or 0) <= noted:
                found.append((number, row.time, row.key, start, noted))
        noted = max([row.time - DELAY for row in rows] if noted is None else [noted, *(r.time - DELAY for r in rows)])
    return sorted(found)


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def drop(folder: Path, files: Sequence[Sequence[Row]]) -> None:
    folder.mkdir()
    for number, rows in enumerate(files):
        put(folder, number, rows)


def put(folder: Path, number: int, rows: Sequence[Row]) -> None:
    """Put a file there; a lower number is an older one."""
    hidden = folder / f".{number:05d}"
    pq.write_table(pa.table({"id": [row.time for row in rows], "word": [row.key for row in rows]}), hidden)
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(folder / f"{number:05d}.parquet")


def test_no_kill_shows_a_pane_twice_or_not_at_all(any_postgres: Any, tmp_path: Path, warm_drivers: Drivers) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    files = sent(random.Random(seed))
    database, lake, inbox = any_postgres.database("panes"), tmp_path / "lake", tmp_path / "in"
    also = (("delta", str(lake)),)
    job = Job("scores", "postgres", database, str(inbox), str(tmp_path / "checkpoint"), also=also, panes=True)
    job = replace(job, too_late="too_late")  # by the same transaction as the rows of panes
    drop(inbox, files)
    for death in DEATHS:
        assert was_killed(warm_drivers.start(job, fault=death)), death
    warm_drivers.finish(job)
    panes, dropped, still_open = wanted(files)
    pg, delta = PostgresTarget(database), DeltaTarget(str(lake))
    columns = "word, window_start, total, sign, timing, case when sign > 0 then pane end"
    assert sorted(pg.says(f"select _epoch, {columns} from {TABLE}"), key=str) == panes
    in_lake = [_shown(row) for row in delta.table.to_pyarrow_table().to_pylist()]
    assert sorted(in_lake, key=str) == sorted((row[1:] for row in panes), key=str)
    assert pg.says(f"select count(*) from {TABLE}_state") == [(still_open,)]
    late = come_too_late(files)
    assert len(late) == dropped
    assert sorted(pg.says("select _epoch, id, word, window_start, horizon from too_late")) == late
    rows = PostgresSink(pg.dsn, table=TABLE)
    too_late = PostgresSink(pg.dsn, table="too_late")
    proven(pg.dsn, [rows, delta.sink(), too_late, rows.window_store(separate=True)], dropped)


def _shown(row: dict[str, Any]) -> tuple[Any, ...]:
    number = row["pane"] if row["sign"] > 0 else None
    return row["word"], row["window_start"], row["total"], row["sign"], row["timing"], number


def proven(where: str, sinks: Sequence[Sink], dropped: int) -> None:
    """Demand that every sink was audited, and that epochs say how many rows came too late."""
    with ExitStack() as held:
        ledger = held.enter_context(closing(SqlLedger(where)))
        ledger.open()
        for sink in sinks:
            held.callback(sink.close)
        found = audit(ledger, "scores", sinks)
        epochs = [record.epoch for record in ledger.epochs("scores")]
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    assert [epoch.number for epoch in epochs] == [*range(1, FILES + 1)]
    assert sum(epoch.windows.dropped for epoch in epochs if epoch.windows) == dropped


# ---- where there is no database


def test_no_kill_shows_a_result_twice_or_not_at_all_where_state_is_in_delta(
    tmp_path: Path, warm_drivers: Drivers
) -> None:
    """Results and state are two tables, each with a commit of its own."""
    seed = random.randrange(2**32)
    print("seed", seed)
    files = sent(random.Random(seed))
    lake, inbox, where = tmp_path / "lake", tmp_path / "in", f"sqlite:///{tmp_path}/ledger.db"
    job = Job("scores", "delta", str(lake), str(inbox), str(tmp_path / "checkpoint"), ledger=where, panes=True)
    drop(inbox, files)
    for death in DEATHS:
        assert was_killed(warm_drivers.start(job, fault=death)), death
    warm_drivers.finish(job)
    panes, dropped, still_open = wanted(files)
    delta, keeper = DeltaTarget(str(lake)), DeltaTarget(f"{lake}_state")
    in_lake = [_shown(row) for row in delta.table.to_pyarrow_table().to_pylist()]
    assert sorted(in_lake, key=str) == sorted((row[1:] for row in panes), key=str)
    assert len(keeper.rows("body")) == still_open
    state = delta.sink().window_store(separate=True)
    assert state is not None
    proven(where, [delta.sink(), state], dropped)


# ---- into a topic


@pytest.mark.slow
@pytest.mark.kafka
def test_results_are_in_a_topic_once_whether_a_driver_dies_before_its_commit_or_behind_it(
    any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    """A result is word and greatest id of its window. The state is in Postgres, by a commit of its own."""
    seed = random.randrange(2**32)
    print("seed", seed)
    files, inbox = sent(random.Random(seed)), tmp_path / "in"
    topic = f"{any_kafka.servers} {any_kafka.topic('results')}"
    states = any_postgres.database("states")
    job = Job("scores", "kafka", topic, str(inbox), str(tmp_path / "ck"), ledger=states, windows_in=states)
    drop(inbox, files)
    for death in (Point.COMMIT_BEFORE, Point.COMMIT_SENT, Point.COMMIT_AFTER):
        for hit in (1, 2):  # before it went to the topic, and between the topic and the state
            assert was_killed(warm_drivers.start(job, fault=f"{death}:killgroup:{hit}")), death
    warm_drivers.finish(job)
    judge, greatest, panes = Oracle(replace(RULES, retracting=False, value=max)), 0, list[str]()
    for number, rows in enumerate(files, start=1):
        greatest = max([greatest, *(row.time for row in rows)])
        told = tuple(Row(row.key, row.time, row.time) for row in rows)
        found = judge.epoch(Epoch(number, told, greatest - DELAY))
        panes += [f"{pane.key} {pane.value}" for pane in found]
    servers, _, name = topic.partition(" ")
    assert sorted(visible(servers, name)) == sorted(panes)
    assert PostgresTarget(states).says("select count(*) from windows") == [(len(judge.windows()),)]


# ---- wherever they die

ANYWHERE = (Point.DISCOVER_AFTER, Point.INSTALL_AFTER, Point.RECALL_AFTER, *IN_ONE)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["windows", "sessions", "tens"])
def test_after_each_epoch_and_each_kill_rows_and_what_state_has_not_shown_are_the_sums_of_the_rows_that_were_taken(
    any_postgres: Any, tmp_path: Path, warm_drivers: Drivers, shape: str
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    files, judge = sent(draw), Oracle(replace(RULES, window=Sessions(10)) if shape == "sessions" else RULES)
    database, inbox = any_postgres.database(f"drawn_{shape}"), tmp_path / "in"
    pg, also = PostgresTarget(database), (("delta", str(tmp_path / "lake")),)
    job = Job("scores", "postgres", database, str(inbox), str(tmp_path / "ck"), also=also, panes=True)
    job = replace(job, sessions=shape == "sessions", tens=shape == "tens")
    sums, greatest, deaths = [dict[Of, int]()], 0, list[str]()
    inbox.mkdir()
    for number, rows in enumerate(files, start=1):
        greatest = max([greatest, *(row.time for row in rows)])
        said = tuple(Row(row.key, row.time, row.time) for row in rows)
        judge.epoch(Epoch(number, said, greatest - DELAY))
        sums.append({(key, *span): _whole(value) for (key, span), value in judge.sums().items()})
        put(inbox, number - 1, rows)
        for _ in range(draw.choice([0, 1, 1, 2])):
            death = f"{draw.choice(ANYWHERE)}:killgroup:{draw.choice([1, 1, 2])}"
            driver = warm_drivers.start(job, fault=death)
            if was_killed(driver):
                deaths.append(f"{number} {death}")
            stands = reconciled(pg, sums)
            assert stands in (number - 1, number), f"{stands} after {deaths}"
        warm_drivers.finish(job)
        assert reconciled(pg, sums) == number
    print(len(deaths), "kills:", ", ".join(deaths))
    assert len(deaths) > 3
    in_lake = [_shown(row) for row in DeltaTarget(str(tmp_path / "lake")).table.to_pyarrow_table().to_pylist()]
    columns = "word, window_start, total, sign, timing, case when sign > 0 then pane end"
    assert sorted(in_lake, key=str) == sorted(pg.says(f"select {columns} from {TABLE}"), key=str)


Of = tuple[str, int, int]
"""A window: word, start, end."""


def reconciled(pg: PostgresTarget, sums: Sequence[dict[Of, int]]) -> int:
    """Demand that rows and state of one moment are what windows came to by then; the epoch that they are of."""
    if pg.says(f"select to_regclass('{TABLE}_state')") == [(None,)]:
        return 0
    [(epoch, shown, state)] = pg.says(
        f"""
        select (select max(epoch) from onceonly.head where sink like '%{TABLE}'),
               (select coalesce(json_agg(r), '[]') from
                (select word, window_start, window_end, sum(sign * total) from {TABLE} group by 1, 2, 3) r),
               (select coalesce(json_agg(s), '[]') from {TABLE}_state s)
        """
    )
    found = {(row["word"], row["window_start"], row["window_end"]): row["sum"] for row in shown}
    for row in state:
        (word,), (values, _, _, _, emitted, _) = json.loads(row["key"]), json.loads(row["body"])
        place = word, row["start"], row["stop"]
        found[place] = found.get(place, 0) + values[0]
        for start, end, _, (told,) in emitted:
            found[word, start, end] -= told
    # Of sessions that others absorbed rows are left which come to nothing.
    wanted = sums[epoch]
    assert {place: value for place, value in found.items() if value or place in wanted} == wanted, epoch
    return int(epoch)
