"""Deaths of one process among those of a driver: an executor on a cluster of two workers, a JVM without its Python."""

from __future__ import annotations

import psutil
import pytest
from integration import chaos_jobs

from onceonly.faults import Point
from onceonly_lab.chaos import campaign, samples
from onceonly_lab.checker import Verdict
from onceonly_lab.model.parts import Kind
from onceonly_lab.schedule import Action, Fault, Schedule
from onceonly_lab.servers.spark import ClusterDown, StandaloneCluster, kill_executor

pytestmark = [pytest.mark.kill, pytest.mark.slow]

BOTH = (Kind.POSTGRES, Kind.DELTA)


def test_executors_that_die_in_the_middle_of_a_write_lose_and_double_nothing(tmp_path):
    """Spark computes again what they had; the driver behind the third does not live to see it."""
    writing = [Point.STAGE_BEFORE, Point.PREPARE_BEFORE, Point.STAGE_AFTER]
    faults = tuple(Fault(1, point, Action.KILL_EXECUTOR, hit, ms=100) for hit, point in enumerate(writing, 1))
    killed = Fault(1, Point.COMMIT_AFTER, Action.KILL, 5)
    schedule = Schedule(BOTH, 4, rows=750, faults=(*faults, killed))
    found = campaign.replay(schedule, samples.on_workers, tmp_path)
    assert (found.verdict, found.kills) == (Verdict.CLEAN, 1), str(found)
    assert {point for (point, action) in found.matrix.struck if action is Action.KILL_EXECUTOR} == {*writing}


def test_executors_that_die_while_they_send_in_a_transaction_lose_and_double_nothing(tmp_path):
    """What one of them had sent is in a transaction that nobody ends. A restart writes the epoch again."""
    faults = (
        *(Fault(1, Point.PREPARE_BEFORE, Action.KILL_EXECUTOR, 2, ms=ms) for ms in (1500, 1510)),
        Fault(2, Point.COMMIT_SENT, Action.KILL),
        *(Fault(3, Point.PREPARE_BEFORE, Action.KILL_EXECUTOR, 1, ms=ms) for ms in (1500, 1510)),
    )
    schedule = Schedule((Kind.KAFKA,), 4, incarnations=4, rows=750, faults=faults)
    found = campaign.replay(schedule, chaos_jobs.by_tasks, tmp_path)
    assert found.verdict is Verdict.CLEAN, str(found)
    logs = [file.read_text(errors="replace") for file in (tmp_path / "drivers").glob("driver-*.err")]
    assert sum("ONCE-E533" in log for log in logs) == 2


@pytest.mark.parametrize(("name", "verdict"), [("plain", Verdict.ANOMALY), ("wrapped", Verdict.CLEAN)])
def test_a_driver_whose_jvm_dies_alone_doubles_rows_of_a_plain_job_only(name, verdict, tmp_path):
    schedule = Schedule((Kind.DELTA,), 2, rows=20, faults=(Fault(1, Point.RETURN_BEFORE, Action.KILL_JVM),))
    found = campaign.replay(schedule, getattr(chaos_jobs, name), tmp_path)
    assert found.verdict is verdict, str(found)


def test_nothing_of_a_cluster_outlives_it(tmp_path):
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        daemons = [one for one in psutil.process_iter(["cmdline"]) if cluster.address in (one.info["cmdline"] or [])]
        assert len(daemons) == 2
        assert not kill_executor("app-that-nobody-started")
    assert not any(daemon.is_running() and daemon.status() != psutil.STATUS_ZOMBIE for daemon in daemons)


def test_a_cluster_that_does_not_come_up_says_what_its_master_printed(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_DAEMON_JAVA_OPTS", "-agentlib:nowhere")
    with pytest.raises(ClusterDown, match="agent library nowhere"), StandaloneCluster(tmp_path / "cluster"):
        pass
