"""Rows that came too late are counted after the commit: nothing of that may stop a batch which is written."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JError

from onceonly.spark.classic import ClassicEngine, Query
from onceonly.spark.engine import QueryPlan, Run
from onceonly.spark.versions import LINES
from onceonly_checkpoints.storage import LocalStorage


class GoneJvm:
    """A Java object of a JVM that has ended: whatever is asked of it fails, as py4j does."""

    def __getattr__(self, name: str):
        def call(*_: object) -> object:
            raise Py4JError(f"{name}: the JVM is gone")

        return call


def test_late_rows_of_a_query_that_is_gone_count_as_none() -> None:
    engine = ClassicEngine(LINES["4.2"])
    gone = Query(GoneJvm(), None, None)
    plan = QueryPlan(stateful=True, nondeterministic=None, sources=())
    run = Run("run", "query", None, "/ck", None, False, "session", plan, engine, gone, LocalStorage(Path("/ck")))
    assert engine.late_rows(run) == 0
