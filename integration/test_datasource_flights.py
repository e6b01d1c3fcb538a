"""Real input through ``format("onceonly")`` on Spark Connect: each flight of 2013, over SIGKILLs of the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from integration.processes import REPOSITORY, kill_session, stopped_in, until
from integration.targets import DeltaTarget
from integration.test_datasource_connect import client, ended

from onceonly.faults import Point
from onceonly_lab.demo import input
from onceonly_lab.demo.judge import Finding, judge
from onceonly_lab.servers.connect import ConnectServer

pytestmark = [pytest.mark.source, pytest.mark.kill]

FILES = 12

STRUCK = ((Point.COMMIT_SENT, 3), (Point.STAGE_AFTER, 2), (Point.RECORD_AFTER, 2))
"""Points at which a life of the server is stopped, and at which passing of each."""

CSV = {"format": "csv", "schema": input.spark_schema(), "options": input.spark_options()}


def test_every_flight_is_in_the_table_once_after_kills_at_different_steps(tmp_path: Path) -> None:
    flights, delta, checkpoint = tmp_path / "flights", DeltaTarget(str(tmp_path / "table")), tmp_path / "ck"
    input.write(flights, input.AVAILABLE, FILES)
    given = input.read(flights)
    whole = [input.AVAILABLE * number // FILES for number in range(FILES + 1)]
    server = ConnectServer(tmp_path, REPOSITORY)

    def found() -> Finding:
        return judge(given, delta.table.to_pyarrow_table())

    def killed_when(holds: Callable[[], bool], what: str, life: str) -> None:
        asking = client(server, flights, delta, tmp_path, life, files=CSV)
        until(lambda: asking.poll() is not None or holds(), what)
        assert asking.poll() is None, ended(asking)
        kill_session(server.pid)
        server.kill()
        asking.close()
        seen = found()
        assert seen.doubled == seen.foreign == 0, seen
        assert seen.rows in whole, f"a part of an epoch is visible: {seen}"

    try:
        for point, hit in STRUCK:
            server.start(ONCEONLY_FAULT=f"{point}:stop:{hit}")
            killed_when(lambda: bool(stopped_in(server.pid)), f"{point} is passed {hit} times", str(point))
        server.start()
        begun = max(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
        planned = checkpoint / "offsets" / str(begun + 2)
        killed_when(planned.exists, "tasks of a batch begin", "tasks")
        assert found().missing > 0, "there was nothing left to kill"
        server.start()
        assert "done []" in ended(client(server, flights, delta, tmp_path, "last", files=CSV))
        assert found() == Finding(rows=input.AVAILABLE, missing=0, doubled=0, foreign=0)
    finally:
        server.kill()
