"""A producer sends one row in twenty twice, over eight days, to drivers that are killed: each id once in seven days."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.jobs import SEEN, Job
from integration.processes import Drivers, was_killed
from integration.targets import DeltaTarget, PostgresTarget

from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kill]

ROWS = 200
DAY_MS = 86_400_000
BEGIN_MS = 1_700_000_000_000
WITHIN_MS = 7 * DAY_MS


@dataclass(frozen=True)
class Course:
    """How a story goes.

    Attributes:
        files: of the producer, each of them a batch.
        step_ms: between two batches.
        deaths: by batch: where its driver dies, which is not the one that planned it.
    """

    files: int
    step_ms: int
    deaths: Mapping[int, str]

    def clock(self, batch: int) -> int:
        return BEGIN_MS + batch * self.step_ms

    @property
    def outlasts_ids(self) -> bool:
        """Whether ids of the first batch may come again in the last."""
        return self.clock(self.files - 1) - self.clock(0) > WITHIN_MS


SHORT = Course(2, 4 * DAY_MS, {1: f"{Point.COMMIT_AFTER}:killgroup:1"})
LONG = Course(
    12,
    3 * DAY_MS // 4,
    {
        2: f"{Point.STAGE_AFTER}:killgroup",
        4: f"{Point.PREPARE_AFTER}:killgroup:2",
        6: f"{Point.COMMIT_SENT}:killgroup",
        8: f"{Point.COMMIT_AFTER}:killgroup:1",
        10: f"{Point.RECORD_BEFORE}:killgroup",
    },
)

Row = tuple[int, str]


def sent(draw: random.Random, course: Course) -> list[list[Row]]:
    """What the producer sends, file by file: of its rows one in twenty is an older one, at times of this very file."""
    files: list[list[Row]] = []
    for number in range(course.files):
        rows: list[Row] = []
        for _ in range(ROWS):
            before = draw.choice([rows, *files]) if draw.random() < 0.05 and (rows or files) else []
            again = draw.choice(before) if before else None
            rows.append(again or (number * ROWS + len(rows), f"sent in {number}"))
        files.append(rows)
    # Some come late enough to be new again, where the files take so long.
    late = {identifier for identifier, _ in files[0][:10]}
    files[-1] = [row for row in files[-1] if row[0] not in late]
    files[-1] += [(identifier, "eight days later") for identifier in sorted(late)]
    return files


def oracle(files: Sequence[Sequence[Row]], course: Course) -> Counter[Row]:
    """What is to arrive."""
    known: dict[int, int] = {}
    found: Counter[Row] = Counter()
    for number, rows in enumerate(files):
        clock = course.clock(number)
        for identifier, word in rows:
            if identifier not in known or clock - known[identifier] > WITHIN_MS:
                known[identifier] = clock
                found[identifier, word] += 1
    return found


def drop(folder: Path, number: int, rows: Sequence[Row]) -> None:
    path = folder / f"{number:05d}.parquet"
    hidden = path.with_name(f".{path.name}")
    pq.write_table(pa.table({"id": [one for one, _ in rows], "word": [word for _, word in rows]}), hidden)
    os.utime(hidden, (BEGIN_MS // 1000 + number, BEGIN_MS // 1000 + number))
    hidden.rename(path)


def set_clock(checkpoint: Path, batch: int, clock_ms: int) -> None:
    """Have a batch that is planned and not written be planned at its time."""
    entry = checkpoint / "offsets" / str(batch)
    version, metadata, *offsets = entry.read_text().splitlines()
    said = {**json.loads(metadata), "batchTimestampMs": clock_ms}
    entry.write_text("\n".join([version, json.dumps(said), *offsets]))
    entry.with_name(f".{batch}.crc").unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["postgres", "delta"])
@pytest.mark.parametrize("course", [SHORT, LONG], ids=["short", "long"])
def test_no_kill_lets_an_id_through_twice_or_not_at_all(
    any_postgres: Any, tmp_path: Path, warm_drivers: Drivers, course: Course, place: str
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    files = sent(random.Random(seed), course)
    assert sum(map(len, files)) - len({row for rows in files for row in rows}) > course.files * ROWS // 40
    database, lake = any_postgres.database(f"once{course.files}{place}"), tmp_path / "lake"
    inbox, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    inbox.mkdir()
    ids = str(tmp_path / "seen") if place == "delta" else ""
    said: dict[str, Any] = {"also": (("delta", str(lake)),), "once": "7 days", "ids": ids}
    job = Job("arrivals", "postgres", database, str(inbox), str(checkpoint), **said)
    drop(inbox, 0, files[0])
    assert was_killed(warm_drivers.start(job, fault=f"{Point.DISCOVER_AFTER}:killgroup"))
    for batch in range(course.files):
        set_clock(checkpoint, batch, course.clock(batch))
        if death := course.deaths.get(batch):
            assert was_killed(warm_drivers.start(job, fault=death)), death
        if batch + 1 < course.files:
            drop(inbox, batch + 1, files[batch + 1])
            assert was_killed(warm_drivers.start(job, fault=f"{Point.DISCOVER_AFTER}:killgroup:2"))
    warm_drivers.finish(job)
    wanted = oracle(files, course)
    assert wanted.total() < sum(map(len, files))
    pg = PostgresTarget(database)
    assert Counter(pg.says("select id, word from arrivals")) == wanted
    table = DeltaTarget(str(lake)).table.to_pyarrow_table(columns=["id", "word"])
    assert Counter((row["id"], row["word"]) for row in table.to_pylist()) == wanted
    assert any(word == "eight days later" for _, word in wanted) == course.outlasts_ids
    known = {
        number for number in range(course.files) if course.clock(course.files - 1) - course.clock(number) <= WITHIN_MS
    }
    store = DeltaSink(ids) if ids else PostgresSink(database, table=SEEN)
    young = proven(pg, lake, store.seen_ids_store(7 * 86_400), wanted.total(), sum(map(len, files)))
    assert young == len({one for number in known for one in new(files, number, course)})


def new(files: Sequence[Sequence[Row]], number: int, course: Course) -> set[int]:
    """The ids that a batch lets through."""
    after, before = (oracle(files[:upto], course) for upto in (number + 1, number))
    return {identifier for identifier, _ in after - before}


def proven(pg: PostgresTarget, lake: Path, kept: Any, through: int, offered: int) -> int:
    """Demand that every sink was audited, and that the counts of all epochs are those of the input.

    Returns the number of ids that are known.
    """
    rows = PostgresSink(pg.dsn, table="arrivals")
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    found = audit(ledger, "arrivals", [rows, DeltaTarget(str(lake)).sink(), kept])
    epochs = [record.epoch for record in ledger.epochs("arrivals")]
    young = sum(kept.recount().values())
    for sink in (rows, kept):
        sink.close()
    ledger.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    assert sum(epoch.digest.rows for epoch in epochs) == through
    assert sum(epoch.repeated.rows for epoch in epochs if epoch.repeated) == offered - through
    return young
