"""Checks: what all rows of an epoch, or of a table, meet together; an epoch that breaks one reaches no table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration import jobs
from integration.cases import each
from integration.jobs import BALANCED, TABLE, Job
from integration.processes import Drivers, was_killed
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame

from onceonly import Dedupe, Output, Quality, Route, exactly_once
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def booked(df: DataFrame) -> DataFrame:
    return jobs.booked(df, "id % 1000 = 999")


GOOD, BAD, LATER = range(990, 995), range(995, 1000), range(1000, 1005)
"""Of the second file, row 999 has no credit."""


def bad(pg: PostgresTarget) -> PostgresSink:
    return PostgresSink(pg.dsn, table="orders_bad")


def aside(pg: PostgresTarget) -> list[tuple[int, list[dict[str, str]]]]:
    rows = pg.says("select row, reasons from orders_bad")
    return sorted((json.loads(row)["id"], json.loads(reasons)) for row, reasons in rows)


def test_an_epoch_that_breaks_a_check_reaches_no_table_and_the_printed_way_sets_its_rows_aside(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    def write(**said: Any) -> Any:
        return exactly_once(pg.sink(), delta.sink(), quality=Quality(checks=BALANCED, **said), transform=booked)

    seen = stream.receive(GOOD, BAD, LATER).fail(write())
    assert '[ONCE-E531] Epoch 2 of "orders" breaks check "balanced" of its rows' in seen, seen[:2000]
    assert "sum(debit) = sum(credit) is not true (sum(debit): 4985, sum(credit): 3986)" in seen
    assert 'quality=Quality(..., quarantine=sink, on_broken="quarantine")' in seen
    assert (pg.ids(), delta.ids()) == ([*GOOD], [*GOOD])
    assert "ONCE-E531" in stream.fail(write()), "it is refused again, and not skipped"
    last = write(quarantine=bad(pg), on_broken="quarantine")
    stream.run(last)
    assert (pg.ids(), delta.ids()) == ([*GOOD, *LATER], [*GOOD, *LATER])
    assert aside(pg) == [(number, [{"by": "check", "rule": "balanced"}]) for number in BAD]
    told = str(last.explain())
    assert "no epoch of rows that break balanced (sum(debit) = sum(credit)) reaches it" in told
    assert "and all rows of an epoch that breaks a check" in told
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    sinks = [pg.sink(), delta.sink(), bad(pg)]
    found = audit(ledger, "orders", sinks, spark=stream.spark)
    epoch = [record.epoch for record in ledger.epochs("orders")][1]
    ledger.close()
    for sink in sinks:
        sink.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    assert (epoch.digest.rows, epoch.bad and epoch.bad.reasons) == (0, (("balanced", 5),))
    assert not list((stream.root / "ck").glob("**/e000000000002-*/part-*")), "an epoch that was refused leaves no files"


def test_an_output_has_checks_of_its_own_beside_bad_and_repeated_rows(stream: FileStream, pg: PostgresTarget) -> None:
    memory = MemorySink(id="memory:odd")
    odd = Output(memory, name="odd", where="id % 2 = 1", checks={"few": "count(*) <= 3"})
    quality = Quality(
        expect={"known": "id <> 1003"}, checks=BALANCED, quarantine=bad(pg), on_broken="quarantine", max_bad=1
    )
    dedupe = Dedupe(key="id", within="1 day", store=pg.sink().table("orders_seen"))
    write = exactly_once(pg.sink(), odd, quality=quality, dedupe=dedupe, transform=booked)
    # Rows 1001 to 1007 have four odd ones, of which an expectation takes one; 1009 to 1015 have four. No row of those
    # is known afterwards, so it is no repetition when it comes again.
    stream.receive(range(1001, 1008), range(1009, 1016), range(1005, 1011)).run(write)
    assert pg.ids() == [1001, 1002, 1004, 1005, 1006, 1007, 1008, 1009, 1010]
    assert sorted(row["id"] for row in memory.rows()) == [1001, 1005, 1007, 1009]
    assert [(number, [why["rule"] for why in reasons]) for number, reasons in aside(pg)] == [
        (1003, ["known"]),
        *((number, ["few"]) for number in range(1009, 1016)),
    ]
    assert pg.says("select count(*) from orders_seen") == [(9,)]


def test_a_check_sees_the_types_that_the_rows_have_also_those_that_arrow_lacks(
    stream: FileStream, pg: PostgresTarget
) -> None:
    """In memory a text without its collation would be two words."""
    write = exactly_once(
        pg.sink(),
        quality=Quality(checks={"one word": "count(DISTINCT word) = 1", "two rows": "count(*) = 2"}),
        transform=lambda df: df.selectExpr("id", "word COLLATE UNICODE_CI AS word"),
    )
    stream.drop(pa.table({"id": [1, 2], "word": ["w", "W"]}))
    stream.run(write)
    assert pg.ids() == [1, 2]


WRONG = {
    "one row": ("debit = credit", "Quality(expect={"),
    "a number": ("sum(debit)", 'compare it: "sum(debit) = 0"'),
    "chance": ("sum(debit) > rand()", "another value in each run"),
    "chance for each row": ("count_if(uuid() = '') = 0", "the rows of an epoch together"),
    "no column": ("sum(debt) = 0", "name one that they have"),
    "no SQL": ("sum(debit", "correct it"),
    "a window": ("sum(debit) OVER () = 0", "an aggregate over all rows"),
    "others": ("sum(debit) = (SELECT max(id) FROM range(3))", "it reads or gives other rows"),
    "rows": ("explode(array(count(*) > 0, sum(debit) = sum(credit)))", "it reads or gives other rows"),
    "two": ("count(*) = 1; SELECT 1", "correct it"),
}


def test_a_check_that_cannot_be_computed_says_so_where_the_rows_are_and_in_the_server(
    stream: FileStream, pg: PostgresTarget
) -> None:
    sql = "sum(debit) / sum(credit) = 1"
    seen = stream.receive([0]).fail(exactly_once(pg.sink(), quality=Quality(checks={"ratio": sql}), transform=booked))
    assert '[ONCE-E121] Check "ratio" of "orders"' in seen, seen[:2000]
    assert "DIVIDE_BY_ZERO" in seen
    seen = stream.fail(exactly_once(pg.sink(check_table={"ratio": sql}), transform=booked))
    assert "Likely cause: division by zero" in seen, seen[:2000]
    safe = {"ratio": "coalesce(try_divide(sum(debit), sum(credit)), 1) = 1"}
    stream.run(exactly_once(pg.sink(), quality=Quality(checks=safe), transform=booked))
    assert pg.ids() == [0]


def test_what_is_no_condition_over_rows_together_is_refused_before_anything_is_written(stream: FileStream) -> None:
    sinks = {case: MemorySink(id=f"memory:{case}") for case in WRONG}
    wrapped = {
        case: exactly_once(sinks[case], quality=Quality(checks={"it": sql}), name=case, transform=booked)
        for case, (sql, _) in WRONG.items()
    }
    assert "will be refused" in str(wrapped["one row"].explain(stream.read()))
    said = each(stream.receive(range(3)), wrapped)
    assert {case: one for case, one in said.items() if f'[ONCE-E121] Check "it" of "{case}"' not in one} == {}
    assert {case: said[case] for case, (_, way) in WRONG.items() if way not in said[case]} == {}
    assert {case: sink.rows() for case, sink in sinks.items() if sink.rows()} == {}


# ---- of a table, in the transaction


def moved(df: DataFrame) -> DataFrame:
    """Two rows of an amount each, which sum to nothing, but for id 7: half of it is lost."""
    legs = "explode(array(named_struct('account', 'a', 'amount', id), named_struct('account', 'b', 'amount', %s)))"
    return df.selectExpr("id", (legs % "IF(id = 7, 0, -id)") + " AS leg").selectExpr("id", "leg.*")


def test_a_table_is_checked_in_the_transaction_that_changes_it(stream: FileStream, pg: PostgresTarget) -> None:
    def write(check: str) -> Any:
        bank = pg.sink(check_table={"balanced": check})
        copy = bank.table("copies", check_table={"alike": "count(*) = (SELECT count(*) FROM orders)"})
        return exactly_once(bank, copy, transform=moved)

    assert "balanced: sum(amount) = 0" in str(write("sum(amount) = 0").explain())
    seen = stream.receive(range(5), range(5, 10)).fail(write("sum(amount) = 0"))
    assert '[ONCE-E531] Epoch 2 of "orders" breaks check "balanced" of table orders' in seen, seen[:2000]
    assert "sum(amount) = 0 is not true (sum(amount): 7)" in seen
    assert pg.says("select max(id), count(*) from orders") == [(4, 10)]
    assert pg.says("select max(id), count(*) from copies") == [(4, 10)]
    seen = stream.fail(write("sum(amont) = 0"))
    assert "PostgresSink cannot work with check_table={'balanced': 'sum(amont) = 0'}" in seen, seen[:2000]
    assert "must appear in the GROUP BY clause or be used in an aggregate function" in stream.fail(write("amount > 0"))
    stream.run(write("abs(sum(amount)) % 10 = 7 OR sum(amount) = 0"))
    assert pg.says("select max(id), count(*) from copies") == [(9, 20)]
    pg.says("delete from copies where id = 1")
    seen = stream.receive(range(10, 12)).fail(write("true"))
    assert 'check "alike" of table copies' in seen, seen[:2000]
    assert pg.says("select max(id) from orders") == [(9,)]


def test_a_sink_that_may_refuse_an_epoch_commits_first(pg: PostgresTarget, delta: DeltaTarget) -> None:
    bank = pg.sink(check_table={"balanced": "sum(amount) = 0"})
    with pytest.raises(Exception, match="ONCE-E110") as refused:
        exactly_once(delta.sink(), bank)
    assert "name postgres:orders first" in str(refused.value)
    exactly_once(bank, delta.sink())
    exactly_once(pg.sink().table("copies"), bank, delta.sink())


def test_an_output_of_a_route_keeps_its_checks_and_explain_names_them(stream: FileStream) -> None:
    few = Output(MemorySink(id="memory:b"), name="few", where="id > 0", checks={"few": "count(*) < 2"})
    write = exactly_once(Route("IF(id % 2 = 0, 'even', 'odd')", {"even": MemorySink(id="memory:a"), "odd": few}))
    assert str(write.explain()).count("no epoch of rows that break few (count(*) < 2) reaches it") == 2
    assert 'breaks check "few" of output "few"' in stream.receive(range(5)).fail(write)


def test_rows_of_a_subquery_or_a_generator_may_be_checked(stream: FileStream, pg: PostgresTarget) -> None:
    def shaped(df: DataFrame) -> DataFrame:
        return df.selectExpr("id", "explode(array(1, 2)) AS n").where("n <= (SELECT 2)")

    stream.receive(range(3)).run(exactly_once(pg.sink(), quality=Quality(checks={"n": "sum(n) = 9"}), transform=shaped))
    assert pg.says("select count(*) from orders") == [(6,)]


def test_arguments_that_cannot_work_are_refused_when_they_are_given(pg: PostgresTarget) -> None:
    for said, words in (
        ({"checks": "sum(debit) = 0"}, "Quality(checks="),
        ({"checks": BALANCED, "on_broken": "quarantine"}, "add quarantine="),
        ({"checks": {'a "name"': "true"}}, "names of up to 63 characters"),
        ({"checks": {"it": 3}}, "is no condition in SQL by its name"),
    ):
        with pytest.raises(Exception, match="ONCE-E110") as refused:
            Quality(**said)  # type: ignore[arg-type]
        assert words in str(refused.value)
    with pytest.raises(Exception, match="ONCE-E110"):
        Output(pg.sink(), name="some", checks=["sum(debit) = 0"])  # type: ignore[arg-type]
    with pytest.raises(Exception, match="ONCE-E110"):
        pg.sink(check_table={1: "true"})


# ---- killed

ONCE_MORE = f"{Point.STAGE_AFTER}:killgroup:2"
"""Once the rows of an epoch that breaks the check are staged as bad ones."""

STEPS = [f"{point}:killgroup" for point in (Point.STAGE_AFTER, Point.PREPARE_SENT, Point.COMMIT_SENT)]
STEPS += [ONCE_MORE, f"{Point.COMMIT_AFTER}:killgroup:2", f"{Point.COMMIT_AFTER}:killgroup"]
STEPS += [f"{Point.RECORD_BEFORE}:killgroup", f"{Point.RETURN_BEFORE}:killgroup"]
EPOCHS, ROWS = 20, 50
"""The third of each three files has a row without its credit. As there are eight steps, each meets such an epoch."""


def fill(inbox: Path, number: int) -> None:
    inbox.mkdir(exist_ok=True)
    hidden, ids = inbox / f"_part-{number:04d}", range(number * ROWS, (number + 1) * ROWS)
    pq.write_table(pa.table({"id": [*ids], "word": ["w"] * ROWS}), hidden)
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    hidden.rename(inbox / f"part-{number:04d}.parquet")


@pytest.mark.slow
@pytest.mark.kill
def test_a_bank_adds_up_in_every_look_whatever_is_killed_and_what_does_not_is_set_aside_whole(
    any_postgres: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    pg, table = PostgresTarget(any_postgres.database("bank")), DeltaTarget(str(tmp_path / "table"))
    inbox, broken = tmp_path / "in", f"id % {3 * ROWS} = {3 * ROWS - 1}"
    job = Job(
        "orders",
        "postgres",
        pg.dsn,
        str(inbox),
        str(tmp_path / "ck"),
        str(tmp_path / "ledger.db"),
        also=(("delta", table.path),),
        unbalanced=broken,
    )
    struck = dict.fromkeys(STEPS, 0)
    fill(inbox, 0)
    warm_drivers.finish(job)
    for number in range(1, EPOCHS):
        fill(inbox, number)
        step = STEPS[number % len(STEPS)]
        if step == ONCE_MORE and number % 3 != 2:
            continue
        struck[step] += was_killed(warm_drivers.start(job, fault=step))
        assert pg.says(f"select sum(debit) - sum(credit) from {TABLE}") == [(0,)]
        assert sum(debit - credit for debit, credit in table.rows("debit", "credit")) == 0
    warm_drivers.finish(job)
    assert all(struck.values()), struck
    good = [row for number in range(EPOCHS) if number % 3 != 2 for row in range(number * ROWS, (number + 1) * ROWS)]
    assert [row for (row,) in pg.says(f"select id from {TABLE} order by id")] == good
    assert table.ids() == good
    apart = pg.says(f"select CAST(row AS json)->>'id', reasons from {TABLE}_bad")
    assert sorted(int(row) for row, _ in apart) == sorted({*range(EPOCHS * ROWS)} - {*good})
    assert {reasons for _, reasons in apart} == {'[{"by":"check","rule":"balanced"}]'}
