"""Rows reach the table once and as they were meant, both ways; what the table cannot take is refused in words."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import Writer, orders, rows, run, staged, there

from onceonly import faults
from onceonly.errors import ConfigurationError, DestinationError, IdentityError, OnceOnlyError
from onceonly.faults import Point
from onceonly.protocol import Estimate, OutcomeUnknown, Task
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.install import hint
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

pytestmark = pytest.mark.postgres

WAYS = ("driver", "executors")


@pytest.fixture(params=WAYS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refused(writer: Writer, batch: Any, code: str) -> OnceOnlyError:
    with pytest.raises(OnceOnlyError) as caught:
        writer.write(batch)
    assert caught.value.code == code, str(caught.value)
    return caught.value


# ---- appending


def test_a_missing_table_is_made_with_the_first_epoch_and_numbers_its_rows(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        assert not there(dsn)
        writer.write(orders(1, 2))
        writer.write(orders(3))
        assert rows(dsn) == [(1, "new", 1), (2, "new", 1), (3, "new", 2)]
        assert writer.sink.recount() == {1: 2, 2: 1}


def test_each_epoch_updates_the_head_in_place(dsn: str) -> None:
    with Writer(dsn) as writer:
        for number in range(20):
            writer.write(orders(number))
    deadline = time.monotonic() + 30
    updates = (
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'onceonly' AND relname = 'head'"
    )
    while (found := run(dsn, updates))[0][0] < 20 and time.monotonic() < deadline:
        time.sleep(0.1)  # the server counts with a delay
    [(updated, in_place)] = found
    assert updated >= 20
    assert in_place == updated


def test_a_table_is_not_made_by_what_was_only_prepared(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        prepared = writer.prepare(orders(1))
        assert not there(dsn)
        prepared.abandon()
        assert not there(dsn)
        assert staged(dsn) == []
        assert writer.position().identity == ""


def test_an_empty_first_epoch_makes_the_table(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        receipt = writer.write(orders())
        assert receipt.identity == writer.position().identity != ""
        writer.write(orders(1))
        assert rows(dsn) == [(1, "new", 2)]


def test_a_table_without_an_epoch_column_is_written_and_cannot_be_recounted(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text, at timestamptz DEFAULT now())")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1, 2))
        assert [row[:2] for row in rows(dsn)] == [(1, "new"), (2, "new")]
        assert all(row[2] for row in rows(dsn))
        assert writer.sink.recount() is None


def test_an_epoch_column_of_another_name_is_filled(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (note text, id bigint, loaded bigint NOT NULL)")
    with Writer(dsn, load=via, epoch_column="loaded") as writer:
        writer.write(orders(7))
        assert rows(dsn) == [("new", 7, 1)]
        assert writer.sink.recount() == {1: 1}


def test_two_sinks_in_one_table_cannot_tell_whose_rows_are_whose(dsn: str) -> None:
    with Writer(dsn) as first, Writer(dsn, id="postgres:second") as second:
        first.write(orders(1))
        second.write(orders(2))
        assert len(rows(dsn)) == 2
        assert first.sink.recount() is None


def test_an_attempt_that_lost_is_not_counted(dsn: str) -> None:
    with Writer(dsn, load="executors") as writer:
        receipt = writer.write(ArrowBatch(orders(*range(100)), partitions=7, duplicate_attempt=True))
        assert receipt.rows == 100
        assert sorted(row[0] for row in rows(dsn)) == list(range(100))
        assert staged(dsn) == []


def test_awkward_names_are_quoted(dsn: str, via: str) -> None:
    run(dsn, 'CREATE SCHEMA "My % Schema"')
    table = pa.table({"a%b": [1], 'say "x"': ["%s"], "Grüße": [True], "select": [1.5]})
    with Writer(dsn, '"My % Schema"."T.1 %s"', load=via) as writer:
        writer.write(table)
        writer.write(table)
        assert (
            run(dsn, 'SELECT "a%b", "say ""x""", "Grüße", "select" FROM "My % Schema"."T.1 %s"')
            == [(1, "%s", True, 1.5)] * 2
        )
        with_address = PostgresSink.from_address(writer.sink.address)
        with_address.open("orders")
        assert with_address.recount() == {1: 1, 2: 1}
        with_address.close()


def test_names_that_differ_in_case_only_meet_as_spark_would_resolve_them(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (orderid bigint)")
    with Writer(dsn) as writer:
        writer.write(pa.table({"orderId": [1]}))
    assert rows(dsn) == [(1,)]


# ---- driver or executors


class Sized(ArrowBatch):
    """A batch whose estimate is what the test says, and that notes how it was read."""

    def __init__(self, table: pa.Table, size: int | None) -> None:
        super().__init__(table)
        self._size = size
        self.read: list[str] = []

    @property
    def estimate(self) -> Estimate:
        return Estimate(None, self._size)

    def arrow(self) -> Iterator[pa.RecordBatch]:
        self.read.append("driver")
        for start in range(0, len(super().schema.names) and self._table.num_rows, 100):
            yield from self._table.slice(start, 100).to_batches()

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        self.read.append("executors")
        return super().on_executors(task)


@pytest.mark.parametrize(
    ("size", "limit", "read"),
    [
        (100, 1000, ["driver"]),
        (None, 1000, ["executors"]),
        (2000, 1000, ["executors"]),
        (100, 3000, ["driver", "executors"]),  # 300 rows are more than the estimate said
    ],
)
def test_the_way_is_chosen_by_size_and_the_driver_gives_up_past_its_limit(
    dsn: str, size: int | None, limit: int, read: list[str]
) -> None:
    count = 300 if len(read) == 2 else 10
    batch = Sized(orders(*range(count)), size)
    with Writer(dsn, driver_limit=limit) as writer:
        assert writer.write(batch).rows == count
    assert batch.read == read
    assert sorted(row[0] for row in rows(dsn)) == list(range(count))


# ---- upserting


def test_an_upsert_replaces_the_row_of_its_key(dsn: str, via: str) -> None:
    with Writer(dsn, key="id", load=via) as writer:
        writer.write(orders(1, 2))
        receipt = writer.write(orders(2, 3, note="paid"))
        assert receipt.rows == 2
        assert rows(dsn) == [(1, "new", 1), (2, "paid", 2), (3, "paid", 2)]
        assert writer.sink.recount() is None


def changes(*lines: tuple[int, int | None, str]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("state", pa.string())])
    return pa.Table.from_pylist([{"id": id_, "at": at, "state": state} for id_, at, state in lines], schema)


def test_a_sequence_keeps_the_newest_change_and_refuses_late_ones(dsn: str, via: str) -> None:
    with Writer(dsn, key="id", sequence="at", load=via) as writer:
        writer.write(changes((1, 5, "paid"), (1, 3, "new"), (2, 1, "new"), (2, 1, "new")))
        writer.write(changes((1, 4, "late"), (2, 2, "paid")))
        assert rows(dsn, columns="id, at, state") == [(1, 5, "paid"), (2, 2, "paid")]


def test_texts_that_wait_are_ordered_by_the_collation_of_their_column(dsn: str, via: str) -> None:
    run(dsn, 'CREATE TABLE target (id bigint PRIMARY KEY, at text COLLATE "POSIX", state text)')
    with Writer(dsn, key="id", sequence="at", load=via) as writer:
        prepared = writer.prepare(pa.table({"id": [1, 1], "at": ["b", "a"], "state": ["new", "old"]}))
        assert '"at" text COLLATE "POSIX"' in prepared.plan.ddl
        writer.commit(prepared)
    assert rows(dsn, columns="state") == [("new",)]


def test_a_table_of_keys_only_is_upserted(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (a int, b int, UNIQUE (b, a))")
    with Writer(dsn, key=("a", "b"), load=via) as writer:
        writer.write(pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1, 2], pa.int32())}))
        writer.write(pa.table({"a": pa.array([1, 3], pa.int32()), "b": pa.array([1, 3], pa.int32())}))
    assert rows(dsn) == [(1, 1), (2, 2), (3, 3)]


def test_several_rows_for_one_key_are_refused_with_an_example(dsn: str, via: str) -> None:
    with Writer(dsn, key="id", load=via) as writer:
        error = refused(writer, orders(1, 7, 7), "E505")
        assert "id = 7" in error.what
        assert "sequence=" in error.remedy
        assert not there(dsn)
        assert staged(dsn) == []


def test_two_newest_changes_of_one_key_are_refused(dsn: str, via: str) -> None:
    with Writer(dsn, key="id", sequence="at", load=via) as writer:
        refused(writer, changes((1, 5, "paid"), (1, 5, "sent")), "E505")
        writer.write(changes((1, 4, "paid"), (1, 4, "sent"), (1, 5, "done")))
        assert rows(dsn, columns="state") == [("done",)]


def test_null_keys_are_counted_and_refused(dsn: str, via: str) -> None:
    with Writer(dsn, key="id", load=via) as writer:
        error = refused(writer, pa.table({"id": pa.array([1, None, None], pa.int64())}), "E504")
        assert error.details["count"] == 2


def test_a_null_sequence_is_refused(dsn: str, via: str) -> None:
    with Writer(dsn, key="id", sequence="at", load=via) as writer:
        assert refused(writer, changes((1, None, "new")), "E503").details["column"] == "at"


@pytest.mark.parametrize(
    "index",
    [
        "",
        "CREATE UNIQUE INDEX ON target (id, note)",
        "CREATE UNIQUE INDEX ON target (id) WHERE note IS NOT NULL",
        "CREATE UNIQUE INDEX ON target ((id + 0))",
        "CREATE INDEX ON target (id)",
        "ALTER TABLE target ADD UNIQUE (id) DEFERRABLE",
    ],
)
def test_a_key_without_a_unique_index_on_exactly_it_is_refused(dsn: str, index: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    if index:
        run(dsn, index)
    with Writer(dsn, key="id") as writer:
        assert "CREATE UNIQUE INDEX" in refused(writer, orders(1), "E506").remedy


def test_an_included_column_does_not_count_as_key(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    run(dsn, "CREATE UNIQUE INDEX ON target (id) INCLUDE (note)")
    with Writer(dsn, key="id") as writer:
        writer.write(orders(1))
    assert rows(dsn) == [(1, "new")]


# ---- what the table cannot take


def test_a_second_row_under_a_unique_key_is_refused_naming_it(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, note text)")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1))
        error = refused(writer, orders(2, 1), "E503")
        assert "target_pkey" in error.what
        assert "column id (bigint)" in error.what
        assert "PRIMARY KEY (id)" in error.what
        assert "key=" in error.remedy
        assert rows(dsn) == [(1, "new")]
        writer.write(orders(2))  # nothing of the refused epoch stands in its way


@pytest.mark.parametrize(
    ("ddl", "values", "type_", "words"),
    [
        ("varchar(3)", ["abc", "abcd"], pa.string(), "4 characters does not fit character varying(3)"),
        ("varchar(3)", ["abc "], pa.string(), "4 characters"),  # Postgres would cut the blank off without a word
        ("text", ["a\0b"], pa.string(), "NUL"),
        ("smallint", [40_000], pa.int32(), "does not fit smallint"),
        ("bigint NOT NULL", [None], pa.int64(), "1 nulls"),
        ("uuid", ["not-a-uuid"], pa.string(), "not a UUID"),
        ("jsonb", ["{"], pa.string(), "not JSON"),
        ("timestamp(3)", [1_000_001], pa.timestamp("us"), "rounded"),
        ("text[]", [["a\0"]], pa.list_(pa.string()), "NUL"),
        ("jsonb", [{"a": "x\0"}], pa.struct([("a", pa.string())]), "NUL"),
        ("bigint CHECK (v > 0)", [0], pa.int64(), "target_v_check"),
    ],
)
def test_a_value_that_the_column_cannot_hold_is_refused_naming_it(
    dsn: str, via: str, ddl: str, values: list[Any], type_: pa.DataType, words: str
) -> None:
    run(dsn, f"CREATE TABLE target (v {ddl})")
    with Writer(dsn, load=via) as writer:
        error = refused(writer, pa.table({"v": pa.array(values, type_)}), "E503")
        assert words in str(error)
        assert rows(dsn) == []
        assert staged(dsn) == []
        assert writer.position().epoch == 0


def test_a_decimal_that_would_be_rounded_or_overflow_is_refused(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (v numeric(5,2))")
    with Writer(dsn, load=via) as writer:
        for value in ("1.005", "1000.00", "-1000"):
            error = refused(writer, pa.table({"v": pa.array([Decimal(value)], pa.decimal128(20, 4))}), "E503")
            assert "v (decimal(20,4))" in error.what
        writer.write(pa.table({"v": pa.array([Decimal("999.9900")], pa.decimal128(20, 4))}))
    assert rows(dsn) == [(Decimal("999.99"),)]


@pytest.mark.parametrize(
    ("ddl", "type_"),
    [
        ("real", pa.float64()),
        ("double precision", pa.int64()),
        ("integer", pa.float64()),
        ("numeric", pa.float64()),
        ("timestamptz", pa.timestamp("us")),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("text", pa.int64()),
        ("bigint", pa.string()),
        ("point", pa.string()),
        ("interval(0)", pa.duration("us")),
        ("date", pa.timestamp("us")),
        ("timestamptz[]", pa.list_(pa.timestamp("us", "UTC"))),
    ],
)
def test_a_type_that_would_be_rounded_or_has_no_such_form_is_refused_before_the_action(
    dsn: str, ddl: str, type_: pa.DataType
) -> None:
    run(dsn, f"CREATE TABLE target (v {ddl})")
    with Writer(dsn) as writer:
        batch = Sized(pa.table({"v": pa.array([None], type_)}), 10)
        error = refused(writer, batch, "E506")
        assert "column v" in error.what
        assert batch.read == []


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("id bigint", "no column note"),
        ("id bigint, note text, who text NOT NULL", "no column who"),
        ("id bigint, note text GENERATED ALWAYS AS ('x') STORED", "generated"),
        ("id bigint, note text, _epoch bigint, ID2 int NOT NULL", "no column id2"),
    ],
)
def test_other_columns_than_the_table_has_are_refused(dsn: str, ddl: str, words: str) -> None:
    run(dsn, f"CREATE TABLE target ({ddl})")
    with Writer(dsn) as writer:
        assert words in refused(writer, orders(1), "E506").what


def test_a_missing_column_comes_with_the_statement_that_adds_it(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint)")
    with Writer(dsn) as writer:
        error = refused(writer, orders(1), "E506")
        assert error.remedy == 'ALTER TABLE "public"."target" ADD COLUMN "note" text; then restart the query'
        run(dsn, error.remedy.partition("; ")[0])
        writer.write(orders(1))
    assert rows(dsn) == [(1, "new")]


def test_all_missing_columns_come_with_one_statement(dsn: str) -> None:
    run(dsn, 'CREATE TABLE "Tar.get 1%" (id bigint)')
    wide = orders(1).append_column("a %", pa.array([1])).append_column("b", pa.array([True]))
    with Writer(dsn, '"Tar.get 1%"') as writer:
        error = refused(writer, wide, "E506")
        assert "the table has no column note, a %, b." in error.what
        run(dsn, error.remedy.partition("; ")[0])
        writer.write(wide)
    assert rows(dsn, "Tar.get 1%") == [(1, "new", 1, True)]


def test_columns_that_are_missing_or_too_narrow_come_with_one_statement(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id text, price integer, day date, n bigint); INSERT INTO target VALUES ('0', 7)")
    wide = pa.table({"id": ["1"], "price": [1.5], "day": ["x"], "n": [Decimal("2.50")], "b": [True], "c": [1]})
    with Writer(dsn) as writer:
        error = refused(writer, wide, "E506")
        statement, rest = error.remedy.split("; ", 1)
        assert rest == "or cast price, day, n in the query; then restart the query"
        run(dsn, statement)
        writer.write(wide)
    found = rows(dsn)
    assert [row[:2] for row in found] == [("0", 7.0), ("1", 1.5)]
    assert found[1][2:] == ("x", Decimal("2.50"), True, 1)


def test_a_type_that_the_table_cannot_widen_to_is_cast_in_the_query(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text, a bigint, b date)")
    wide = orders(1).append_column("a", pa.array([True])).append_column("b", pa.array([1]))
    with Writer(dsn) as writer:
        error = refused(writer, wide, "E506")
    assert "cannot hold a type of the batch: column a is boolean in the batch, bigint in the table" in error.what
    assert error.remedy == "cast a, b in the query; then restart the query"


def test_a_key_without_an_index_comes_with_the_statement_that_makes_it(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    with Writer(dsn, key="id") as writer:
        error = refused(writer, orders(1), "E506")
        assert "Likely cause: the table was made without such an index" in str(error)
        run(dsn, error.remedy)
        writer.write(orders(1))
    assert rows(dsn) == [(1, "new")]


def test_a_published_table_comes_with_the_statement_by_which_its_rows_are_known(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint NOT NULL, note text); CREATE UNIQUE INDEX ON target (id)")
    with Writer(dsn, key="id") as writer:
        writer.write(orders(1))
        run(dsn, "CREATE PUBLICATION of_target FOR TABLE target")
        error = refused(writer, orders(1, note="changed"), "E508")
        assert "Likely cause: the table is in a publication" in str(error)
        run(dsn, error.remedy.partition(";")[0])
        writer.write(orders(1, note="changed"))
    assert rows(dsn) == [(1, "changed")]


def test_a_foreign_key_comes_with_the_statement_that_lets_it_wait(dsn: str) -> None:
    run(dsn, "CREATE TABLE parents (id bigint PRIMARY KEY)")
    run(dsn, "CREATE TABLE target (id bigint REFERENCES parents, note text)")
    with Writer(dsn) as writer:
        error = refused(writer, orders(1), "E503")
        statement = next(one for one in error.remedy.split(": ") if one.startswith("ALTER TABLE")).partition(";")[0]
        run(dsn, statement)
    run(dsn, "BEGIN; INSERT INTO target VALUES (2); INSERT INTO parents VALUES (2); COMMIT")
    assert rows(dsn) == [(2, None)]


def test_a_column_that_the_batch_lacks_is_added_beside_those_that_other_sinks_want(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text, who text NOT NULL)")
    with Writer(dsn) as writer:
        assert 'selectExpr("*", "... AS who")' in refused(writer, orders(1), "E506").remedy


def test_a_column_of_the_epochs_name_in_the_batch_is_refused(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        refused(writer, pa.table({"id": [1], "_epoch": [2]}), "E506")


def test_columns_that_fill_themselves_may_be_left_out(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (n int GENERATED ALWAYS AS IDENTITY, id bigint, note text, d int NOT NULL DEFAULT 7)")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(5))
    assert rows(dsn) == [(1, 5, "new", 7)]


@pytest.mark.parametrize(
    "kind", ["VIEW target AS SELECT 1::bigint AS id, 'x' AS note", "UNLOGGED TABLE target (id bigint)"]
)
def test_what_would_lose_rows_or_is_no_table_is_refused_at_open(dsn: str, kind: str) -> None:
    run(dsn, f"CREATE {kind}")
    sink = PostgresSink(dsn, "target")
    with pytest.raises(DestinationError) as caught:
        sink.open("orders")
    assert caught.value.code == "E508"
    sink.close()


def test_a_partitioned_table_is_written(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text, _epoch bigint) PARTITION BY RANGE (id)")
    run(dsn, "CREATE TABLE target_1 PARTITION OF target FOR VALUES FROM (0) TO (10)")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1, 2))
        assert writer.sink.recount() == {1: 2}
        refused(writer, orders(11), "E503")


# ---- the table changes while the query runs


def test_a_column_that_is_added_between_epochs_is_left_to_its_default(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1))
        run(dsn, "ALTER TABLE target ADD COLUMN extra int DEFAULT 3")
        writer.write(orders(2))
    assert rows(dsn) == [(1, "new", 1, 3), (2, "new", 2, 3)]


def test_a_column_whose_type_changes_between_epochs_is_never_filled_with_wrong_bytes(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1))
        run(dsn, "ALTER TABLE target ALTER COLUMN id TYPE numeric")
        writer.write(orders(2))
        assert sorted(int(row[0]) for row in rows(dsn)) == [1, 2]
        run(dsn, "ALTER TABLE target ALTER COLUMN id TYPE double precision")
        refused(writer, orders(3), "E506")
        assert len(rows(dsn)) == 2


def test_a_table_that_changes_between_prepare_and_commit_is_refused(dsn: str) -> None:
    with Writer(dsn, load="executors") as writer:
        writer.write(orders(1))
        prepared = writer.prepare(orders(2))
        run(dsn, "ALTER TABLE target ALTER COLUMN id TYPE int")
        with pytest.raises(DestinationError) as caught:
            writer.commit(prepared)
        assert caught.value.code == "E506"
        prepared.abandon()
        assert staged(dsn) == []
        writer.write(orders(2))
    assert len(rows(dsn)) == 2


def test_a_table_dropped_in_mid_run_is_not_made_again_in_silence(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1))
        run(dsn, "DROP TABLE target")
        with pytest.raises(IdentityError) as caught:
            writer.write(orders(2))
        assert caught.value.code == "E208"
        assert not there(dsn)


# ---- the ledger in the same transaction


class Notebook:
    """A ledger of one table in the same database."""

    address = "notebook"

    def record(self, record: Any, connection: Any = None) -> None:
        query = "INSERT INTO notes VALUES (%(epoch)s, %(rows)s)"
        connection.exec_driver_sql(query, {"epoch": record.epoch.number, "rows": record.receipts[0].rows})


class TornNotebook(Notebook):
    def record(self, record: Any, connection: Any = None) -> None:
        super().record(record, connection)
        raise LedgerUnavailable("the page is torn")


class SilentNotebook(Notebook):
    """Fails and says nothing: the transaction is over, and a COMMIT would be answered with a friendly ROLLBACK."""

    def record(self, record: Any, connection: Any = None) -> None:
        with pytest.raises(Exception, match="nowhere"):
            connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)", {})


def test_a_ledger_in_the_same_database_rides_in_the_transaction(dsn: str, via: str) -> None:
    with Writer(dsn, load=via) as writer:
        ledger = SqlLedger(writer.sink.ledger_url or "")
        ledger.open()
        receipts = [writer.write(orders(number), ledger) for number in (1, 2)]
        assert [record.receipts for record in ledger.epochs("orders")] == [(receipt,) for receipt in receipts]
        faults.arm(Point.COMMIT_SENT, "raise")
        with pytest.raises(OutcomeUnknown):
            writer.write(orders(3), ledger)
        faults.disarm()
        head = ledger.head("orders")
        assert head is not None
        assert head.epoch.number == 3  # the rows landed, and with them the record
        ledger.close()


def test_what_rides_in_the_transaction_is_there_with_the_rows(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE notes (epoch bigint, rows bigint)")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1, 2), ledger=Notebook())  # type: ignore[arg-type]
    assert run(dsn, "SELECT * FROM notes") == [(1, 2)]


@pytest.mark.parametrize(("ledger", "code"), [(TornNotebook(), "E511"), (SilentNotebook(), "E508")])
def test_a_ledger_that_cannot_be_written_takes_the_epoch_back(dsn: str, via: str, ledger: Any, code: str) -> None:
    run(dsn, "CREATE TABLE notes (epoch bigint, rows bigint)")
    with Writer(dsn, load=via) as writer:
        with pytest.raises(OnceOnlyError) as caught:
            writer.write(orders(1), ledger=ledger)
        assert caught.value.code == code
        assert not there(dsn)
        assert run(dsn, "SELECT * FROM notes") == []
        writer.write(orders(1))
    assert len(rows(dsn)) == 1


# ---- what a user may say


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sequence": "at"}, "an append never looks for a row"),
        ({"delete_flag": "gone"}, "an append never looks for a row"),
        ({"mode": "overwrite"}, "no argument mode="),
        ({"key": ("id", "id")}, "a column is named twice"),
        ({"key": "id", "sequence": "id"}, "a column is named twice"),
        ({"key": "id", "delete_flag": "id"}, "a column is named twice"),
        ({"key": "id", "sequence": ""}, "sequence is not the name of a column: ''"),
        ({"key": ("id", 5)}, "PostgresSink(key=) takes the name of a column, or a list of names"),
        ({"key": 5}, "PostgresSink(key=) was given an int"),
        ({"schema": "overwrite"}, 'schema is not "fail" or "add_columns": \'overwrite\''),
        ({"apply": "INSERT"}, "apply= is a function"),
        ({"table": "a.b.c"}, "table or schema.table"),
        ({"table": ""}, "table or schema.table"),
        ({"table": "x" * 64}, "at most 63 bytes"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_when_they_are_given(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        PostgresSink("postgresql://host/db", **{"table": "target", **options})
    assert caught.value.code == "E110"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("made", "option", "words"),
    [
        (PostgresTuning, {"triggers": "some"}, 'triggers is not "refuse" or "allow": \'some\''),
        (PostgresTuning, {"load": "executor"}, "did you mean executors?"),
        (PostgresTuning, {"driver_limit": -1}, "driver_limit is not a number of bytes, 0 or more: -1"),
        (PostgresTuning, {"driver_limit": "64MB"}, "driver_limit=) was given a str"),
        (PostgresTuning, {"driver_limit": True}, "driver_limit=) was given a bool"),
        (PostgresTuning, {"epoch_column": ""}, "epoch_column is not the name of a column"),
        (PostgresTuning, {"epoch_column": 5}, "epoch_column=) was given an int"),
        (PostgresTuning, {"commit_timeout": 0}, "commit_timeout is not a number of seconds"),
        (PostgresTuning, {"lock_timeout": "30s"}, "lock_timeout=) was given a str"),
        (Keep, {"markers": 3}, 'markers is not a number of epochs, 200 or more or "all": 3'),
        (Keep, {"history": 3}, 'a number of epochs, 64 or more or "all": 3'),
        (Keep, {"tombstones": "a while"}, "tombstones is not a duration of at least a second: 'a while'"),
        (Keep, {"tombstones": "0 days"}, "tombstones is not a duration"),
        (Keep, {"tombstones": 7}, 'write tombstones="7 days", or leave tombstones= out'),
    ],
    ids=str,
)
def test_what_keep_and_tuning_cannot_mean_is_refused_when_it_is_given(
    made: Any, option: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        made(**option)
    assert caught.value.code == "E110"
    assert words in str(caught.value)


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"E110.*no argument modus="):
        PostgresSink("postgresql://host/db", "target", modus="append")  # type: ignore[call-arg]


def test_importing_the_sink_loads_no_driver() -> None:
    code = "import sys, onceonly_sinks.postgres.sink; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"psycopg", "pgpq", "pyarrow", "pyspark", "pandas"} & set(loaded) == set()


def test_a_missing_driver_is_named_when_the_sink_is_made() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
from onceonly.errors import ConfigurationError
from onceonly_sinks.postgres import PostgresSink
try:
    PostgresSink("postgresql://host/db", "target")
except ConfigurationError as error:
    print(error.code, error.remedy)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"E108 install its extra: {hint('postgres')}")
