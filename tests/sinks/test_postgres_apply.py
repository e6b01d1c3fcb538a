"""A function of the user's brings the rows, inside the transaction of their marker, and cannot end it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from tests.sinks.postgres_writer import Writer, orders, rows, run, staged, there
from tests.sinks.variants import BOTH_WAYS

from onceonly.audit import audit
from onceonly.errors import ConfigurationError, DestinationError
from onceonly.protocol import Superseded
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = pytest.mark.postgres

STOCK = "CREATE TABLE target (id bigint PRIMARY KEY, seen bigint NOT NULL, note text)"

Apply = Callable[[psycopg.Cursor[Any], Any, int], object]


@pytest.fixture(params=BOTH_WAYS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def counted(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    cursor.execute(
        f"INSERT INTO target AS t SELECT id, 1, note FROM {staged}"
        " ON CONFLICT (id) DO UPDATE SET seen = t.seen + 1, note = excluded.note"
    )


def refused(dsn: str, via: str, apply: Apply, code: str) -> DestinationError:
    """Have an epoch refused that follows a good one, and see that nothing of it is there and the next one goes."""
    acts = iter([counted, apply, counted])

    def one_after_the_other(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
        next(acts)(cursor, staged, epoch)

    with Writer(dsn, load=via, apply=one_after_the_other) as writer:
        writer.write(orders(1))
        with pytest.raises(DestinationError) as caught:
            writer.write(orders(1, 2, note="refused"))
        assert caught.value.code == code, str(caught.value)
        assert rows(dsn) == [(1, 1, "new")]
        assert writer.position().epoch == 1
        writer.write(orders(2))
        assert rows(dsn) == [(1, 1, "new"), (2, 1, "new")]
        assert staged(dsn) == []
        return caught.value


def test_the_function_gets_the_rows_and_the_epoch_in_the_markers_transaction(dsn: str, via: str) -> None:
    run(dsn, STOCK)
    run(dsn, "CREATE TABLE told (epoch bigint, rows bigint, marker bigint)")

    def apply(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
        counted(cursor, staged, epoch)
        query = sql.SQL("INSERT INTO told SELECT %s, count(*), (SELECT max(epoch) FROM onceonly.head) FROM {}")
        cursor.execute(query.format(staged), [epoch])

    with Writer(dsn, load=via, apply=apply) as writer:
        receipt = writer.write(orders(1, 2))
        writer.write(orders())
        writer.write(orders(2, 3, note="again"))
        assert rows(dsn) == [(1, 1, "new"), (2, 2, "again"), (3, 1, "again")]
        assert rows(dsn, "told") == [(1, 2, 0), (3, 2, 2)]
        assert (receipt.rows, receipt.identity) == (2, writer.position().identity)
        assert writer.sink.recount() is None


def test_an_attempt_that_lost_is_not_shown_to_the_function(dsn: str) -> None:
    run(dsn, STOCK)
    with Writer(dsn, load="executors", apply=counted) as writer:
        writer.write(ArrowBatch(orders(1, 2), duplicate_attempt=True))
        assert rows(dsn) == [(1, 1, "new"), (2, 1, "new")]


def test_awkward_names_and_every_column_reach_the_function(dsn: str, via: str) -> None:
    seen: list[Any] = []

    def apply(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
        cursor.execute("CREATE TABLE target (id bigint)")
        seen.extend(cursor.execute(f'SELECT "50% {{x}}", "a""b", at FROM {staged}').fetchall())

    table = pa.table({"50% {x}": [1.5], 'a"b': ["x"], "at": [{"deep": [1]}]})
    with Writer(dsn, load=via, apply=apply) as writer:
        writer.write(table)
    assert seen == [(1.5, "x", {"deep": [1]})]


def test_an_exception_takes_the_epoch_back_and_is_the_cause(dsn: str, via: str) -> None:
    run(dsn, STOCK)
    wrong = LookupError("no price for item 7")

    def apply(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
        counted(cursor, staged, epoch)
        raise wrong

    error = refused(dsn, via, apply, "E518")
    assert error.__cause__ is wrong
    assert "LookupError: no price for item 7" in str(error)


def test_a_failure_of_its_sql_is_told_as_its_own(dsn: str, via: str) -> None:
    run(dsn, STOCK)
    error = refused(dsn, via, lambda cursor, staged, epoch: cursor.execute("INSERT INTO nowhere VALUES (1)"), "E518")
    assert isinstance(error.__cause__, psycopg.errors.UndefinedTable)
    assert "SQLSTATE 42P01" in str(error)


def hides_a_failure(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    counted(cursor, staged, epoch)
    with pytest.raises(psycopg.errors.UniqueViolation):
        cursor.execute("INSERT INTO target VALUES (1, 1, 'twice')")


def test_a_failed_statement_cannot_be_hidden(dsn: str, via: str) -> None:
    run(dsn, STOCK)
    assert "InFailedSqlTransaction" in str(refused(dsn, via, hides_a_failure, "E518"))


def swallowing(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation), cursor.connection.transaction():
        cursor.execute("INSERT INTO target VALUES (1, 1, 'twice')")
    counted(cursor, staged, epoch)


def test_a_savepoint_of_its_own_may_fail(dsn: str, via: str) -> None:
    run(dsn, STOCK)
    with Writer(dsn, load=via, apply=lambda *given: counted(*given) if given[2] == 1 else swallowing(*given)) as writer:
        writer.write(orders(1))
        writer.write(orders(1, note="later"))
        assert rows(dsn) == [(1, 2, "later")]


def commits_in_sql(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    counted(cursor, staged, epoch)
    cursor.execute("COMMIT")


def commits_and_hides_it(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    counted(cursor, staged, epoch)
    with pytest.raises(psycopg.Error):
        cursor.execute("COMMIT")
    cursor.execute("SELECT 1")


def rolls_back_in_sql(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    counted(cursor, staged, epoch)
    cursor.execute("ROLLBACK")


def rolls_back_and_goes_on(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    cursor.execute("ROLLBACK")
    cursor.execute("INSERT INTO target VALUES (7, 7, 'lost')")


def gives_up(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
    raise psycopg.Rollback


@pytest.mark.parametrize(
    "apply",
    [commits_in_sql, commits_and_hides_it, rolls_back_in_sql, rolls_back_and_goes_on, gives_up],
    ids=lambda apply: apply.__name__,
)
def test_ending_the_transaction_is_refused_and_nothing_of_it_stays(dsn: str, via: str, apply: Apply) -> None:
    run(dsn, STOCK)
    refused(dsn, via, apply, "E519")


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (lambda cursor, staged, epoch: cursor.connection.commit(), "Explicit commit"),
        (lambda cursor, staged, epoch: cursor.connection.rollback(), "Explicit rollback"),
    ],
    ids=["commit", "rollback"],
)
def test_what_the_driver_itself_forbids_is_told(dsn: str, via: str, apply: Apply, words: str) -> None:
    run(dsn, STOCK)
    assert words in str(refused(dsn, via, apply, "E518"))


def test_a_weaker_commit_asked_for_by_the_function_is_not_given(dsn: str, via: str) -> None:
    run(dsn, STOCK)
    asked: list[str] = []

    class Ledger:
        address = "nowhere"

        def record(self, record: Any, connection: Any = None) -> None:
            asked.append(connection.exec_driver_sql("SHOW synchronous_commit", {}).scalar_one())

    def apply(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
        counted(cursor, staged, epoch)
        cursor.execute("SET LOCAL synchronous_commit = off")

    with Writer(dsn, load=via, apply=apply) as writer:
        writer.write(orders(1), Ledger())  # type: ignore[arg-type]
    assert asked == ["on"]


def test_a_driver_that_was_fenced_meanwhile_is_told_so(dsn: str, via: str) -> None:
    run(dsn, STOCK)

    def apply(cursor: psycopg.Cursor[Any], staged: Any, epoch: int) -> None:
        newer = PostgresSink(dsn, "target")
        newer.open("orders")
        newer.install(Fence(2, "owner-2"))
        newer.close()
        counted(cursor, staged, epoch)

    with Writer(dsn, load=via, apply=apply) as writer:
        with pytest.raises(Superseded) as caught:
            writer.write(orders(1))
        assert caught.value.current_fence.generation == 2
    assert rows(dsn) == []


def test_a_table_that_is_still_not_there_is_refused(dsn: str, via: str) -> None:
    with Writer(dsn, load=via, apply=lambda cursor, staged, epoch: None) as writer:
        with pytest.raises(DestinationError, match=r"E508.*there is no table"):
            writer.write(orders(1))
        assert not there(dsn)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "id"},
        {"key": "id", "sequence": "at"},
        {"schema": "add_columns"},
        {"tuning": PostgresTuning(epoch_column=None)},
    ],
    ids=str,
)
def test_a_function_and_another_way_of_writing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="E110"):
        PostgresSink("postgresql://host/db", "target", apply=counted, **options)


def test_found_by_its_address_it_reads_and_does_not_write(dsn: str) -> None:
    run(dsn, STOCK)
    with Writer(dsn, apply=counted) as writer:
        writer.write(orders(1))
        found = PostgresSink.from_address(writer.sink.address)
        assert found.capabilities == writer.sink.capabilities
        assert not found.capabilities.recountable
        found.open("orders")
        assert [receipt.rows for _, receipt in found.history()] == [1]
        assert "A119" in [finding.code for finding in audit(None, "orders", [found]).findings]
        found.install(Fence(2, "owner-2"))
        prepared = found.prepare(ArrowBatch(orders(2)), 2)
        marker = writer.marker(1)
        with pytest.raises(DestinationError, match=r"E518.*cannot hold"):
            found.commit(prepared, replace(marker, fence=Fence(2, "owner-2")))
        found.close()
