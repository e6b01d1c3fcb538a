"""Timelines every version must survive, in real processes: zombies, lost answers, lost memories, races, signals.

Drivers that work one after the other share a JVM; those that live side by side never do.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from integration.jobs import Job
from integration.processes import (
    PATIENCE_S,
    Drivers,
    await_end_of_session,
    await_event,
    await_stopped,
    refused_with,
    story,
    until,
    was_killed,
)
from integration.stage import Inbox, Scene

from onceonly_checkpoints.ledger import EventKind
from onceonly_lab.servers.postgresproxy import PostgresProxy
from onceonly_lab.servers.proxy import Act

pytestmark = [pytest.mark.kill, pytest.mark.postgres]

KINDS = ("delta", "postgres")


@pytest.fixture
def scene(postgres, tmp_path, request) -> Callable[[str], Scene]:
    """Makes a pipeline into an empty target."""
    inbox = Inbox(tmp_path / "in")

    def make(kind: str) -> Scene:
        if kind == "delta":
            return Scene(tmp_path, kind, str(tmp_path / "table"), inbox)
        return Scene(tmp_path, kind, postgres.database(f"timeline_{abs(hash(request.node.name)):x}"), inbox)

    return make


# ---- T1: driver A is stopped after its checks; B opens and goes on; A wakes and changes nothing anywhere


@pytest.mark.parametrize("kind", [pytest.param("delta", marks=pytest.mark.slow), "postgres"])
def test_t1_a_driver_that_wakes_after_another_took_over_changes_nothing(scene, rivals, kind):
    """In Postgres the sleeper also holds an open transaction with its rows in it."""
    one = scene(kind)
    one.inbox.fill(3)
    sleeper = rivals.start(one.job(), fault="commit.before:stop:2")
    await_stopped(sleeper)
    one.holds_exactly(1)
    rivals.finish(one.job())
    after_the_second = one.snapshot()
    sleeper.resume()
    assert refused_with(sleeper, "E401"), sleeper.last_words()
    assert one.snapshot() == after_the_second
    one.holds_everything()


@pytest.mark.slow
def test_t1_a_driver_stopped_inside_its_commit_does_not_block_the_next_one(scene, rivals, tmp_path):
    one = scene("postgres")
    one.inbox.fill(2)
    sleeper = rivals.start(one.job(), hold=("commit.before", str(tmp_path / "go")))
    await_event(sleeper, "hold")
    with psycopg.connect(one.target) as ours, psycopg.connect(one.target, autocommit=True) as watch:
        ours.execute("LOCK TABLE onceonly.epoch IN SHARE MODE")
        (tmp_path / "go").touch()
        until(lambda: _sessions(watch, "wait_event_type = 'Lock'") == 1, "the commit, holding the head row, meets us")
        sleeper.stop()
        ours.rollback()
        until(lambda: _sessions(watch, "state = 'idle in transaction'") == 1, "the server waits for the sleeper")
    rivals.finish(one.job())
    after_the_second = one.snapshot()
    sleeper.resume()
    assert refused_with(sleeper, "E401"), sleeper.last_words()
    assert one.snapshot() == after_the_second
    one.holds_everything()


def _sessions(connection: psycopg.Connection, condition: str) -> int:
    query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'onceonly:%' AND {condition}"
    return connection.execute(query).fetchone()[0]


# ---- T2: the commit landed and the answer was cut; or the request was cut before it landed


@pytest.mark.slow
def test_t2_a_commit_whose_answer_is_lost_is_one_copy(scene, warm_drivers):
    both = [scene(kind) for kind in KINDS]
    both[0].inbox.fill(3)
    warm_drivers.finish(*(one.job() for one in both), fault="commit.sent:raise:2")
    for one in both:
        one.holds_everything()
        assert [(event.epoch, "it holds the epoch" in event.reason) for event in one.events(EventKind.RESOLVED)] == [
            (2, True)
        ]


@pytest.mark.parametrize(
    ("act", "found"), [pytest.param(Act.CUT_REQUEST, False, marks=pytest.mark.slow), (Act.CUT_ANSWER, True)]
)
def test_t2_a_commit_cut_on_the_wire_is_one_copy(scene, warm_drivers, postgres, tmp_path, act, found):
    one = scene("postgres")
    one.inbox.fill(2)
    with PostgresProxy(("127.0.0.1", postgres.port)) as wire:
        job = replace(one.job(), target=one.target.replace(f":{postgres.port}/", f":{wire.port}/"))
        driver = warm_drivers.start(job, hold=("commit.before", str(tmp_path / "go")))
        await_event(driver, "hold")
        cut = wire.rule(act, application="onceonly:.*", times=1)
        (tmp_path / "go").touch()
        assert driver.wait(PATIENCE_S) == 0, driver.last_words()
        assert len(cut.hits) == 1
    one.holds_everything()
    assert ["it holds the epoch" in event.reason for event in one.events(EventKind.RESOLVED)] == [found]


# ---- T4: the checkpoint is deleted


@pytest.mark.slow
def test_t4_after_a_deleted_checkpoint_the_printed_command_continues(scene, warm_drivers):
    both = [scene(kind) for kind in KINDS]
    both[0].ledger_place = f"{both[0].checkpoint}.onceonly.db"
    jobs = [one.job(ledger=None) for one in both]
    both[0].inbox.fill(2)
    warm_drivers.finish(*jobs)
    for one in both:
        shutil.rmtree(one.checkpoint)
    both[0].inbox.fill(4)
    refused = warm_drivers.start(*jobs)
    assert refused_with(refused, "E211"), refused.last_words()
    for one in both:
        one.holds_exactly(2)
        _run_printed(one, refused.err.read_text())
    warm_drivers.finish(*jobs)
    for one in both:
        one.holds_everything()


def _run_printed(one: Scene, said: str) -> None:
    printed = re.search(rf"onceonly (recover rebuild-checkpoint \S+ --query {one.name})\b", said)
    assert printed, said
    command = [str(Path(sys.executable).with_name("onceonly")), *shlex.split(printed[1]), "--yes"]
    # Beside a local checkpoint the command finds the ledger by itself; one in a database has to be named.
    env = {} if one.delta else {"ONCEONLY_LEDGER": one.target}
    answer = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"


# ---- T5: the checkpoint is copied to a second cluster


@pytest.mark.slow
def test_t5_of_two_clusters_on_copies_of_a_checkpoint_one_wins_and_the_other_stops(scene, rivals, tmp_path):
    one = scene("postgres")
    one.inbox.fill(1)
    rivals.finish(one.job())
    copy = tmp_path / "copy"
    shutil.copytree(one.checkpoint, copy)
    one.inbox.fill(4)
    first = rivals.start(one.job(), fault="commit.before:stop")
    await_stopped(first)
    elsewhere = one.job(checkpoint=copy, ledger=str(tmp_path / "elsewhere.db"))
    second = rivals.start(elsewhere, hold=("commit.before", str(tmp_path / "go")))
    await_event(second, "hold")
    first.resume()
    (tmp_path / "go").touch()
    assert refused_with(first, "E401"), first.last_words()
    assert second.wait(PATIENCE_S) == 0, second.last_words()
    one.holds_exactly(4)
    again = rivals.start(one.job())
    assert refused_with(again, "E203", "E205"), again.last_words()
    one.holds_exactly(4)


# ---- T7: the ledger is deleted, or a second machine has its own


@pytest.mark.slow
def test_t7_without_its_ledger_or_with_another_nothing_is_lost_doubled_or_unfenced(scene, rivals, tmp_path):
    one = scene("delta")
    one.inbox.fill(2)
    assert was_killed(rivals.start(one.job(), fault="commit.sent:killgroup:2"))
    assert one.recorded() == [1]
    Path(one.ledger_place).unlink()
    one.inbox.fill(4)
    sleeper = rivals.start(one.job(), fault="commit.before:stop:2")
    await_stopped(sleeper)
    one.holds_exactly(3)
    assert one.recorded() == [1, 2, 3]
    assert [event.epoch for event in one.events(EventKind.REBUILT)] == [2]
    assert [event.epoch for event in one.events(EventKind.SKIPPED)] == [2]
    other = str(tmp_path / "second-machine.db")
    rivals.finish(one.job(ledger=other))
    assert [event.epoch for event in one.events(EventKind.REBUILT, other)] == [3]
    assert one.recorded(other) == [1, 2, 3, 4]
    sleeper.resume()
    assert refused_with(sleeper, "E401"), sleeper.last_words()
    one.holds_exactly(4)


# ---- T8: an opening races another; the answer to a fence is lost


@pytest.mark.slow
def test_t8_of_two_drivers_that_open_one_checkpoint_at_once_each_generation_has_one_owner(scene, rivals, tmp_path):
    one = scene("postgres")
    one.inbox.fill(4)
    assert was_killed(rivals.start(one.job(), fault="discover.after:killgroup:2"))
    _race(rivals, tmp_path / "go", one.job(), one.job())
    one.holds_exactly(one.newest())
    one.inbox.fill(5)  # the race may have ended the input, and a query without input never opens
    rivals.finish(one.job(), fault="install.sent:raise")
    one.holds_everything()
    _has_one_owner_per_generation(one)


@pytest.mark.slow
def test_t8_of_two_first_drivers_of_a_table_that_is_not_there_yet_one_makes_it(scene, rivals, tmp_path):
    """Each has a checkpoint of its own: two deployments of one job, which nothing but the table can keep apart."""
    one = scene("delta")
    one.inbox.fill(3)
    twins = [tmp_path / "checkpoint-a", tmp_path / "checkpoint-b"]
    _race(rivals, tmp_path / "go", *(one.job(checkpoint=twin) for twin in twins))
    one.holds_exactly(one.newest())
    one.inbox.fill(4)
    rivals.finish(one.job(checkpoint=_owner(one) or twins[0]), fault="install.sent:raise")
    one.holds_everything()
    _has_one_owner_per_generation(one)


def _race(rivals: Drivers, gate: Path, *jobs: Job) -> None:
    drivers = [rivals.start(job, hold=("install.before", str(gate))) for job in jobs]
    for driver in drivers:
        await_event(driver, "hold")
    gate.touch()
    codes = [driver.wait(PATIENCE_S) for driver in drivers]
    assert codes != [0, 0], "both believe that they finished"


def _owner(one: Scene) -> str | None:
    """The checkpoint of whoever wrote the newest epoch."""
    lineages = [marker.epoch.lineage for marker in one.markers()]
    return lineages[-1].checkpoint if lineages and lineages[-1] else None


def _has_one_owner_per_generation(one: Scene) -> None:
    one.has_one_owner_per_generation()
    generations = [event.generation for event in one.events(EventKind.OPENED)]
    assert len(generations) == len(set(generations))


# ---- SIGTERM


@pytest.mark.slow
def test_sigterm_to_the_whole_group_in_the_middle_of_an_epoch_abandons_it(scene, rivals, tmp_path):
    one = scene("postgres")
    one.inbox.fill(2)
    driver = rivals.start(one.job(), hold=("commit.before", str(tmp_path / "never")))
    await_event(driver, "hold")
    os.killpg(driver.pid, signal.SIGTERM)
    assert driver.wait(PATIENCE_S) == -signal.SIGTERM
    await_end_of_session(driver.pid)
    one.holds_exactly(0)
    assert one.batches("commits") == []
    rivals.finish(one.job())
    one.holds_everything()


@pytest.mark.slow
def test_a_driver_that_stops_its_query_on_sigterm_finishes_or_abandons_the_epoch(scene, rivals, tmp_path):
    one = scene("delta")
    one.inbox.fill(3)
    gate = tmp_path / "go"
    driver = rivals.start(one.job(), hold=("commit.before", str(gate)), graceful=True)
    await_event(driver, "hold")
    os.kill(driver.pid, signal.SIGTERM)
    await_event(driver, "sigterm")
    gate.touch()
    assert driver.wait(PATIENCE_S) == 0, driver.last_words()
    assert "done" in {said["event"] for said in story(driver)}
    held = one.newest()
    assert held < one.inbox.files, "the query was to stop, not to go on"
    one.holds_exactly(held)
    rivals.finish(one.job())
    one.holds_everything()
