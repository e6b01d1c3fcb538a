"""The proxy finds the COMMIT in a Postgres session, however it is sent, and cuts on the side that it is told to."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_lab.servers.postgresproxy import PostgresProxy, statements
from onceonly_lab.servers.proxy import Act

pytestmark = pytest.mark.postgres

INSERT = "INSERT INTO paid VALUES (%s)"


@pytest.fixture
def direct(server: EmbeddedPostgres) -> str:
    """A database with an empty table, past the proxy."""
    dsn = server.database("proxied")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS paid")
        connection.execute("CREATE TABLE paid (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    return dsn


@pytest.fixture
def wire(server: EmbeddedPostgres) -> Iterator[PostgresProxy]:
    with PostgresProxy(("127.0.0.1", server.port)) as proxy:
        yield proxy


@pytest.fixture
def dsn(server: EmbeddedPostgres, direct: str, wire: PostgresProxy) -> str:
    return direct.replace(f":{server.port}/", f":{wire.port}/")


@pytest.fixture
def paid(direct: str) -> Callable[[], list[int]]:
    def read() -> list[int]:
        with psycopg.connect(direct) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM paid ORDER BY id")]

    return read


def simple(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(INSERT, [1])


def extended(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("BEGIN", prepare=True)
        connection.execute(INSERT, [1], prepare=True)
        connection.execute("COMMIT", prepare=True)


def pipelined(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, connection.pipeline():
        connection.execute(INSERT, [1])
        connection.commit()


def several_in_one(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("BEGIN; INSERT INTO paid VALUES (1); -- ;\n /* ; */ end")


WAYS = (simple, extended, pipelined, several_in_one)


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize(("act", "landed"), [(Act.CUT_REQUEST, False), (Act.CUT_ANSWER, True)])
def test_a_commit_is_cut_before_or_after_it_landed(
    dsn: str, wire: PostgresProxy, paid: Callable[[], list[int]], write: Callable[[str], None], act: Act, landed: bool
) -> None:
    rule = wire.rule(act)
    with pytest.raises(psycopg.OperationalError) as caught:
        write(dsn)
    assert caught.value.sqlstate is None  # the server did not say anything
    assert len(rule.hits) == 1
    assert paid() == ([1] if landed else [])
    wire.clear()
    if not landed:
        write(dsn)
        assert paid() == [1]


def test_without_a_rule_everything_passes(direct: str, dsn: str, paid: Callable[[], list[int]]) -> None:
    landed = {}
    for write in WAYS:
        write(dsn)
        landed[write.__name__] = paid()
        with psycopg.connect(direct) as connection:
            connection.execute("DELETE FROM paid")
    assert landed == {write.__name__: [1] for write in WAYS}


def test_a_commit_that_the_server_refuses_is_met_as_well(
    dsn: str, wire: PostgresProxy, paid: Callable[[], list[int]]
) -> None:
    for write in (simple, extended, pipelined):
        rule = wire.rule(Act.DELAY_ANSWER)
        with pytest.raises(psycopg.errors.UniqueViolation):
            twice(dsn, write)
        assert len(rule.hits) == 1
        wire.remove(rule)
    assert paid() == []


def twice(dsn: str, write: Callable[[str], None]) -> None:
    with psycopg.connect(dsn, autocommit=write is extended) as connection:
        if write is extended:
            connection.execute("BEGIN")
        if write is pipelined:
            with connection.pipeline():
                connection.execute(INSERT, [1])
                connection.execute(INSERT, [1])
                connection.commit()
            return
        connection.execute(INSERT, [1])
        connection.execute(INSERT, [1])
        connection.execute("COMMIT", prepare=write is extended)


def test_a_rule_is_for_one_application_and_any_statement(
    dsn: str, wire: PostgresProxy, paid: Callable[[], list[int]]
) -> None:
    rule = wire.rule(Act.CUT_REQUEST, r"insert into paid\b", application=r"onceonly:.*")
    simple(dsn)
    with pytest.raises(psycopg.OperationalError):
        simple(f"{dsn}?application_name=onceonly:orders")
    assert [(hit.application, hit.user, hit.database) for hit in rule.hits] == [
        ("onceonly:orders", "postgres", "proxied")
    ]
    assert paid() == [1]


def test_a_session_that_renames_itself_is_known_by_its_new_name(
    dsn: str, wire: PostgresProxy, paid: Callable[[], list[int]]
) -> None:
    wire.rule(Act.CUT_REQUEST, application="renamed")
    connection = psycopg.connect(dsn, application_name="before")
    connection.execute("SELECT set_config('application_name', 'renamed', true)")
    connection.execute(INSERT, [1])
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    connection.close()
    assert paid() == []


def test_a_delayed_commit_lands_later_and_its_client_notices_nothing(
    dsn: str, wire: PostgresProxy, paid: Callable[[], list[int]]
) -> None:
    wire.rule(Act.DELAY_REQUEST, delay_s=0.3)
    began = time.monotonic()
    simple(dsn)
    assert time.monotonic() - began >= 0.3
    assert paid() == [1]


def test_a_held_commit_lands_after_its_client_has_given_up(
    dsn: str, wire: PostgresProxy, paid: Callable[[], list[int]]
) -> None:
    held = wire.rule(Act.HOLD_REQUEST)
    connection = psycopg.connect(dsn)
    connection.execute(INSERT, [1])
    thread = threading.Thread(target=give_up, args=(connection,))
    thread.start()
    held_hit(held.hits)
    with socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)
    thread.join()
    connection.close()
    assert paid() == []
    held.release()
    held.wait(10)
    deadline = time.monotonic() + 10
    while paid() != [1]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def give_up(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.Error):
        connection.commit()


def held_hit(hits: list[object]) -> None:
    deadline = time.monotonic() + 10
    while not hits:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_swallowed_answer_leaves_the_client_waiting_with_its_commit_landed(
    dsn: str, wire: PostgresProxy, paid: Callable[[], list[int]]
) -> None:
    swallowed = wire.rule(Act.DROP_ANSWER)
    thread = threading.Thread(target=waits_forever, args=(dsn,))
    thread.start()
    swallowed.wait(10)
    assert paid() == [1]
    assert thread.is_alive()
    wire.cut_all()
    thread.join(10)
    assert not thread.is_alive()


def waits_forever(dsn: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        simple(dsn)


def test_the_server_can_be_killed_at_the_commit(server: EmbeddedPostgres, dsn: str, wire: PostgresProxy) -> None:
    killed = wire.rule(Act.CUT_REQUEST, times=1, call=lambda statement: server.kill())
    with pytest.raises(psycopg.OperationalError):
        simple(dsn)
    killed.wait(10)
    assert not server.running
    server.start()


def test_an_act_that_postgres_has_no_use_for_is_refused(wire: PostgresProxy) -> None:
    with pytest.raises(ValueError, match="no error code"):
        wire.rule(Act.REPLACE_CODE)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("commit", ["commit"]),
        (" -- now\n COMMIT ;", ["COMMIT"]),
        ("insert into t values ('; COMMIT;'); select 1", ["insert into t values ('')", "select 1"]),
        ("do $a$ begin null; end; $a$; commit", ["do ''", "commit"]),
        ('select "a;b" /* ; */ , 2', ['select "a b" , 2']),
        ("", []),
    ],
)
def test_statements_are_told_apart(text: str, found: list[str]) -> None:
    assert statements(text) == found
