"""Recorded epochs run again into a target of their own: exactly once, the same rows, and beside the running query."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from integration.printed import command
from integration.recorded import BATCHES, ROWS, Inbox, Kept, Recorded, counted, timed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from typer.testing import CliRunner

from onceonly import faults, replay
from onceonly.audit import Verdict, gather, judge
from onceonly.audit.page import commands_in
from onceonly.cli.app import app
from onceonly.errors import OnceOnlyError
from onceonly.faults import InjectedFault, Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import Keep, PostgresSink

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Six epochs of a file source, run once."""
    return Kept(spark, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def orders(kept: Kept) -> Recorded:
    """The six epochs, as they were left."""
    return kept.put_back().orders


@pytest.fixture
def inbox(kept: Kept) -> Inbox:
    """Their files."""
    return kept.put_back().inbox


def again(orders: Recorded, into: Any, epochs: range | None = None, **more: Any) -> replay.Rerun:
    given = {"job": orders.job, **more}
    return replay.rerun("orders", epochs, into=into, ledger=orders.ledger, spark=orders.spark, **given)


def without_12(orders: Recorded) -> Callable[[SparkSession], DataFrame]:
    """Other code: one row is dropped."""
    return lambda spark: orders.job(spark).where("id <> 12")


def audited(orders: Recorded, sink: Any, name: str = "orders~v2") -> Verdict:
    with closing(SqlLedger(orders.ledger)) as ledger, closing(sink):
        return judge(gather(ledger, name, [sink])).verdict


@pytest.mark.parametrize(
    "kind", ["postgres", *(pytest.param(one, marks=pytest.mark.slow) for one in ("delta", "memory"))]
)
def test_a_rerun_holds_the_same_rows_in_a_pipeline_of_its_own(
    orders: Recorded, tmp_path: Path, kind: str, pg: Any
) -> None:
    made: Mapping[str, Callable[[], Any]] = {
        "postgres": lambda: PostgresSink(pg.dsn, table="again"),
        "delta": lambda: DeltaSink(str(tmp_path / "again")),
        "memory": lambda: MemorySink(id="memory:again"),
    }
    into = made[kind]()
    found = again(orders, into, range(2, 6))
    assert (found.name, found.written, found.same, found.rows) == ("orders~v2", 4, 4, 4 * ROWS)
    assert [ran.text for _, ran in found.held] == [f"epoch {number} of orders" for number in range(2, 6)]
    assert found.diff(orders.spark, orders.sink) is None
    assert audited(orders, into) is Verdict.EXACTLY_ONCE
    assert orders.run().records[-1].epoch.number == BATCHES  # the query was not fenced out


@pytest.mark.slow
@pytest.mark.parametrize("shape", [timed, counted])
def test_clock_and_state_are_those_of_the_original(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, shape: Callable[[DataFrame], DataFrame]
) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, shape).run()
    last = orders.records[-1].epoch.number
    found = again(orders, MemorySink(id="memory:again"), range(3, last + 1))
    assert (found.written, found.different) == (last - 2, ())


def test_epochs_can_be_written_as_one(orders: Recorded) -> None:
    found = again(orders, MemorySink(id="memory:again"), coalesce=4)
    assert [ran.text for _, ran in found.held] == ["epochs 1..4 of orders", "epochs 5..6 of orders"]
    assert (found.same, found.rows) == (2, BATCHES * ROWS)


@pytest.mark.slow
def test_rows_that_other_code_gives_are_shown(orders: Recorded, pg: Any) -> None:
    found = again(orders, PostgresSink(pg.dsn, table="again"), job=without_12(orders))
    assert [epoch.number for epoch, _ in found.different] == [3]
    shown = found.diff(orders.spark, orders.sink)
    assert shown is not None
    assert (shown.less, shown.more, [(sign, row.id) for sign, row in shown.examples]) == (1, 0, [("-", 12)])


@pytest.mark.slow
@pytest.mark.parametrize("point", [Point.COMMIT_AFTER, Point.DISCOVER_AFTER, Point.COMMIT_BEFORE, Point.RETURN_BEFORE])
@pytest.mark.parametrize("shape", [lambda df: df, counted], ids=["stateless", "stateful"])
def test_a_rerun_that_was_cut_off_goes_on_where_its_target_stands(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, point: Point, shape: Callable[[DataFrame], DataFrame]
) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, shape).run()
    last = orders.records[-1].epoch.number
    into = MemorySink(id="memory:again")
    faults.arm(point, "raise", 3)
    with pytest.raises(InjectedFault):
        again(orders, into)
    held = len(list(into.history()))
    assert 0 < held < last
    found = again(orders, into)
    assert (found.written, len(found.held), found.different) == (last - held, last, ())
    assert again(orders, into).written == 0
    assert audited(orders, into) is Verdict.EXACTLY_ONCE


@pytest.mark.slow
def test_a_target_of_another_rerun_is_refused(orders: Recorded) -> None:
    into = MemorySink(id="memory:again")
    again(orders, into, range(2, 4))
    for epochs in (range(1, 5), range(2, 3)):
        with pytest.raises(OnceOnlyError, match="ONCE-E239"):
            again(orders, into, epochs)
    assert again(orders, into, range(2, 6)).written == 2
    with pytest.raises(OnceOnlyError, match='"orders~v2" has gone to ') as refused:
        again(orders, MemorySink(id="memory:other"))
    printed = command(str(refused.value), "replay run")
    assert printed[printed.index("--into") + 1] == into.address


def test_the_targets_of_the_query_are_refused(orders: Recorded) -> None:
    with pytest.raises(OnceOnlyError, match="cannot have its name"):
        again(orders, MemorySink(id="memory:again"), name="orders")
    for own in (orders.sink, MemorySink(id="memory:again", store=orders.sink.store)):
        with pytest.raises(OnceOnlyError, match="one of the pipeline's own sinks"):
            again(orders, own)
    with pytest.raises(OnceOnlyError, match="two columns are called id"):
        again(orders, MemorySink(id="memory:again"), transform=lambda df: df.select("id", "id"))
    assert len(orders.sink.rows()) == BATCHES * ROWS


JOB = """
def stream(spark):
    return spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet({inbox!r}).where("id <> 12")
"""


def onceonly(home: Path, *words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    """Type a command in a directory, where it may be killed at a fault point."""
    return subprocess.run(
        [Path(sys.executable).parent / "onceonly", *words],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=home,
        env=os.environ | {"ONCEONLY_FAULT": fault},
        check=False,
    )


@pytest.mark.slow
def test_the_command_prints_its_plan_goes_on_after_a_kill_and_shows_what_differs(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, pg: Any
) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, sink=pg.sink()).run()
    (tmp_path / "jobs.py").write_text(JOB.format(inbox=str(inbox.home)))

    typed = partial(onceonly, tmp_path)
    asked = ["--query", "orders", "--ledger", orders.ledger, "--with", "jobs:stream", "--diff"]
    planned = typed("replay", "run", "1..6", *asked, "--into", f"delta:{tmp_path / 'again'}")
    assert planned.returncode == 4
    assert "epochs 1..6 of orders (6 epochs, 30 rows)" in planned.stdout
    printed = command(planned.stderr, "--yes")[1:]
    assert typed(*printed, fault="commit.after:kill:3").returncode == -signal.SIGKILL
    done = typed(*printed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "orders~v2 holds 6 epochs, 29 rows; 3 written now" in done.stdout
    assert "- 1 row, + 0 rows" in done.stdout


@pytest.mark.slow
def test_rows_that_somebody_took_are_computed_again_by_what_the_audit_prints(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, pg: Any
) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, sink=pg.sink()).run()
    (tmp_path / "jobs.py").write_text(JOB.format(inbox=str(inbox.home)))
    whole = pg.says("SELECT id FROM orders WHERE _epoch = 3 ORDER BY id")
    pg.says("DELETE FROM orders WHERE _epoch = 3 RETURNING id")
    typed = partial(onceonly, tmp_path)
    told = typed("audit", "orders", "--ledger", orders.ledger, "-o", "json")
    [remedy] = [one["remedy"] for one in json.loads(told.stdout)["findings"] if one["code"] == "A121"]
    [printed] = [one for one in commands_in(remedy) if "replay run" in one]
    again_into = shlex.quote(PostgresSink(pg.dsn, table="again").address)
    printed = printed.replace("KIND:TARGET", again_into).replace("MODULE:FUNCTION", "jobs:stream")
    done = typed(*shlex.split(printed)[1:], "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row for row in pg.says("SELECT id FROM again ORDER BY id") if row[0] != 12] == [
        row for row in whole if row[0] != 12
    ]


@pytest.mark.slow
@pytest.mark.kafka
def test_a_topic_is_run_again_into_a_topic_of_its_own_which_readers_move_to(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, any_kafka: Any
) -> None:
    topics = any_kafka.topic("orders"), any_kafka.topic("again")

    def sink(number: int) -> KafkaSink:
        return KafkaSink(any_kafka.servers, topics[number])

    orders = Recorded(spark, tmp_path, inbox.source, record, sink(0)).run()
    orders.sink.close()
    (tmp_path / "jobs.py").write_text(
        JOB.format(inbox=str(inbox.home)) + "\n\ndef keyed(spark):\n    return stream(spark)"
        ".selectExpr('cast(id AS string) AS key', 'cast(id AS string) AS value')\n"
    )
    typed = partial(onceonly, tmp_path)
    asked = ["--query", "orders", "--ledger", orders.ledger, "--with", "jobs:keyed", "--diff"]
    planned = typed("replay", "run", "1..6", *asked, "--into", sink(1).address)
    printed = command(planned.stderr, "--yes")[1:]
    assert typed(*printed, fault="commit.after:kill:3").returncode == -signal.SIGKILL
    done = typed(*printed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "- 1 row, + 0 rows" in done.stdout
    assert audited(orders, sink(1)) is Verdict.EXACTLY_ONCE
    told = {"source": sink(1), "sink": sink(0), "ledger": orders.ledger, "spark": spark}
    with pytest.raises(OnceOnlyError, match=f"move readers to {sink(1).address}") as refused:
        replay.publish("orders~v2", over="orders", **told)
    assert refused.value.code == "E242"


def record(df: DataFrame) -> DataFrame:
    """The rows as a topic takes them."""
    return df.selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")


SHAPED = """
def raw(spark):
    return spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet({inbox!r})


def shaped(rows):
    return rows.where("id <> 12")
"""


@pytest.mark.slow
def test_commands_take_before_and_write_several_epochs_as_one(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, pg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shaping.py").write_text(SHAPED.format(inbox=str(inbox.home)))
    orders = Recorded(spark, tmp_path, inbox.source, lambda df: df.where("id <> 12"), pg.sink()).run()
    asked = ["--ledger", orders.ledger, "--with", "shaping:raw"]

    def typed(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, *asked])
        assert done.exit_code in (0, 1), done.output
        return done.output

    recompute = ("replay", "check", f"1..{BATCHES}", "--query", "orders")
    assert f"epochs 1..{BATCHES}: 29 rows" in typed(*recompute, "--transform", "shaping:shaped")
    assert "DIFFERS" in typed(*recompute)
    rerun = ("replay", "run", f"1..{BATCHES}", "--query", "orders", "--into", f"delta:{tmp_path / 'again'}", "--yes")
    done = typed(*rerun, "--transform", "shaping:shaped", "--coalesce", "4")
    assert "4 epochs at a time" in done
    assert "orders~v2 holds 2 epochs, 29 rows; 2 written now\n2 have the rows on record" in done


@pytest.mark.slow
def test_what_is_printed_for_a_target_of_another_rerun_is_obeyed(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, pg: Any
) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, sink=pg.sink()).run()
    (tmp_path / "jobs.py").write_text(JOB.format(inbox=str(inbox.home)))
    taken, free = f"delta:{tmp_path / 'again'}", f"delta:{tmp_path / 'other'}"
    again(orders, DeltaSink(str(tmp_path / "again")), range(2, 4))

    typed = partial(onceonly, tmp_path)
    where = ["--query", "orders", "--ledger", orders.ledger]
    asked = ["replay", "run", "1..6", *where, "--with", "jobs:stream", "--yes"]
    said = typed(*asked, "--into", taken)
    assert said.returncode == 2
    assert "[ONCE-E239]" in said.stderr
    listed = typed(*command(said.stderr, "epochs list")[1:])
    assert listed.returncode == 0, listed.stderr
    assert len(re.findall("^[1-9]", listed.stdout, re.MULTILINE)) == 2
    options = re.search(r"(--as NAME --into KIND:TARGET)", said.stderr)
    assert options
    filled = shlex.split(options[1].replace("NAME", "orders~v3").replace("KIND:TARGET", free))
    done = typed(*asked, *filled)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "orders~v3 holds 6 epochs, 29 rows; 6 written now" in done.stdout
    assert audited(orders, DeltaSink(str(tmp_path / "other")), "orders~v3") is Verdict.EXACTLY_ONCE


@pytest.mark.slow
def test_sixty_epochs_run_again_by_the_same_code_differ_in_no_row(spark: SparkSession, tmp_path: Path, pg: Any) -> None:
    inbox = Inbox(tmp_path)
    inbox.put(60)
    orders = Recorded(spark, tmp_path, inbox.source, sink=pg.sink()).run()
    found = again(orders, DeltaSink(str(tmp_path / "again")))
    assert (found.written, found.same, found.different, found.rows) == (60, 60, (), 60 * ROWS)
    assert found.diff(spark, orders.sink) is None
    ids = [row.id for row in spark.read.format("delta").load(str(tmp_path / "again")).collect()]
    assert sorted(ids) == pg.ids() == list(range(60 * ROWS))


KILLS = 10
STRUCK = (
    Point.INSTALL_SENT,
    Point.INTEND_AFTER,
    Point.PREPARE_SENT,
    Point.PREPARE_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.RECORD_AFTER,
    Point.RETURN_BEFORE,
)
"""Points that every start passes which has an epoch to write; at the second pass of one an epoch is written."""


@pytest.mark.slow
def test_a_rerun_that_is_killed_ten_times_at_drawn_points_holds_the_rows_of_the_pipeline(
    spark: SparkSession, tmp_path: Path, pg: Any
) -> None:
    inbox = Inbox(tmp_path)
    epochs = 2 * KILLS + 2  # a start writes two at most before it is killed
    inbox.put(epochs)
    orders = Recorded(spark, tmp_path, inbox.source, sink=pg.sink()).run()
    (tmp_path / "jobs.py").write_text(JOB.format(inbox=str(inbox.home)).replace('.where("id <> 12")', ""))
    into = str(tmp_path / "again")
    asked = ["--query", "orders", "--ledger", orders.ledger, "--with", "jobs:stream", "--into", f"delta:{into}"]
    rerun = ["replay", "run", f"1..{epochs}", *asked, "--yes"]
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(KILLS):
        fault = f"{chance.choice(STRUCK)}:kill:{chance.randint(1, 2)}"
        struck = onceonly(tmp_path, *rerun, fault=fault)
        assert struck.returncode == -signal.SIGKILL, f"{fault}: {struck.stdout}{struck.stderr}"
    done = onceonly(tmp_path, *rerun)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"orders~v2 holds {epochs} epochs, {len(pg.ids())} rows" in done.stdout
    ids = [row.id for row in spark.read.format("delta").load(into).collect()]
    assert sorted(ids) == pg.ids() == list(range(epochs * ROWS))
    assert audited(orders, DeltaSink(into)) is Verdict.EXACTLY_ONCE


def keyed(df: DataFrame) -> DataFrame:
    """Ten keys, under each of which the newest id stands in the end."""
    return df.select((f.col("id") % 10).alias("key"), "id")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "delta"])
def test_what_is_replaced_by_key_is_compared_as_the_last_epoch_left_it(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, kind: str, pg: Any
) -> None:
    def table(name: str) -> Any:
        if kind == "postgres":
            return PostgresSink(pg.dsn, table=name, key="key", keep=Keep(history="all"))
        return DeltaSink(str(tmp_path / name), key="key")

    orders = Recorded(spark, tmp_path, inbox.source, keyed, table("orders")).run()
    orders.sink.close()
    without_22 = lambda session: orders.job(session).where("id <> 22")  # noqa: E731
    found = again(orders, table("again"), job=without_22)
    inbox.put(1)
    replace(orders, sink=table("orders")).run()  # the query goes on; it is compared as it stood then

    told = found.diff(spark, table("orders"))

    assert told is not None
    assert [(sign, row.key, row.id) for sign, row in told.examples] == [("-", 2, 22), ("+", 2, 12)]
    assert (told.less, told.more) == (1, 1)
    part = again(orders, table("part"), range(4, 6), job=without_22, name="orders~part")
    with pytest.raises(OnceOnlyError, match="replaced by key") as refused:
        part.diff(spark, table("orders"))
    assert refused.value.code == "E110"
