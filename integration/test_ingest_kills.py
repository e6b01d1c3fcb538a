"""``event_time="ingest"``, really killed: a batch notes when the engine planned it, however late it comes again."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.processes import Drivers, was_killed
from integration.several import Several
from integration.stage import ROWS
from integration.streams import plan_earlier, planned

from onceonly.faults import Point

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.kafka]

BEFORE = f"{Point.COMMIT_BEFORE}:killgroup"
"""Staged, prepared, and committed nowhere."""

BETWEEN = f"{Point.COMMIT_AFTER}:killgroup:{{}}"
"""In so many of the sinks and in no other."""

LATER_MS = 75_000
"""By so much at least each batch comes again after it was planned."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def held(several: Several) -> list[list[int | None]]:
    """What each epoch of each sink notes, sink by sink."""
    return [
        [marker.epoch.time and marker.epoch.time.complete_until for marker in scene.markers()]
        for scene in several.scenes
    ]


def test_a_batch_that_is_replayed_later_notes_the_moment_at_which_it_was_planned(
    any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    several = Several(tmp_path, any_postgres.database("ingest"), f"{any_kafka.servers} {any_kafka.topic('ingest')}")
    job, checkpoint = several.job(ingest=True), several.postgres.checkpoint
    moments: list[int] = []
    for batch, sinks in enumerate((0, 1, 2, 3)):
        several.inbox.fill(batch + 1)
        assert was_killed(warm_drivers.start(job, fault=BEFORE))
        assert held(several) == [moments] * 3, "nothing of the batch is in any sink"
        moments.append(now_ms() - LATER_MS - 1000 * (10 - batch))
        plan_earlier(checkpoint, batch, moments[batch])
        if sinks:
            assert was_killed(warm_drivers.start(job, fault=BETWEEN.format(sinks)))
            assert held(several) == [moments] * sinks + [moments[:-1]] * (3 - sinks)
        warm_drivers.finish(job)
        assert held(several) == [moments] * 3
    several.hold_everything()
    assert [planned(checkpoint, batch) for batch in range(4)] == moments
    for scene in several.scenes:
        for marker in scene.markers():
            epoch = marker.epoch
            assert epoch.time is not None
            assert epoch.lineage is not None
            assert epoch.time.batch_timestamp_ms == epoch.lineage.batch_timestamp_ms == epoch.time.complete_until
            assert epoch.digest.rows == ROWS


@pytest.mark.parametrize("kind", ["postgres", "delta", "kafka"])
def test_one_sink_notes_it_too_when_the_commit_is_lost_with_its_driver(
    kind: str, any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    several = Several(
        tmp_path, any_postgres.database(f"alone_{kind}"), f"{any_kafka.servers} {any_kafka.topic('alone')}"
    )
    scene = {one.kind: one for one in several.scenes}[kind]
    job = replace(
        several.job(ingest=True), kind=scene.kind, target=scene.target, also=(), ledger=several.postgres.target
    )
    several.inbox.fill(1)
    assert was_killed(warm_drivers.start(job, fault=BEFORE))
    assert scene.markers() == []
    moment = now_ms() - LATER_MS
    plan_earlier(scene.checkpoint, 0, moment)
    warm_drivers.finish(job)
    (marker,) = scene.markers()
    assert marker.epoch.time is not None
    assert (marker.epoch.time.complete_until, marker.epoch.time.dataset_complete_until) == (moment, moment)


@pytest.mark.slow
def test_a_batch_that_really_waits_for_seventy_five_seconds_notes_the_same(
    any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    several = Several(tmp_path, any_postgres.database("waits"), f"{any_kafka.servers} {any_kafka.topic('waits')}")
    job = several.job(ingest=True)
    several.inbox.fill(1)
    assert was_killed(warm_drivers.start(job, fault=BEFORE))
    moment = planned(several.postgres.checkpoint, 0)
    time.sleep(LATER_MS / 1000)
    warm_drivers.finish(job)
    assert held(several) == [[moment]] * 3
    assert now_ms() - moment >= LATER_MS
