"""Others in the way: who they are is said, an epoch is written again from what stands, a newer driver is called so."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.core.stories import cut, offer
from tests.sinks.postgres_writer import PIPELINE, Writer, orders, rows, run, staged, there
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import ConfigurationError, DestinationError, OnceOnlyError
from onceonly.machine import coordinator
from onceonly.machine.state import Job, State
from onceonly.protocol import Conflict, Superseded, Task
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = pytest.mark.postgres

SECONDS = 60.0


@pytest.fixture(params=BOTH_WAYS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Counted(ArrowBatch):
    """A batch whose digest counts its rows, and that notes how often it was computed."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table)
        self.computed = 0

    def arrow(self) -> Iterator[pa.RecordBatch]:
        self.computed += 1
        return super().arrow()

    def digest(self) -> Digest:
        return Digest(self._table.num_rows, 1, 1)


class Driver:
    """One start of a pipeline, through the production runner."""

    def __init__(self, pipeline: str, sink: PostgresSink, ledger: Path) -> None:
        self.sink = sink
        self.ledger = SqlLedger(f"sqlite:///{ledger}")
        self.runner = Runner([sink], self.ledger)
        self.pipeline = pipeline
        self.state: State | None = None

    def writes(self, number: int, batch: ArrowBatch) -> State:
        offered = offer(cut((number - 1) * 10 or None, number * 10), number - 1)
        if self.state is None:
            state = coordinator.start(Job(self.pipeline, (self.sink.id,), secrets.token_hex(4), offered))
        else:
            state = coordinator.resume(self.state, offered)
        self.state = self.runner.run(state, batch)
        return self.state

    def reasons(self) -> list[str]:
        return [event.reason for event in self.ledger.events(self.pipeline) if event.kind is EventKind.RESOLVED]


SLOWLY = """
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
CREATE TRIGGER slowly BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION slowly()
"""


# ---- two writers


def test_of_two_writers_with_the_same_keys_in_opposite_order_none_is_refused(dsn: str, tmp_path: Path) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, note text)")
    run(dsn, SLOWLY)
    order = {"up": (1, 2, 3), "down": (3, 2, 1)}
    drivers = {}
    for name in order:
        sink = PostgresSink(dsn, "target", key="id", id=f"postgres:{name}", tuning=PostgresTuning(triggers="allow"))
        drivers[name] = Driver(name, sink, tmp_path / f"{name}.db")
        drivers[name].writes(1, Counted(orders()))
    together = threading.Barrier(2)

    def drives(name: str) -> None:
        for number in (2, 3):
            together.wait(SECONDS)
            drivers[name].writes(number, Counted(orders(*order[name], note=name)))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(drives, order))
    assert [id_ for id_, _ in rows(dsn)] == [1, 2, 3]
    assert run(dsn, "SELECT pipeline, epoch FROM onceonly.head ORDER BY 1") == [("down", 3), ("up", 3)]
    said = [reason for driver in drivers.values() for reason in driver.reasons()]
    assert any("deadlock" in reason and "it is written again" in reason for reason in said), said
    for driver in drivers.values():
        driver.sink.close()


@pytest.mark.slow
def test_of_two_functions_that_update_the_same_rows_in_opposite_order_none_is_refused(dsn: str, tmp_path: Path) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, seen bigint)")
    together, calls = threading.Barrier(2), dict.fromkeys(["up", "down"], 0)

    def counts(name: str) -> Callable[[psycopg.Cursor[Any], Any, int], None]:
        first, second = (1, 2) if name == "up" else (2, 1)

        def apply(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
            calls[name] += 1
            cursor.execute("UPDATE target SET seen = seen + 1 WHERE id = %s", [first])
            if calls[name] == 1:
                together.wait(SECONDS)
            cursor.execute("UPDATE target SET seen = seen + 1 WHERE id = %s", [second])

        return apply

    sinks = {name: PostgresSink(dsn, "target", id=f"postgres:{name}", apply=counts(name)) for name in calls}
    drivers = {name: Driver(name, sink, tmp_path / f"{name}.db") for name, sink in sinks.items()}
    for driver in drivers.values():
        driver.writes(1, Counted(orders()))
    run(dsn, "INSERT INTO target VALUES (1, 0), (2, 0)")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: drivers[name].writes(2, Counted(orders(9))), drivers))
    assert rows(dsn) == [(1, 2), (2, 2)]
    assert sorted(calls.values()) == [1, 2]
    said = [reason for driver in drivers.values() for reason in driver.reasons()]
    assert any("deadlock" in reason and "it is written again" in reason for reason in said), said
    for driver in drivers.values():
        driver.sink.close()


@pytest.mark.slow
def test_a_table_that_is_locked_for_good_stops_the_query_with_who_holds_it(dsn: str, tmp_path: Path) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    driver = Driver(
        "orders", PostgresSink(dsn, "target", tuning=PostgresTuning(lock_timeout=0.2)), tmp_path / "ledger.db"
    )
    driver.writes(1, Counted(orders(1)))
    with closing(psycopg.connect(dsn, application_name="night job")) as stranger:
        pid = stranger.info.backend_pid
        stranger.execute("LOCK TABLE target IN SHARE MODE")  # it can be read, so each new opening gets that far
        batch = Counted(orders(2))
        with pytest.raises(DestinationError) as caught:
            driver.writes(2, batch)
    assert caught.value.code == "E526", str(caught.value)
    assert f"pid {pid}" in str(caught.value)
    assert "application night job" in str(caught.value)
    assert ": LOCK TABLE" in str(caught.value)
    assert batch.computed == 5
    driver.state = None  # the query is restarted
    driver.writes(2, Counted(orders(2)))
    assert [row[:2] for row in rows(dsn)] == [(1, "new"), (2, "new")]
    driver.sink.close()


def test_a_lock_that_is_let_go_in_time_is_outlived(dsn: str, tmp_path: Path, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    sink = PostgresSink(dsn, "target", tuning=PostgresTuning(lock_timeout=0.2, load=via))  # type: ignore[arg-type]
    driver = Driver("orders", sink, tmp_path / "ledger.db")
    driver.writes(1, Counted(orders(1)))
    with closing(psycopg.connect(dsn)) as stranger:
        stranger.execute("LOCK TABLE target IN SHARE MODE")
        release = threading.Timer(0.5, stranger.rollback)
        release.start()
        driver.writes(2, Counted(orders(2)))
        release.join()
    assert [row[:2] for row in rows(dsn)] == [(1, "new"), (2, "new")]
    assert staged(dsn) == []
    driver.sink.close()


def test_a_session_that_is_ended_before_its_commit_is_a_conflict_and_the_epoch_is_written_again(
    dsn: str, tmp_path: Path
) -> None:
    class Ended(Counted):
        def arrow(self) -> Iterator[pa.RecordBatch]:
            yield from super().arrow()
            if self.computed == 1:
                ours = "application_name LIKE 'onceonly:%' AND state = 'idle in transaction'"
                run(dsn, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
            yield from self._table.to_batches()

    run(dsn, "CREATE TABLE target (id bigint, note text)")
    driver = Driver("orders", PostgresSink(dsn, "target", tuning=PostgresTuning(load="driver")), tmp_path / "ledger.db")
    driver.writes(1, Counted(orders(1)))

    class Twice(Ended):
        def digest(self) -> Digest:
            return Digest(2 * self._table.num_rows, 1, 1)

    batch = Twice(orders(2))
    driver.writes(2, batch)
    assert [row[0] for row in rows(dsn)] == [1, 2, 2]
    driver.sink.close()


# ---- opening beside a lock


@pytest.mark.parametrize("read", ["position", "recount"])
def test_a_locked_table_is_named_with_its_holder_and_not_waited_for_without_end(dsn: str, read: str) -> None:
    with Writer(dsn) as writer:
        writer.write(orders(1))
    with closing(psycopg.connect(dsn, application_name="abandoned alter")) as stranger:
        pid = stranger.info.backend_pid
        stranger.execute("LOCK TABLE target IN ACCESS EXCLUSIVE MODE")
        sink = PostgresSink(dsn, "target", tuning=PostgresTuning(lock_timeout=0.3))
        sink.open(PIPELINE)
        sink.install(Fence(2, "owner-2"))
        began = time.monotonic()
        with pytest.raises(DestinationError) as caught:
            sink.position(None) if read == "position" else sink.recount()
        assert time.monotonic() - began < 20
        sink.close()
    assert caught.value.code == "E529"
    assert f"pid {pid}" in str(caught.value)
    assert "application abandoned alter" in str(caught.value)
    assert "pg_terminate_backend" in caught.value.remedy


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("UPDATE target SET note = 'hunter2' WHERE note = 'c4rd'", "UPDATE"),
        ("/* hunter2 */ -- c4rd\n (SELECT 'hunter2' FROM target)", "SELECT"),
        ("ALTER ROLE locked WITH PASSWORD 'hunter2'", "ALTER ROLE"),
        ("alter table target add column hunter2 text", "ALTER TABLE"),
    ],
    ids=lambda value: value.split()[0],
)
def test_of_what_another_session_says_only_the_command_is_shown(dsn: str, statement: str, word: str) -> None:
    run(dsn, "DROP ROLE IF EXISTS locked")
    run(dsn, "CREATE ROLE locked")
    with Writer(dsn) as writer:
        writer.write(orders(1))
    with closing(psycopg.connect(dsn)) as stranger:
        stranger.execute("LOCK TABLE target IN ACCESS EXCLUSIVE MODE")
        stranger.execute(statement.encode())
        sink = PostgresSink(dsn, "target", tuning=PostgresTuning(lock_timeout=0.3))
        sink.open(PIPELINE)
        sink.install(Fence(2, "owner-2"))
        with pytest.raises(DestinationError) as caught:
            sink.recount()
        sink.close()
    said = str(caught.value)
    assert f" s: {word}" in said
    for secret in ("hunter2", "c4rd"):
        assert secret not in said


SECONDS_ONLY = [0, -1, 0.0004, 2**31 / 1000, float("inf"), float("nan"), "5", True, None]


@pytest.mark.parametrize("option", ["lock_timeout", "commit_timeout"])
@pytest.mark.parametrize("seconds", SECONDS_ONLY, ids=str)
def test_a_timeout_is_a_number_of_seconds_that_the_server_can_count(option: str, seconds: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"{option}(=\) takes| is not) a number of seconds|{option}=\) was given"
    ):
        PostgresTuning(**{option: seconds})


@pytest.mark.parametrize("seconds", [0.001, 1, 2_000_000.5])
def test_a_timeout_that_the_server_can_count_is_taken(dsn: str, seconds: float) -> None:
    with Writer(dsn, lock_timeout=seconds, commit_timeout=max(seconds, 1)) as writer:
        assert writer.position().epoch == 0


# ---- a newer driver


class Meanwhile(ArrowBatch):
    """A batch in the middle of which something happens."""

    def __init__(self, table: pa.Table, event: Callable[[], object]) -> None:
        super().__init__(table)
        self._event = event

    def arrow(self) -> Iterator[pa.RecordBatch]:
        yield from super().arrow()
        self._event()
        yield from super().arrow()

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        def late(attempt: Any, batches: Any) -> Mapping[str, Any]:
            if attempt.partition:
                self._event()
            return task(attempt, batches)

        return super().on_executors(late)


def takes_over(dsn: str, *, sweeps: bool) -> Callable[[], None]:
    done: list[bool] = []

    def act() -> None:
        if not done:
            done.append(True)
            with Writer(dsn, generation=2) as owner:
                if sweeps:
                    owner.sink.sweep()

    return act


@pytest.mark.parametrize("sweeps", [False, True], ids=["fences", "sweeps"])
@pytest.mark.parametrize("existing", [True, False], ids=["there", "new"])
def test_a_driver_that_is_fenced_while_it_prepares_is_told_so(dsn: str, via: str, sweeps: bool, existing: bool) -> None:
    if existing:
        run(dsn, "CREATE TABLE target (id bigint, note text)")
    with Writer(dsn, load=via) as first:
        batch = Meanwhile(orders(*range(1000)), takes_over(dsn, sweeps=sweeps))
        if via == "executors" and not sweeps:
            prepared = first.prepare(batch)  # its staging is still there; the commit is where it is told
            with pytest.raises(Superseded):
                first.commit(prepared)
            return
        with pytest.raises(Superseded) as caught:
            first.prepare(batch)
        assert caught.value.current_fence.generation == 2
    assert rows(dsn) == [] if existing else not there(dsn)


def test_a_driver_that_is_fenced_before_its_commit_is_told_so(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as first:
        first.write(orders(1))
        prepared = first.prepare(orders(2))
        takes_over(dsn, sweeps=True)()
        with pytest.raises(Superseded) as caught:
            first.commit(prepared)
        assert caught.value.current_fence.generation == 2
    assert [row[0] for row in rows(dsn)] == [1]


def test_whoever_was_fenced_stops_with_e401_whatever_it_did(dsn: str, via: str, tmp_path: Path) -> None:
    sink = PostgresSink(dsn, "target", tuning=PostgresTuning(load=via))  # type: ignore[arg-type]
    driver = Driver(PIPELINE, sink, tmp_path / "ledger.db")
    driver.writes(1, Counted(orders(1)))

    class Fenced(Counted, Meanwhile):
        def __init__(self) -> None:
            Meanwhile.__init__(self, orders(*range(10)), takes_over(dsn, sweeps=True))
            self.computed = 0

    with pytest.raises(OnceOnlyError) as caught:
        driver.writes(2, Fenced())
    assert caught.value.code == "E401", str(caught.value)
    sink.close()


def test_a_lost_session_under_our_own_fence_is_a_conflict(dsn: str) -> None:
    with Writer(dsn, load="driver") as writer:
        prepared = writer.prepare(orders(1))
        run(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'onceonly:%'")
        with pytest.raises(Conflict):
            writer.commit(prepared)
        writer.write(orders(1))
    assert len(rows(dsn)) == 1
