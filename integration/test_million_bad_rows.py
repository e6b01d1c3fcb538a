"""A million bad rows in one epoch: refused aloud, or kept if that is wanted, and never in the driver's memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.targets import PostgresTarget

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROWS = 1_000_000
MORE = 200 * 1024 * 1024
"""Bytes that an epoch of bad rows may take beyond one of good rows: less than their texts alone would."""


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("million")
    words = pa.array([f"a word of some length, number {number}, so that rows are no trifle" for number in range(ROWS)])
    pq.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64()), "word": words}), folder / "1.parquet")
    return folder


def run(inbox: Path, checkpoint: Path, dsn: str, expected: str, most: float) -> dict[str, Any]:
    """One start of the query in a process of its own: what stopped it, and bytes at most."""
    words = [str(inbox), str(checkpoint), dsn, expected, json.dumps(most)]
    done = subprocess.run(
        [sys.executable, "-m", "integration.million_job", *words],
        capture_output=True,
        text=True,
        timeout=540,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(expected, most, {name: value if name == "code" else value >> 20 for name, value in found.items()}, "MiB")
    return found


def test_a_million_bad_rows_are_refused_or_kept_in_the_memory_that_good_ones_take(
    pg: PostgresTarget, inbox: Path, tmp_path: Path
) -> None:
    good = run(inbox, tmp_path / "good", pg.dsn, "id >= 0", 0.01)
    assert good["code"] == ""
    assert pg.says("select count(*) from rows") == [(ROWS,)]
    pg.says("drop schema onceonly cascade; drop table rows, rows_bad" if _there(pg, "rows_bad") else _AGAIN)
    refused = run(inbox, tmp_path / "bad", pg.dsn, "id < 0", 0.01)
    assert refused["code"] == "E522"
    assert not _there(pg, "rows")
    assert not _there(pg, "rows_bad")
    through = run(inbox, tmp_path / "bad", pg.dsn, "id < 0", ROWS)
    assert through["code"] == ""
    assert pg.says("select count(*) from rows_bad") == [(ROWS,)]
    for name, found in (("refused", refused), ("let through", through)):
        for part in ("driver", "jvm"):
            assert found[part] < good[part] + MORE, f"{name}: {part} took {(found[part] - good[part]) >> 20} MiB more"


_AGAIN = "drop schema onceonly cascade; drop table rows"


def _there(pg: PostgresTarget, table: str) -> bool:
    return pg.says(f"select to_regclass('{table}') is not null") == [(True,)]
