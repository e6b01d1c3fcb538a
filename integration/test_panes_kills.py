"""Drivers are killed around epochs of random panes into Postgres and Delta: both hold what brute force says."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.jobs import DELAY, TABLE, Job
from integration.processes import Drivers, was_killed
from integration.targets import DeltaTarget, PostgresTarget
from tests.panes.oracle import Epoch, Fixed, Oracle, Row, Rules

from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kill, pytest.mark.long]

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
    """Rows file by file; some come so late that their window is on time, or closed."""
    return [
        [
            Row(
                draw.choice(["a", "b", "c"]), 0, max(0, 8 * number + draw.randint(-40 if draw.random() < 0.3 else 0, 9))
            )
            for _ in range(draw.randint(1, 6))
        ]
        for number in range(FILES)
    ]


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


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def drop(folder: Path, files: Sequence[Sequence[Row]]) -> None:
    folder.mkdir()
    for number, rows in enumerate(files):
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.table({"id": [row.time for row in rows], "word": [row.key for row in rows]}), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def test_no_kill_shows_a_pane_twice_or_not_at_all(any_postgres: Any, tmp_path: Path, warm_drivers: Drivers) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    files = sent(random.Random(seed))
    database, lake, inbox = any_postgres.database("panes"), tmp_path / "lake", tmp_path / "in"
    also = (("delta", str(lake)),)
    job = Job("scores", "postgres", database, str(inbox), str(tmp_path / "checkpoint"), also=also, panes=True)
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
    proven(pg, delta, dropped)


def _shown(row: dict[str, Any]) -> tuple[Any, ...]:
    number = row["pane"] if row["sign"] > 0 else None
    return row["word"], row["window_start"], row["total"], row["sign"], row["timing"], number


def proven(pg: PostgresTarget, delta: DeltaTarget, dropped: int) -> None:
    """Demand that every sink was audited, and that epochs say how many rows came too late."""
    rows = PostgresSink(pg.dsn, table=TABLE)
    keeper, ledger = rows.state_keeper(beside=True), SqlLedger(pg.dsn)
    ledger.open()
    found = audit(ledger, "scores", [rows, delta.sink(), keeper])
    epochs = [record.epoch for record in ledger.epochs("scores")]
    for one in (rows, keeper, ledger):
        one.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(one) for one in found.findings]
    assert [epoch.number for epoch in epochs] == [*range(1, FILES + 1)]
    assert sum(epoch.panes.dropped for epoch in epochs if epoch.panes) == dropped
