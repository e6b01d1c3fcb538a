"""A commit whose answer is lost is found or settled for good; a server that goes away is named."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import Writer, orders, rows, run, staged, there
from tests.sinks.variants import BOTH_WAYS

from onceonly import faults
from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly.protocol import Conflict, Estimate, OutcomeUnknown, Superseded, Task
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_lab.servers.postgresproxy import PostgresProxy
from onceonly_lab.servers.proxy import Act
from onceonly_sinks.postgres import PostgresSink
from onceonly_sinks.postgres.load import PostgresPrepared

pytestmark = pytest.mark.postgres


@pytest.fixture(params=BOTH_WAYS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def at_commit(dsn: str, what: str) -> None:
    """Have the server do something in the middle of the COMMIT of whoever inserts into the target."""
    run(dsn, "CREATE TABLE target (id bigint, note text, _epoch bigint)")
    run(dsn, f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NULL; END $$")
    run(
        dsn,
        "CREATE CONSTRAINT TRIGGER meddle AFTER INSERT ON target DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION meddle()",
    )


def commits_into_the_void(writer: Writer, prepared: PostgresPrepared) -> Marker:
    marker = writer.marker(prepared.rows)
    with pytest.raises(OutcomeUnknown) as caught:
        writer.sink.commit(prepared, marker)
    prepared.abandon()
    assert "secret" not in caught.value.reason
    return marker


@pytest.fixture
def wire(postgres: EmbeddedPostgres) -> Iterator[PostgresProxy]:
    with PostgresProxy(("127.0.0.1", postgres.port)) as proxy:
        yield proxy


def through(wire: PostgresProxy, postgres: EmbeddedPostgres, dsn: str) -> str:
    """The same database, behind the proxy."""
    return dsn.replace(f":{postgres.port}/", f":{wire.port}/")


def wait_for_commit_in_flight(dsn: str) -> None:
    for _ in range(1500):
        if run(dsn, "SELECT 1 FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'"):
            return
        time.sleep(0.02)
    raise AssertionError("no COMMIT in flight")


def meanwhile(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


# ---- unknown outcomes


def test_a_commit_that_landed_without_an_answer_is_found(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        first = writer.write(orders(1))
        prepared = writer.prepare(orders(2))
        faults.arm(Point.COMMIT_SENT, "raise")
        marker = commits_into_the_void(writer, prepared)
        receipt = writer.sink.look_up(marker)
        assert isinstance(receipt, Receipt)
        assert (receipt.epoch, receipt.rows, receipt.identity) == (2, 1, first.identity)
        writer.last = marker.epoch
        writer.write(orders(3))
    assert rows(dsn, columns="id, _epoch") == [(1, 1), (2, 2), (3, 3)]
    assert staged(dsn) == []


def test_a_session_ended_in_its_commit_leaves_nothing_and_that_is_found_out(dsn: str, via: str) -> None:
    at_commit(dsn, "PERFORM pg_terminate_backend(pg_backend_pid())")
    with Writer(dsn, load=via) as writer:
        marker = commits_into_the_void(writer, writer.prepare(orders(1)))
        assert writer.sink.look_up(marker) is None
        assert rows(dsn) == []
        run(dsn, "DROP TRIGGER meddle ON target")
        writer.write(orders(1))
    assert len(rows(dsn)) == 1


@pytest.mark.parametrize(("act", "landed"), [(Act.CUT_REQUEST, False), (Act.CUT_ANSWER, True)])
def test_a_commit_cut_on_the_wire_is_looked_up(
    dsn: str, via: str, postgres: EmbeddedPostgres, wire: PostgresProxy, act: Act, landed: bool
) -> None:
    with Writer(through(wire, postgres, dsn), load=via) as writer:
        prepared = writer.prepare(orders(1))
        cut = wire.rule(act, times=1)
        marker = commits_into_the_void(writer, prepared)
        assert len(cut.hits) == 1
        assert (writer.sink.look_up(marker) is not None) is landed
    assert len(rows(dsn) if there(dsn) else []) == landed


def test_a_commit_still_in_flight_is_waited_for_and_found(
    dsn: str, postgres: EmbeddedPostgres, wire: PostgresProxy
) -> None:
    at_commit(dsn, "PERFORM pg_sleep(1.2)")
    with Writer(through(wire, postgres, dsn), load="driver") as writer:
        prepared = writer.prepare(orders(1))
        thread = meanwhile(lambda: (wait_for_commit_in_flight(dsn), wire.cut_all())[0])
        marker = commits_into_the_void(writer, prepared)
        assert rows(dsn) == []  # not yet
        receipt = writer.sink.look_up(marker)
        thread.join()
        assert receipt is not None
    assert len(rows(dsn)) == 1


def test_a_commit_in_flight_for_too_long_is_ended_and_never_lands(
    dsn: str, postgres: EmbeddedPostgres, wire: PostgresProxy
) -> None:
    at_commit(dsn, "PERFORM pg_sleep(60)")
    with Writer(through(wire, postgres, dsn), load="driver") as writer:
        prepared = writer.prepare(orders(1))
        thread = meanwhile(lambda: (wait_for_commit_in_flight(dsn), wire.cut_all())[0])
        marker = commits_into_the_void(writer, prepared)
        assert writer.sink.look_up(marker) is None
        thread.join()
        assert run(dsn, "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'") == [(0,)]
    assert rows(dsn) == []


@pytest.mark.parametrize(("act", "landed"), [(Act.DROP_REQUEST, False), (Act.DROP_ANSWER, True)])
def test_a_commit_swallowed_on_a_line_that_stays_up_is_looked_up_in_the_end(
    dsn: str, via: str, postgres: EmbeddedPostgres, wire: PostgresProxy, act: Act, landed: bool
) -> None:
    with Writer(through(wire, postgres, dsn), load=via, commit_timeout=1.0) as writer:
        prepared = writer.prepare(orders(1))
        swallowed = wire.rule(act, times=1)
        began = time.monotonic()
        marker = commits_into_the_void(writer, prepared)
        assert time.monotonic() - began >= 1.0
        assert len(swallowed.hits) == 1
        assert (writer.sink.look_up(marker) is not None) is landed
    assert len(rows(dsn) if there(dsn) else []) == landed


@pytest.mark.slow
def test_a_late_answer_is_given_up_after_many_that_were_in_time(
    dsn: str, postgres: EmbeddedPostgres, wire: PostgresProxy
) -> None:
    with Writer(through(wire, postgres, dsn), load="driver", commit_timeout=1.0) as writer:
        began = time.monotonic()
        while time.monotonic() - began < 1.5:  # longer than an answer may take: each has a time of its own
            writer.write(orders(1))
        wire.rule(Act.DROP_ANSWER, times=1)
        sent = time.monotonic()
        prepared = writer.prepare(orders(2))
        marker = commits_into_the_void(writer, prepared)
        assert 1.0 <= time.monotonic() - sent < 30
        assert writer.sink.look_up(marker) is not None


@pytest.mark.parametrize("swallowed", ["COMMIT", "SELECT generation, owner"])
def test_a_look_up_that_gets_no_answer_either_says_that_it_cannot_tell(
    dsn: str, postgres: EmbeddedPostgres, wire: PostgresProxy, swallowed: str
) -> None:
    with Writer(through(wire, postgres, dsn), load="driver", commit_timeout=1.0) as writer:
        prepared = writer.prepare(orders(1))
        wire.rule(Act.DROP_ANSWER, times=1)
        marker = commits_into_the_void(writer, prepared)
        silent = wire.rule(Act.DROP_ANSWER, swallowed, times=1)
        with pytest.raises(OutcomeUnknown):
            writer.sink.look_up(marker)
        assert len(silent.hits) == 1
        assert writer.sink.look_up(marker) is not None
    assert len(rows(dsn)) == 1


def test_a_server_that_crashes_in_the_commit_is_asked_again_when_it_is_back(
    dsn: str, via: str, postgres: EmbeddedPostgres
) -> None:
    at_commit(dsn, "PERFORM pg_sleep(60)")
    with Writer(dsn, load=via) as writer:
        prepared = writer.prepare(orders(1))
        thread = meanwhile(lambda: (wait_for_commit_in_flight(dsn), postgres.kill())[1])
        marker = commits_into_the_void(writer, prepared)
        thread.join()
        with pytest.raises(OutcomeUnknown):
            writer.sink.look_up(marker)
        postgres.start()
        assert writer.sink.look_up(marker) is None
        run(dsn, "DROP TRIGGER meddle ON target")
        writer.write(orders(1))
    assert len(rows(dsn)) == 1


def test_a_look_up_by_a_driver_that_was_superseded_says_so(dsn: str) -> None:
    with Writer(dsn) as zombie:
        prepared = zombie.prepare(orders(1))
        faults.arm(Point.COMMIT_SENT, "raise")
        marker = commits_into_the_void(zombie, prepared)
        with Writer(dsn, generation=2), pytest.raises(Superseded) as caught:
            zombie.sink.look_up(marker)
        assert caught.value.current_fence.generation == 2


def test_an_install_without_an_answer_stands_and_is_found_by_installing_again(dsn: str) -> None:
    with Writer(dsn) as writer:
        higher = type(writer.fence)(2, "owner-2")
        faults.arm(Point.INSTALL_SENT, "raise")
        with pytest.raises(OutcomeUnknown):
            writer.sink.install(higher)
        assert writer.sink.fence() == higher
        writer.sink.install(higher)


def test_what_the_server_refuses_at_the_commit_is_certain(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, note text)")
    with Writer(dsn, load=via) as writer:
        with pytest.raises(OnceOnlyError) as caught:
            writer.write(orders(1, 1))
        assert caught.value.code == "E503"
        assert writer.position().epoch == 0
        writer.write(orders(1))
    assert rows(dsn) == [(1, "new")]


# ---- a server that is not there


def test_a_server_that_is_away_is_named_at_open(postgres: EmbeddedPostgres, dsn: str) -> None:
    sink = PostgresSink(dsn.replace(str(postgres.port), "1").replace("postgres@", "me:secret@"), "target")
    with pytest.raises(OnceOnlyError) as caught:
        sink.open("orders")
    assert caught.value.code == "E501"
    assert "secret" not in str(caught.value)
    assert "doctor" in caught.value.remedy


class Interrupted(ArrowBatch):
    """A batch in the middle of which something happens."""

    def __init__(self, table: pa.Table, event: Callable[[], object]) -> None:
        super().__init__(table)
        self._event = event

    @property
    def estimate(self) -> Estimate:
        return Estimate(None, 1)

    def arrow(self) -> Iterator[pa.RecordBatch]:
        yield from super().arrow()
        self._event()
        yield from super().arrow()

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        self._event()
        return super().on_executors(task)


def test_a_server_that_goes_away_in_mid_epoch_is_named_and_the_epoch_can_be_written_later(
    dsn: str, via: str, postgres: EmbeddedPostgres
) -> None:
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1))
        with pytest.raises(OnceOnlyError) as caught:
            writer.write(Interrupted(orders(2), postgres.stop))
        assert caught.value.code == "E501"
        postgres.start()
        writer.write(orders(2))  # the pool's dead connections are not the user's business
    assert [row[0] for row in rows(dsn)] == [1, 2]
    with Writer(dsn, generation=2) as next_one:
        next_one.sink.sweep()
    assert staged(dsn) == []


def test_a_server_that_was_restarted_between_epochs_is_not_noticed(
    dsn: str, via: str, postgres: EmbeddedPostgres
) -> None:
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1))
        postgres.restart()
        writer.write(orders(2))
        writer.write(orders(3))
        assert writer.position().disturbances == ()
    assert len(rows(dsn)) == 3


def test_a_session_ended_before_its_commit_is_certain(dsn: str) -> None:
    with Writer(dsn, load="driver") as writer:
        prepared = writer.prepare(orders(1))
        run(
            dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'onceonly:%' "
            "AND pid <> pg_backend_pid()",
        )
        with pytest.raises(Conflict):
            writer.commit(prepared)
        assert not there(dsn)
        writer.write(orders(1))


def test_a_staging_table_emptied_by_a_crash_is_not_committed(dsn: str, postgres: EmbeddedPostgres) -> None:
    for options in ({}, {"key": "id"}):
        with Writer(dsn, f"target_{len(options)}", load="executors", **options) as writer:
            writer.write(orders(1))
            prepared = writer.prepare(orders(2, 3))
            postgres.kill()
            postgres.start()
            with pytest.raises(OnceOnlyError) as caught:
                writer.commit(prepared)
            assert caught.value.code == "E510"
            assert caught.value.details["counted"] == 2
            assert caught.value.details["written"] == 0
            prepared.abandon()
            assert writer.position().epoch == 1
            writer.write(orders(2, 3))
            assert len(rows(dsn, f"target_{len(options)}")) == 3


# ---- rights and secrets


@pytest.fixture
def guarded(dsn: str, postgres: EmbeddedPostgres) -> Iterator[str]:
    """The DSN of a role with few rights that needs a password."""
    rules = postgres.data_dir / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{before}")
    run(dsn, "DROP ROLE IF EXISTS guarded")
    run(dsn, "CREATE ROLE guarded LOGIN PASSWORD 'open sesame'")
    run(dsn, "SELECT pg_reload_conf()")
    yield _once_in_force(dsn.replace("postgres@", "guarded@"))
    rules.write_text(before)
    run(dsn, "DROP OWNED BY guarded")
    run(dsn, "SELECT pg_reload_conf()")


def _once_in_force(dsn: str) -> str:
    """Wait until a login without the password is refused."""
    for _ in range(1000):
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            return dsn
        time.sleep(0.02)
    raise AssertionError("the rule has not been read")


def test_a_wrong_password_is_refused_and_never_printed(guarded: str) -> None:
    sink = PostgresSink(guarded.replace("guarded@", "guarded:pssst@"), "target")
    with pytest.raises(OnceOnlyError) as caught:
        sink.open("orders")
    assert caught.value.code == "E502"
    said = f"{caught.value} {sink!r} {sink.address} {caught.value.__cause__} {sink.capabilities}"
    assert "pssst" not in said
    assert sink.ledger_url is not None
    assert "pssst" in sink.ledger_url


class Elsewhere(ArrowBatch):
    """A batch whose tasks run in a process without the driver's environment."""

    def __init__(self, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(table)
        self._monkeypatch = monkeypatch

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        assert "open sesame" not in repr(task)
        with self._monkeypatch.context() as patch:
            for name in ("PGPASSWORD", "PGHOST", "PGPORT", "PGUSER"):
                patch.delenv(name)
            return super().on_executors(pickle.loads(pickle.dumps(task)))


def test_executors_get_what_the_driver_found_in_its_environment(
    guarded: str, dsn: str, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(dsn, "GRANT CREATE ON DATABASE tests TO guarded; GRANT CREATE ON SCHEMA public TO guarded")
    found = {"PGPASSWORD": "open sesame", "PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "guarded"}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    with Writer("dbname=tests", load="executors") as writer:
        writer.write(Elsewhere(orders(1), monkeypatch))
        assert "sesame" not in writer.sink.address
    assert len(rows(dsn)) == 1


def test_missing_rights_are_named_with_what_to_grant(guarded: str, dsn: str) -> None:
    allowed = guarded.replace("guarded@", "guarded:open%20sesame@")
    with Writer(dsn) as writer:
        writer.write(orders(1))
    sink = PostgresSink(allowed, "target")
    sink.open("orders")
    with pytest.raises(OnceOnlyError) as caught:
        sink.fence()
    sink.close()
    assert caught.value.code == "E502"
    assert "onceonly" in caught.value.remedy


def test_a_role_with_just_enough_rights_can_write(guarded: str, dsn: str) -> None:
    allowed = guarded.replace("guarded@", "guarded:open%20sesame@")
    run(dsn, "GRANT CREATE ON DATABASE tests TO guarded")
    run(dsn, "CREATE TABLE target (id bigint, note text, _epoch bigint)")
    run(dsn, "GRANT SELECT, INSERT ON target TO guarded")
    for number, via in enumerate(("driver", "executors")):
        with Writer(allowed, load=via, generation=1 + number) as writer:
            writer.write(orders(1))
            writer.sink.sweep()
            assert writer.position().has_rows
    assert len(rows(dsn)) == 2


def test_a_read_only_database_is_refused_at_open(dsn: str) -> None:
    run(dsn, "ALTER DATABASE tests SET default_transaction_read_only = on")
    try:
        sink = PostgresSink(dsn, "target")
        with pytest.raises(OnceOnlyError) as caught:
            sink.open("orders")
        sink.close()
    finally:
        with psycopg.connect(dsn, options="-c default_transaction_read_only=off", autocommit=True) as connection:
            connection.execute("ALTER DATABASE tests RESET default_transaction_read_only")
    assert caught.value.code == "E507"


def test_a_weaker_durability_of_the_server_is_raised_for_the_commit(dsn: str) -> None:
    at_commit(dsn, "INSERT INTO seen VALUES (current_setting('synchronous_commit'))")
    run(dsn, "CREATE TABLE seen (setting text)")
    raised = {"off": "on", "local": "on", "remote_write": "on", "remote_apply": "remote_apply"}
    try:
        found = {}
        for generation, setting in enumerate(raised, 1):
            run(dsn, f"ALTER DATABASE tests SET synchronous_commit = {setting}")
            with Writer(dsn, generation=generation) as writer:
                writer.write(orders(generation))
            [(found[setting],)] = run(dsn, "DELETE FROM seen RETURNING setting")
        assert found == raised
    finally:
        run(dsn, "ALTER DATABASE tests RESET synchronous_commit")
