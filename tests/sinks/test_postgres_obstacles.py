"""What lies between a row that is sent and a row that stands: parts that do not last, rules, triggers before a row."""

from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import PIPELINE, Writer, orders, rows, run
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import DestinationError, OnceOnlyError
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = pytest.mark.postgres

PARTED = "CREATE TABLE target (id bigint, note text) PARTITION BY RANGE (id)"
UNLOGGED = "CREATE UNLOGGED TABLE low PARTITION OF target FOR VALUES FROM (0) TO (100)"
FOREIGN = """
DROP FOREIGN DATA WRAPPER IF EXISTS elsewhere CASCADE;
CREATE FOREIGN DATA WRAPPER elsewhere;
CREATE SERVER far FOREIGN DATA WRAPPER elsewhere;
"""
ELSEWHERE = "SERVER far"


@pytest.fixture(params=BOTH_WAYS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opens(dsn: str, **options: Any) -> None:
    sink = PostgresSink(dsn, "target", **options)
    try:
        sink.open(PIPELINE)
    finally:
        sink.close()


def refusal(dsn: str, **options: Any) -> OnceOnlyError:
    with pytest.raises(OnceOnlyError) as caught:
        opens(dsn, **options)
    assert caught.value.code == "E508", str(caught.value)
    return caught.value


# ---- parts


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        ((PARTED, UNLOGGED), '"public"."low", a partition of public.target, is unlogged'),
        (
            (
                PARTED,
                "CREATE TABLE low PARTITION OF target FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
                "CREATE UNLOGGED TABLE lowest PARTITION OF low FOR VALUES FROM (0) TO (10)",
            ),
            '"public"."lowest", a partition of public.target, is unlogged',
        ),
        (
            (
                "CREATE TABLE target (id bigint, note text)",
                "CREATE UNLOGGED TABLE heir () INHERITS (target)",
            ),
            '"public"."heir", which inherits from public.target, is unlogged',
        ),
        (
            (PARTED, FOREIGN, f"CREATE FOREIGN TABLE far PARTITION OF target FOR VALUES FROM (0) TO (9) {ELSEWHERE}"),
            '"public"."far", a partition of public.target, is a foreign table',
        ),
        (
            (
                "CREATE TABLE target (id bigint, note text)",
                FOREIGN,
                f"CREATE FOREIGN TABLE far () INHERITS (target) {ELSEWHERE}",
            ),
            '"public"."far", which inherits from public.target, is a foreign table',
        ),
    ],
    ids=["unlogged partition", "below a partition", "unlogged heir", "foreign partition", "foreign heir"],
)
def test_a_part_that_does_not_last_as_the_marker_does_is_refused_by_name(
    dsn: str, statements: tuple[str, ...], named: str
) -> None:
    for statement in statements:
        run(dsn, statement)
    assert named in refusal(dsn).what


def test_what_the_refusal_of_an_unlogged_partition_prints_lets_it_go_on(dsn: str, via: str) -> None:
    run(dsn, PARTED)
    run(dsn, UNLOGGED)
    run(dsn, refusal(dsn).remedy)
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1, 2))
    assert rows(dsn) == [(1, "new"), (2, "new")]


def test_a_partition_attached_while_a_driver_writes_is_looked_at_by_the_next_epoch(dsn: str, via: str) -> None:
    run(dsn, PARTED)
    run(dsn, "CREATE TABLE high PARTITION OF target FOR VALUES FROM (100) TO (200)")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(101))
        run(dsn, UNLOGGED)
        with pytest.raises(DestinationError, match=r'"public"\."low".*unlogged'):
            writer.write(orders(102))
        run(dsn, "ALTER TABLE low SET LOGGED")
        writer.write(orders(1))
    assert rows(dsn) == [(1, "new"), (101, "new")]


def test_many_logged_partitions_are_written(dsn: str, via: str) -> None:
    run(dsn, PARTED)
    for low in range(0, 50, 10):
        run(dsn, f"CREATE TABLE p{low} PARTITION OF target FOR VALUES FROM ({low}) TO ({low + 10})")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(*range(50)))
        writer.write(orders(3))
    assert len(rows(dsn)) == 51


# ---- rules


def test_a_table_with_a_rule_is_refused_and_the_printed_command_lets_it_go_on(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    run(dsn, 'CREATE RULE "swallow %" AS ON INSERT TO target DO INSTEAD NOTHING')
    refused = refusal(dsn)
    assert "swallow %" in refused.what
    run(dsn, refused.remedy.partition(", or")[0])
    with Writer(dsn, load=via) as writer:
        assert writer.write(orders(1)).rows == 1
    assert rows(dsn) == [(1, "new")]


def test_a_rule_made_while_a_driver_writes_is_met_by_the_next_epoch(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1))
        run(dsn, "CREATE RULE swallow AS ON INSERT TO target DO INSTEAD NOTHING")
        with pytest.raises(DestinationError, match="rewrite rules"):
            writer.write(orders(2))


# ---- triggers before a row

FILTER = """
CREATE FUNCTION keep_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'DELETE' THEN RETURN CASE WHEN OLD.id = 7 THEN NULL ELSE OLD END; END IF;
    IF NEW.id = 7 THEN RETURN NULL; END IF;
    NEW.note := NEW.note || '!';
    RETURN NEW;
END $$
"""


@pytest.fixture
def filtered(dsn: str) -> str:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, at bigint, note text)")
    run(dsn, FILTER)
    return dsn


def trigger(dsn: str, events: str = "INSERT") -> None:
    run(dsn, f'CREATE TRIGGER "soft %" BEFORE {events} ON target FOR EACH ROW EXECUTE FUNCTION keep_back()')


def test_a_trigger_before_each_row_is_refused_at_open_by_name(filtered: str) -> None:
    trigger(filtered)
    refused = refusal(filtered)
    assert "soft %" in refused.what
    assert 'triggers="allow"' in refused.remedy
    run(filtered, 'ALTER TABLE target DISABLE TRIGGER "soft %"')
    opens(filtered)


def test_a_trigger_for_what_the_sink_never_does_is_no_obstacle(filtered: str) -> None:
    trigger(filtered, "UPDATE OR DELETE")
    opens(filtered)
    refusal(filtered, key="id")
    run(filtered, 'DROP TRIGGER "soft %" ON target')
    trigger(filtered, "DELETE")
    opens(filtered, key="id")
    refusal(filtered, key="id", delete_flag="gone")


def test_an_address_says_that_triggers_are_allowed(filtered: str) -> None:
    trigger(filtered)
    address = PostgresSink(filtered, "target", tuning=PostgresTuning(triggers="allow")).address
    again = PostgresSink.from_address(address)
    assert again.address == address
    again.open(PIPELINE)  # it would be refused without them, as above
    again.close()


@pytest.mark.parametrize("options", [{}, {"key": "id"}, {"key": "id", "sequence": "at"}], ids=str)
def test_an_epoch_of_which_an_allowed_trigger_keeps_a_row_back_is_refused_by_its_name(
    filtered: str, via: str, options: dict[str, Any]
) -> None:
    trigger(filtered, "INSERT OR UPDATE")

    def changes(*ids: int) -> pa.Table:
        at = pa.array([5] * len(ids), pa.int64())
        return orders(*ids).append_column("at", at)

    with Writer(filtered, load=via, triggers="allow", **options) as writer:
        writer.write(changes(1, 2))
        with pytest.raises(DestinationError) as caught:
            writer.write(changes(3, 7))
        assert caught.value.code == "E528", str(caught.value)
        assert "suppressed 1 rows" in caught.value.what
        assert "soft %" in caught.value.what
        writer.write(changes(4))
    assert rows(filtered, columns="id, note") == [(1, "new!"), (2, "new!"), (4, "new!")]


@pytest.mark.parametrize("options", [{}, {"sequence": "at"}], ids=str)
def test_a_row_that_stands_and_is_not_replaced_is_noticed(filtered: str, via: str, options: dict[str, Any]) -> None:
    def changes(*lines: tuple[int, int, bool]) -> pa.Table:
        return pa.table(
            {"id": [i for i, _, _ in lines], "at": [a for _, a, _ in lines], "gone": [g for *_, g in lines]}
        )

    run(filtered, "INSERT INTO target VALUES (7, 1, 'stands')")
    trigger(filtered, "INSERT OR UPDATE OR DELETE")
    with Writer(filtered, load=via, triggers="allow", key="id", delete_flag="gone", **options) as writer:
        writer.write(changes((1, 1, False), (2, 1, False)))
        writer.write(changes((1, 2, True), (2, 2, False)))
        for gone in [True, False] if options else [True]:
            with pytest.raises(DestinationError) as caught:
                writer.write(changes((3, 2, False), (7, 2, gone)))
            assert caught.value.code == "E528", str(caught.value)
    assert rows(filtered, columns="id, at") == [(2, 2), (7, 1)]


def test_a_trigger_of_a_partition_that_was_added_deeper_is_named_too(dsn: str, via: str) -> None:
    run(dsn, PARTED)
    run(dsn, "CREATE TABLE low PARTITION OF target FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)")
    run(dsn, "CREATE TABLE lower PARTITION OF low FOR VALUES FROM (10) TO (20)")
    run(dsn, FILTER)
    with Writer(dsn, load=via, triggers="allow") as writer:
        writer.write(orders(11))
        run(dsn, "CREATE TABLE lowest PARTITION OF low FOR VALUES FROM (0) TO (10)")
        run(dsn, 'CREATE TRIGGER "deep %" BEFORE INSERT ON lowest FOR EACH ROW EXECUTE FUNCTION keep_back()')
        with pytest.raises(DestinationError) as caught:
            writer.write(orders(5, 7))
        assert caught.value.code == "E528", str(caught.value)
        assert 'suppressed 1 rows of epoch 2: deep % on "public"."lowest"' in caught.value.what
    assert rows(dsn) == [(11, "new")]


# ---- tables that inherit

HEIR = (
    "CREATE TABLE target (id bigint PRIMARY KEY, at bigint, note text)",
    "CREATE TABLE heir () INHERITS (target)",
    FILTER,
)


def heir_triggers(dsn: str, events: str) -> None:
    run(dsn, f"CREATE TRIGGER theirs BEFORE {events} ON heir FOR EACH ROW EXECUTE FUNCTION keep_back()")


def test_rules_and_insert_triggers_of_an_heir_are_never_asked_and_no_obstacle(dsn: str, via: str) -> None:
    for statement in HEIR:
        run(dsn, statement)
    heir_triggers(dsn, "INSERT")
    run(dsn, "CREATE RULE swallow AS ON INSERT TO heir DO INSTEAD NOTHING")
    with Writer(dsn, load=via) as writer:
        writer.write(orders(1, 7))
    assert rows(dsn, columns="id, note") == [(1, "new"), (7, "new")]
    opens(dsn, key="id")


def test_triggers_of_an_heir_for_rows_that_a_statement_for_all_finds_there_are_an_obstacle(dsn: str) -> None:
    for statement in HEIR:
        run(dsn, statement)
    heir_triggers(dsn, "INSERT OR DELETE")
    opens(dsn, key="id")
    assert '"public"."heir" (theirs)' in refusal(dsn, key="id", delete_flag="gone").what


def test_rules_of_a_partition_are_asked_where_rows_are_sent_to_it_itself(dsn: str) -> None:
    run(dsn, "CREATE TABLE whole (id bigint, note text) PARTITION BY RANGE (id)")
    run(dsn, "CREATE TABLE target PARTITION OF whole FOR VALUES FROM (0) TO (100)")
    run(dsn, "CREATE RULE swallow AS ON INSERT TO target DO INSTEAD NOTHING")
    assert "swallow" in refusal(dsn).what
