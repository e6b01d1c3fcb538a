"""The DuckDB sink of the examples, with all that can happen to its file."""

from __future__ import annotations

import datetime as dt
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from onceonly_lab.conformance import SinkHarness

_FOLDER = Path(__file__).parents[2] / "docs" / "examples"
_HOLDER = "import duckdb, sys; db = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
_CHECKED = "id BIGINT, step BIGINT, note VARCHAR CHECK (note <> 'forbidden'), _epoch BIGINT"


def _loaded() -> ModuleType:
    """The example; it finds the module beside it as a script does, and only then."""
    spec = importlib.util.spec_from_file_location("example_duckdb_sink", _FOLDER / "duckdb_sink.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_FOLDER)
        spec.loader.exec_module(module)
    return module


example: Any = _loaded()


class DuckDBHarness(SinkHarness):
    answers = frozenset({"identity_now", "place", "pipelines"})
    moments = 4  # a file is opened and closed for each look at it: some 30 ms

    def __init__(self, sink: Any = example.DuckDBSink) -> None:
        self._sink = sink
        self._folder = Path(tempfile.mkdtemp())
        self._path = self._folder / "orders.duckdb"

    def connect(self) -> Any:
        return self._sink(self._path, "orders")

    def rows(self) -> list[dict[str, Any]]:
        with example.opened(self._path) as db:
            if not self._exists(db):
                return []
            found: list[dict[str, Any]] = db.sql("SELECT id, step, note FROM orders").to_arrow_table().to_pylist()
            return found

    def values(self) -> list[Any]:
        with example.opened(self._path) as db:
            found = db.sql("SELECT value FROM orders").to_arrow_table()["value"].to_pylist() if self._exists(db) else []
        # Spark's intervals have days and less; Arrow gives DuckDB's in the form that has months, too.
        return [
            dt.timedelta(one.days, microseconds=one.nanoseconds // 1000) if isinstance(one, pa.MonthDayNano) else one
            for one in found
        ]

    def maintain(self) -> None:
        with example.opened(self._path) as db:
            db.execute("CHECKPOINT")

    def forbid(self) -> str:
        with example.opened(self._path) as db:  # a table that stands takes no CHECK any more
            db.execute(f"CREATE TABLE checked ({_CHECKED})")
            if self._exists(db):
                db.execute("INSERT INTO checked BY NAME SELECT * FROM orders")
                db.execute("DROP TABLE orders")
            db.execute("ALTER TABLE checked RENAME TO orders")
        return "forbidden"

    def replace(self) -> bool:
        self._path.unlink()
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        command = [sys.executable, "-c", _HOLDER, str(self._path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdout.readline()
            yield
            other.stdin.close()

    @contextmanager
    def deadlocked(self) -> Iterator[None]:
        with example.opened(self._path) as db:
            db.execute("BEGIN")
            db.execute("DELETE FROM onceonly_head")  # an UPDATE need not conflict with one that returns rows
            yield

    def another(self) -> DuckDBHarness:
        return DuckDBHarness(self._sink)

    def close(self) -> None:
        shutil.rmtree(self._folder)

    def _exists(self, db: Any) -> bool:
        return bool(db.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'orders'").fetchall())
