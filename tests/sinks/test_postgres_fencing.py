"""A new driver owns the table whatever an older one still holds: open transactions, locks, staging tables."""

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.sinks.postgres_writer import PIPELINE, Writer, orders, rows, run, staged
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Superseded
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.driver import Driver
from onceonly_sinks.postgres import PostgresSink
from onceonly_sinks.postgres.head import PostgresHeadScope as Name
from onceonly_sinks.postgres.head import of_generation_up_to

pytestmark = pytest.mark.postgres

SECONDS = 60.0
ROOT = Path(__file__).parents[2]


def process(dsn: str, tmp_path: Path, *arguments: str, fault: str = "") -> Driver:
    command = [sys.executable, "-m", "tests.sinks.postgres_driver", dsn, *arguments]
    return Driver.command(command, tmp_path / "driver", {"ONCEONLY_FAULT": fault} if fault else {}, cwd=ROOT)


def says(driver: Driver, words: str) -> str:
    return driver.wait_for(lambda line: line.startswith(words), SECONDS)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- T1: a driver is stopped, another opens and goes on, the first wakes and changes nothing


@pytest.mark.kill
@pytest.mark.parametrize("via", BOTH_WAYS)
def test_a_driver_stopped_with_the_head_locked_is_ended_and_changes_nothing(dsn: str, tmp_path: Path, via: str) -> None:
    with process(dsn, tmp_path, via, "1", "stop") as zombie:
        says(zombie, "holding the head")
        with Writer(dsn, generation=2) as owner:
            owner.write(orders(1))
            owner.sink.sweep()
            assert rows(dsn) == [(1, "new", 1)]
            zombie.resume()
            says(zombie, "superseded by 2")
            assert rows(dsn) == [(1, "new", 1)]
            assert staged(dsn) == []
            owner.write(orders(2))


@pytest.mark.kill
@pytest.mark.parametrize("via", BOTH_WAYS)
def test_a_driver_stopped_with_rows_in_the_table_is_ended_and_changes_nothing(
    dsn: str, tmp_path: Path, via: str
) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, note text)")
    with process(dsn, tmp_path, via, "1", fault="prepare.sent:stop") as zombie:
        says(zombie, "opened")
        until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED)
        with Writer(dsn, generation=2) as owner:
            # The same keys as the zombie's: its uncommitted rows would block this insert.
            owner.write(orders(1000, 1001))
            zombie.resume()
            assert "Superseded" in says(zombie, "ended with")
    assert [note for _, note in rows(dsn)] == ["new", "new"]


@pytest.mark.kill
@pytest.mark.parametrize("via", BOTH_WAYS)
@pytest.mark.parametrize(
    ("point", "landed"),
    [("install.sent", False), ("prepare.sent", False), ("commit.sent", True)],
)
def test_a_driver_killed_at_a_point_leaves_all_of_its_epoch_or_nothing(
    dsn: str, tmp_path: Path, via: str, point: str, landed: bool
) -> None:
    with process(dsn, tmp_path, via, "1", fault=f"{point}:kill") as lost:
        assert lost.wait(SECONDS) == -9
    with Writer(dsn, generation=2) as owner:
        owner.sink.sweep()
        position = owner.position()
        assert (position.epoch, position.has_rows) == ((1, True) if landed else (0, False))
        assert position.marker is None or position.marker.fence == Fence(1, "owner-1")
        owner.write(orders(1))
        assert len(rows(dsn)) == (3 if landed else 1)
        assert staged(dsn) == []


# ---- racing


def test_of_racing_openings_one_owns_the_table_and_all_agree_who(dsn: str) -> None:
    sinks = [PostgresSink(dsn, "target") for _ in range(3)]
    barrier = threading.Barrier(len(sinks))

    def opens(number: int) -> Fence | None:
        sinks[number].open(PIPELINE)
        fence = Fence(1, f"owner-{number}")
        barrier.wait(SECONDS)
        try:
            sinks[number].install(fence)
        except Superseded:
            return None
        return fence

    with ThreadPoolExecutor(len(sinks)) as pool:
        owners = [fence for fence in pool.map(opens, range(len(sinks))) if fence]
    assert [sink.fence() for sink in sinks] == owners * 3
    for sink in sinks:
        sink.close()


def test_three_drivers_that_keep_taking_over_leave_every_epoch_once(dsn: str) -> None:
    wanted, generations, lock = 40, iter(range(1, 10_000)), threading.Lock()

    def drives(number: int) -> None:
        while True:
            with lock:
                generation = next(generations)
            try:
                with Writer(dsn, generation=generation) as writer:
                    for _ in range(5):
                        epoch = writer.last.number + 1 if writer.last else 1
                        if epoch > wanted:
                            return
                        writer.write(orders(epoch))
            except (Superseded, OnceOnlyError):
                continue

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(drives, range(3)))
    assert sorted((id_, epoch) for id_, _, epoch in rows(dsn)) == [(n, n) for n in range(1, wanted + 1)]
    history = run(dsn, "SELECT epoch FROM onceonly.epoch ORDER BY epoch")
    assert history == [(n,) for n in range(1, wanted + 1)]


# ---- whose session may be ended


def test_a_foreign_lock_on_the_head_is_waited_for_and_not_ended(dsn: str) -> None:
    with Writer(dsn):
        pass
    with closing(psycopg.connect(dsn)) as stranger:
        stranger.execute("SELECT * FROM onceonly.head FOR UPDATE")
        release = threading.Timer(3.0, stranger.rollback)
        release.start()
        with Writer(dsn, generation=2) as owner:
            assert owner.position().fence.generation == 2
        release.join()
        assert stranger.execute("SELECT 1").fetchone() == (1,)


def in_transaction(dsn: str, fence: Fence, statement: str) -> psycopg.Connection:
    """A session of another opening that is silent in the middle of a transaction."""
    other = psycopg.connect(dsn, application_name=Name(PIPELINE, "postgres:target").session(fence))
    other.execute(statement)
    return other


def test_an_opening_that_fell_silent_in_its_install_does_not_keep_out_the_next_of_the_same_generation(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly_sinks.postgres.transaction._LOCK_SECONDS", 0.2)
    with Writer(dsn):
        pass
    silent = in_transaction(dsn, Fence(2, "silent"), "UPDATE onceonly.head SET generation = 2, owner = 'silent'")
    with closing(silent):
        with Writer(dsn, generation=2) as owner:
            assert owner.position().fence.generation == 2
        with pytest.raises(psycopg.OperationalError):
            silent.commit()
    with closing(psycopg.connect(dsn)) as after:
        assert after.execute("SELECT owner FROM onceonly.head").fetchone() != ("silent",)


def test_an_opening_that_comes_too_late_ends_no_session_of_the_fence_that_stands(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly_sinks.postgres.transaction._LOCK_SECONDS", 0.2)
    with Writer(dsn) as owner:
        fence = owner.position().fence
        with closing(in_transaction(dsn, fence, "SELECT * FROM onceonly.head FOR UPDATE")) as writing:
            late = PostgresSink(dsn, "target")
            late.open(PIPELINE)
            with pytest.raises(Superseded) as caught:
                late.install(Fence(fence.generation, "late"))
            late.close()
            assert caught.value.current_fence == fence
            writing.commit()


def test_a_lock_that_is_never_released_is_refused_in_words(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceonly_sinks.postgres.transaction._LOCK_SECONDS", 0.2)
    with Writer(dsn):
        pass
    with closing(psycopg.connect(dsn, application_name="stranger")) as stranger:
        stranger.execute("SELECT * FROM onceonly.head FOR UPDATE")
        sink = PostgresSink(dsn, "target")
        sink.open(PIPELINE)
        with pytest.raises(OnceOnlyError) as caught:
            sink.install(Fence(2, "owner-2"))
        sink.close()
    assert caught.value.code == "E529"
    assert "application stranger" in str(caught.value)


def test_sessions_of_another_sink_or_a_newer_driver_are_left_alone() -> None:
    ours = Name("orders", "postgres:target")
    assert of_generation_up_to(1, ours.session(Fence(1, "a" * 32)))
    assert not of_generation_up_to(1, ours.session(Fence(2, "a")))
    assert not of_generation_up_to(1, "onceonly:psql")
    assert len(ours.session(Fence(2**62, "a" * 64)).encode()) <= 63
    assert Name("orders", "postgres:other").tag != ours.tag


def test_a_sweep_drops_staging_of_lower_generations_only(dsn: str) -> None:
    with Writer(dsn, load="executors") as lost, Writer(dsn, "other", load="executors") as other:
        lost.prepare(orders(1))
        kept = other.prepare(orders(1))
        with Writer(dsn, generation=2, load="executors") as owner:
            ours = owner.prepare(orders(1))
            assert len(staged(dsn)) == 3
            owner.sink.sweep()
            assert len(staged(dsn)) == 2
            owner.commit(ours)
        other.commit(kept)
    assert staged(dsn) == []


def test_a_staging_table_that_is_locked_is_left_to_the_next_sweep(dsn: str) -> None:
    with Writer(dsn, load="executors") as lost:
        lost.prepare(orders(1))
        [name] = staged(dsn)
        with Writer(dsn, generation=2) as owner, closing(psycopg.connect(dsn)) as reader:
            reader.execute(f"SELECT * FROM onceonly.{name}".encode())
            owner.sink.sweep()
            assert staged(dsn) == [name]
            reader.rollback()
            owner.sink.sweep()
            assert staged(dsn) == []
