"""Real input with real oddities: each flight of 2013 is in one table or in the quarantine, over SIGKILLs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from integration.flights_job import EXPECT, sinks, table
from integration.processes import REPOSITORY
from integration.targets import DeltaTarget, PostgresTarget

from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.demo import input

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kill, pytest.mark.slow]

FILES = 12
DEATHS = (f"{Point.COMMIT_SENT}:killgroup:3", f"{Point.COMMIT_AFTER}:killgroup:5", f"{Point.STAGE_AFTER}:killgroup:3")
"""Between two tables that commit together and the third one elsewhere, behind both, before any of them."""


def run(root: Path, pg: PostgresTarget, delta: DeltaTarget, fault: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"ONCEONLY_FAULT": fault} if fault else {})}
    command = [sys.executable, "-m", "integration.flights_job"]
    told = [str(root / "flights"), pg.dsn, delta.path, str(root / "checkpoint")]
    return subprocess.run(
        [*command, *told],
        cwd=REPOSITORY,
        env=environment,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


NO_NUMBER = "tailnum: not null"
"""What the table itself demands."""


def odd(flight: dict[str, Any]) -> list[str]:
    """What is odd about a flight, by its values and without Spark."""
    dep, arr = flight["dep_time"], flight["arr_time"]
    broken = {
        "a time of a clock": 2400 in (dep, arr),
        "air time, if it arrived": arr is not None and flight["air_time"] is None,
        NO_NUMBER: flight["tailnum"] is None,
    }
    assert broken.keys() == {*EXPECT, NO_NUMBER}
    return [name for name, holds in broken.items() if holds]


def test_each_flight_is_in_its_table_or_in_the_quarantine_once_after_three_kills(
    tmp_path: Path, pg: PostgresTarget, delta: DeltaTarget, spark: Any
) -> None:
    input.write(tmp_path / "flights", input.AVAILABLE, FILES)
    flights = input.read(tmp_path / "flights").to_pylist()
    pg.says(table())
    for fault in DEATHS:
        ended = run(tmp_path, pg, delta, fault)
        assert ended.returncode == -signal.SIGKILL, (fault, ended.stdout[-2000:], ended.stderr[-2000:])
    last = run(tmp_path, pg, delta)
    assert last.returncode == 0, last.stderr[-3000:]
    reasons = {flight["row"]: why for flight in flights if (why := odd(flight))}
    good = [flight for flight in flights if flight["row"] not in reasons]
    assert pg.says("select row from flights order by row") == [(flight["row"],) for flight in good]
    kept = pg.says("select row, reasons from flights_odd")
    assert {json.loads(row)["row"]: [reason["rule"] for reason in json.loads(why)] for row, why in kept} == reasons
    assert len(kept) == len(reasons)
    late = sorted((one["row"], one["dep_delay"]) for one in good if (one["dep_delay"] or 0) > 120)
    alerts: pa.Table = delta.table.to_pyarrow_table(columns=["row", "dep_delay"])
    assert sorted(zip(*(alerts[name].to_pylist() for name in ("row", "dep_delay")), strict=True)) == late
    counted = Counter(name for why in reasons.values() for name in why)
    print(f"{len(good):,} flights, {len(late):,} alerts, {len(reasons):,} set aside: {dict(counted)}")
    assert min(counted.values()) > 100, "each oddity is a real one"
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    epochs = [record.epoch for record in ledger.epochs("flights")]
    assert sum(epoch.digest.rows + (epoch.bad.digest.rows if epoch.bad else 0) for epoch in epochs) == input.AVAILABLE
    judged = sinks(pg.dsn, delta.path)
    found = audit(ledger, "flights", judged, spark=spark)
    for sink in judged:
        sink.close()
    ledger.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
