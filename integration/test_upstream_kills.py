"""Two queries in a row, both really killed: what the second calls complete is there, and the first had said so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from integration.jobs import Job, make_sink
from integration.processes import Drivers, was_killed
from integration.stage import ROWS, Inbox, Scene

from onceonly.event_time import TimeReader
from onceonly.faults import Point
from onceonly.machine.source_order import position_in
from onceonly_sinks.delta import DeltaSink

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.slow, pytest.mark.kafka]

DEATHS = [f"{Point.PREPARE_SENT}:killgroup", f"{Point.COMMIT_SENT}:killgroup", f"{Point.COMMIT_AFTER}:killgroup"]


class Pair:
    """A query from files into a table or a topic, and one from there into a table."""

    def __init__(self, root: Path, kind: str, between: str) -> None:
        self.inbox, self.kind, self.between = Inbox(root / "in"), kind, between
        self.last = Scene(root, "delta", str(root / "report"), self.inbox)
        place = (str(root / "ck-web"), str(root / "web.db"))
        self.web = Job("web", kind, between, str(self.inbox.folder), *place, timed=True)
        place = (str(root / "ck-report"), str(root / "report.db"))
        self.report = Job("report", "delta", self.last.target, between, *place, follows="web")

    def look(self) -> int:
        """Hold each epoch of the second query against what the first one had said where its slice ends."""
        ids: set[int] = set()
        lower = 0
        sink = DeltaSink(self.last.target)
        sink.open("report")
        with TimeReader("web", make_sink(self.kind, self.between)) as first:
            for marker, _ in sink.history():
                epoch = marker.epoch
                assert epoch.time is not None
                ((_, end),) = epoch.written.end.entries
                at = position_in(end)
                said = first.time_window(at).lower if at is not None else None
                noted = epoch.time.complete_until or 0
                assert lower <= noted <= (said or 0), f"epoch {epoch.number} notes {noted}, upstream said {said}"
                lower = noted
        ids = {id_ for id_, _ in self.last.rows()} if lower else ids
        assert ids >= set(range(lower)), "what is called complete is there"
        return lower


@pytest.mark.parametrize("kind", ["delta", "kafka"])
def test_no_kill_of_either_calls_complete_what_is_not_there(
    kind: str, tmp_path: Path, any_kafka: Any, warm_drivers: Drivers
) -> None:
    between = f"{any_kafka.servers} {any_kafka.topic('between')}" if kind == "kafka" else str(tmp_path / "clicks")
    pair = Pair(tmp_path, kind, between)
    pair.inbox.fill(2)
    warm_drivers.finish(pair.web)
    warm_drivers.finish(pair.report)
    assert pair.look() == 2 * ROWS - 1
    for number, fault in enumerate(DEATHS):
        pair.inbox.fill(2 * number + 4)
        assert was_killed(warm_drivers.start(pair.web, fault=fault)), fault
        pair.look()
        assert was_killed(warm_drivers.start(pair.report, fault=fault)) or fault == DEATHS[0], fault
        pair.look()
        warm_drivers.finish(pair.web)
    warm_drivers.finish(pair.report)
    assert pair.look() == pair.inbox.files * ROWS - 1
    assert [id_ for id_, _ in pair.last.rows()] == list(range(pair.inbox.files * ROWS)), "each row once"
