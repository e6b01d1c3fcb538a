"""Metrics say what the ledger says, and the dashboard asks for metrics that exist."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tests.audit.histories import slice_
from tests.audit.world import World
from tests.cli.conftest import Run, assert_answerless
from tests.cli.scores import Scores
from typer.testing import CliRunner

from onceonly.cli.app import app
from onceonly.metrics import Exporter
from onceonly.metrics.listener import Listener
from onceonly.runtime.events import late
from onceonly_checkpoints.digests import BAD, SEEN_IDS, Digest, OutputDigest
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.epoch_time import END, EpochTime, EpochWindows
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger


def value(exporter: Exporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, {"pipeline": "orders", **labels})


def test_what_is_committed_after_the_start_is_counted(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    assert value(exporter, "onceonly_epoch") == 4
    assert value(exporter, "onceonly_rows_total") == 0
    world.write(9)
    world.write(5)
    exporter.look(0)
    exporter.look(0)
    assert value(exporter, "onceonly_rows_total") == 14
    assert value(exporter, "onceonly_epochs_total", outcome="committed") == 2
    assert value(exporter, "onceonly_phase_seconds_count", phase="commit") == 2
    assert value(exporter, "onceonly_epoch") == 6


def test_counters_stand_at_zero_before_anything_happens(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    # Prometheus sees no increase in a series that begins with its first event.
    for outcome in ("committed", "adopted", "skipped", "trimmed", "resolved", "diverged", "failed", "fenced", "opened"):
        assert value(exporter, "onceonly_epochs_total", outcome=outcome) == 0, outcome
    assert value(exporter, "onceonly_late_rows_total") == 0
    assert value(exporter, "onceonly_bad_rows_total") == 0
    assert value(exporter, "onceonly_repeated_rows_total") == 0


def test_events_are_counted_once(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    for at in (77, 78):
        world.ledger.note(Event("orders", EventKind.SKIPPED, "same batch", 4, 1, at))
        exporter.look(0)
        exporter.look(0)
    world.take_over(Fence(2, "b" * 32))
    exporter.look(0)
    assert value(exporter, "onceonly_epochs_total", outcome="skipped") == 2
    assert value(exporter, "onceonly_epochs_total", outcome="opened") == 1
    assert value(exporter, "onceonly_generation") == 2


def test_an_open_epoch_has_an_age_until_it_is_recorded(world: World) -> None:
    exporter = Exporter(world.ledger)
    world.intend(5, slice_(400, 500))
    intent = world.ledger.intent("orders", 5)
    assert intent is not None
    exporter.look(intent.at_ms + 2_500)
    assert value(exporter, "onceonly_in_doubt_seconds") == 0  # its driver is at work
    exporter.look(intent.at_ms + 62_500)
    assert value(exporter, "onceonly_in_doubt_seconds") == 62.5
    world.write(9)
    exporter.look(intent.at_ms + 5_000)
    assert value(exporter, "onceonly_in_doubt_seconds") == 0


def test_of_a_pipeline_that_appears_later_everything_is_counted(tmp_path: Path) -> None:
    early = SqlLedger(str(tmp_path / "ledger.db"))
    early.open()
    exporter = Exporter(early)
    exporter.look(0)
    World(tmp_path).write_all([7, 2])
    exporter.look(0)
    assert value(exporter, "onceonly_epochs_total", outcome="committed") == 2
    assert value(exporter, "onceonly_rows_total") == 9
    assert value(exporter, "onceonly_epochs_total", outcome="opened") == 1


def test_pipelines_that_are_not_wanted_have_no_metrics(world: World) -> None:
    wanted: set[str] = set()
    exporter = Exporter(world.ledger, lambda entry: entry.name in wanted)
    exporter.look(0)
    world.write(9)
    assert value(exporter, "onceonly_epoch") is None
    exporter.begin()
    wanted.add("orders")
    world.write(5)
    exporter.look(0)
    assert value(exporter, "onceonly_rows_total") == 5


def test_what_epochs_say_of_time_is_told_and_where_none_does_there_is_no_such_series(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    assert value(exporter, "onceonly_lower_seconds") is None
    assert value(exporter, "onceonly_rows_behind_time_total") == 0
    world.write(9, time=EpochTime("ms", 5_000, 5_000, 9_000, late_rows=2, batch_timestamp_ms=11_500))
    world.write(9, time=EpochTime("ms", 6_000, 6_500, 9_000, late_rows=1, batch_timestamp_ms=11_500))
    exporter.look(0)
    assert value(exporter, "onceonly_lower_seconds") == 6.5
    assert value(exporter, "onceonly_time_lag_seconds") == 5.5
    assert value(exporter, "onceonly_rows_behind_time_total") == 3
    world.write(
        9, time=EpochTime("ms", END, END, 9_000, batch_timestamp_ms=11_500)
    )  # a drain, or a writer that was retired
    exporter.look(0)
    assert value(exporter, "onceonly_lower_seconds") == math.inf
    assert value(exporter, "onceonly_time_lag_seconds") == 0


def test_rows_in_no_window_are_counted(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    assert value(exporter, "onceonly_pane_dropped_rows_total") == 0
    for dropped in (2, 0, 3):
        world.write(9, panes=EpochWindows("whole", "meaning", Digest(1), 9, dropped, 1))
    exporter.look(0)
    assert value(exporter, "onceonly_pane_dropped_rows_total") == 5


def test_open_windows_are_told_of_pipelines_that_have_windows_alone(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    assert value(exporter, "onceonly_pane_windows") is None
    for windows in (12, 0):
        world.write(9, panes=EpochWindows("whole", "meaning", Digest(windows), 9, 0, 1))
        exporter.look(0)
        assert value(exporter, "onceonly_pane_windows") == windows


def test_rows_of_state_are_none_of_the_users(tmp_path: Path) -> None:
    scores = Scores(tmp_path / "scores").writes([("a", 1, 5)])
    exporter = Exporter(scores.ledger)
    exporter.look(0)
    scores.writes([("a", 2, 1), ("b", 3, 7)], [("a", 12, 4)])
    exporter.look(0)
    assert len(scores.results()) == value(exporter, "onceonly_rows_total") == 2
    shown = CliRunner().invoke(app, ["epochs", "list", "-q", "orders", "--ledger", scores.ledger.address, "-o", "json"])
    assert [one["rows"] for one in json.loads(shown.stdout)["epochs"]] == [0, 0, 2]


def test_heights_of_blocks_are_no_seconds(world: World) -> None:
    exporter = Exporter(world.ledger)
    world.write(9, time=EpochTime("integer", 5, 5, 9))
    exporter.look(0)
    assert value(exporter, "onceonly_lower_seconds") is None


def test_rows_that_came_too_late_are_counted(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    for epoch, rows in ((1, 4), (2, 3)):
        told = late(rows, 1_700_000_000_000, epoch)
        world.ledger.note(Event("orders", told.kind, told.reason, told.epoch))
    exporter.look(0)
    assert value(exporter, "onceonly_late_rows_total") == 7


def test_rows_that_were_set_aside_are_counted_beside_those_that_were_not(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    world.write(9, outputs=(OutputDigest(BAD, ("delta:bad",), "columns", Digest(3), 9, (("amount", 3),)),))
    world.write(5)
    exporter.look(0)
    assert value(exporter, "onceonly_bad_rows_total") == 3
    assert value(exporter, "onceonly_rows_total") == 14


def test_rows_whose_id_had_been_seen_before_are_counted_beside_those_that_were_let_through(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    world.write(
        9, outputs=(OutputDigest(SEEN_IDS, ("pg:seen",), "columns", Digest(9), repeated=Digest(3), offered=12),)
    )
    world.write(5)
    exporter.look(0)
    assert value(exporter, "onceonly_repeated_rows_total") == 3
    assert value(exporter, "onceonly_rows_total") == 14


def test_a_ledger_that_is_gone_is_a_metric(world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    world.delete_ledger()
    exporter.look(0)
    assert exporter.registry.get_sample_value("onceonly_ledger_up") == 0


def test_what_happens_before_a_ledger_can_be_read_for_the_first_time_is_counted(tmp_path: Path) -> None:
    exporter = Exporter(SqlLedger(str(tmp_path / "ledger.db")))
    exporter.look(now_ms() - 1)
    World(tmp_path).write_all([7, 2]).ledger.note(Event("orders", EventKind.FAILED, "E203: overlap"))
    exporter.look(now_ms())
    assert value(exporter, "onceonly_epochs_total", outcome="committed") == 2
    assert value(exporter, "onceonly_epochs_total", outcome="failed") == 1
    assert value(exporter, "onceonly_rows_total") == 9


def test_what_a_ledger_that_was_away_at_first_knows_from_before_is_not_counted(world: World, tmp_path: Path) -> None:
    world.ledger.close()
    away = world.path.rename(tmp_path / "away")
    exporter = Exporter(SqlLedger(str(world.path)))
    exporter.look(now_ms() + 1)
    away.rename(world.path)
    time.sleep(0.01)
    world.ledger = SqlLedger(str(world.path))
    world.write(5)
    exporter.look(now_ms())
    assert value(exporter, "onceonly_epochs_total", outcome="committed") == 1
    assert value(exporter, "onceonly_epochs_total", outcome="opened") == 0
    assert value(exporter, "onceonly_rows_total") == 5


def test_that_a_ledger_cannot_be_read_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    exporter = Exporter(world.ledger)
    world.delete_ledger()
    for _ in range(3):
        exporter.look(0)
    assert len([record for record in caplog.records if "cannot be read" in record.getMessage()]) == 1


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def dashboard(run: Run) -> dict[str, Any]:
    return json.loads(run("metrics", "--dashboard").stdout)


def asked(dashboard: dict[str, Any]) -> set[str]:
    return {
        re.sub(r"_(total|bucket)$", "", name)
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"onceonly_\w+", target["expr"])
    }


def test_the_dashboard_asks_for_what_a_driver_tells_and_leaves_nothing_of_it_out(run: Run, world: World) -> None:
    told = {metric.name for metric in Listener(world.ledger, CollectorRegistry()).collect()}
    # Numbers that only grow: the one chooses the pipelines, the other is the audit's business.
    assert asked(dashboard(run)) == told - {"onceonly_epoch", "onceonly_generation"}


def test_without_a_listener_only_the_panel_of_running_queries_stays_empty(run: Run, world: World) -> None:
    exporter = Exporter(world.ledger)
    exporter.look(0)
    told = {metric.name for metric in exporter.registry.collect()}
    assert asked(dashboard(run)) - told == {"onceonly_query_running"}


def test_panels_of_the_dashboard_have_a_place_of_their_own(run: Run) -> None:
    panels = dashboard(run)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_it_serves_what_prometheus_reads(world: World) -> None:
    command = [
        sys.executable,
        "-c",
        "from onceonly.cli import main; main()",
        "metrics",
        "--port",
        "0",
        "--ledger",
        str(world.path),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = server.stderr.readline().strip()
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
        finally:
            server.kill()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert [one.value for one in samples if (one.name, one.labels) == ("onceonly_epoch", {"pipeline": "orders"})] == [4]


def test_without_a_ledger_it_says_so(run: Run) -> None:
    assert_answerless(run("metrics"), "No ledger was named")
