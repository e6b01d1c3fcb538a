"""Windows of recorded epochs, computed again from the source: the same results and state, or the epoch that differs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from integration.printed import command, killed, run
from integration.targets import PostgresTarget
from integration.test_panes_audited import BATCHES, EARLY, NOTED, WIDE, shaped
from integration.test_panes_kept import NOON, Events, panes, scores
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from onceonly import EventTime, exactly_once, replay
from onceonly.audit.certificate import Certificate, RecomputedRange
from onceonly.cli.app import app
from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly.runtime import operator
from onceonly.windows import AtWatermark, Sessions, drain
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def events(spark: SparkSession, tmp_path: Any) -> Events:
    return Events(spark, tmp_path, "scores")


def again(events: Events, pg: PostgresTarget, said: Any, epochs: range | None = None, **more: Any) -> Certificate:
    given = {"job": lambda _: events.read(), **more}
    return replay.recompute("scores", epochs, windows=said, ledger=pg.dsn, spark=events.spark, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        {"accumulation": "retracting", "window": Sessions("30 seconds")},
        {"accumulation": "discarding"},
    ],
    ids=["sessions that take back", "what came since"],
)
def test_every_epoch_of_windows_is_computed_again_with_its_results_and_its_state(
    events: Events, pg: PostgresTarget, said: dict[str, Any]
) -> None:
    late = PostgresSink(pg.dsn, table="late")
    made = panes(key=["team", "part", "day"], aggregates=WIDE, trigger=EARLY, late_rows=late, **said)
    events.come(*BATCHES, [("a", 1, 3), ("d", 2, 300)]).run(
        exactly_once(pg.sink(), event_time=NOTED, windows=made, transform=shaped)
    )
    found = again(events, pg, made, transform=shaped)
    assert [(span.first, span.last, span.answer) for span in found.spans] == [(1, 5, RecomputedRange.EQUAL)]
    assert found.spans[0].recorded.rows > 20
    assert again(events, pg, made, range(4, 6), transform=shaped).equal


@pytest.mark.slow
def test_other_code_differs_from_the_epoch_on_in_which_it_counts_otherwise(
    events: Events, pg: PostgresTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = panes(trigger=EARLY)
    events.come(*BATCHES).run(exactly_once(pg.sink(), event_time=NOTED, windows=made))

    def other(_: SparkSession) -> DataFrame:
        return events.read().where("value <> 7")

    rows = pg.sink()
    sinks = [rows, rows.window_store(separate=True)]
    found = again(events, pg, made, job=other, sinks=sinks)
    for sink in sinks:
        sink.close()
    assert [(span.first, span.last, span.answer) for span in found.spans] == [
        (1, 2, RecomputedRange.EQUAL),
        (3, 3, RecomputedRange.DIFFERS),
        (4, 4, RecomputedRange.EQUAL),
    ]
    minute = int(NOON.timestamp() * 1000) + 60_000
    assert found.spans[1].windows == (f'the window of key ["b"] from {minute} to {minute + 60_000} in epoch 3',)
    (tmp_path / "panes_other_jobs.py").write_text(CODE.format(inbox=str(events.inbox)))
    monkeypatch.syspath_prepend(str(tmp_path))
    code = ["--with", "panes_other_jobs:other", "--windows", "panes_other_jobs:PANES"]
    said = CliRunner().invoke(app, ["replay", "check", "1..4", "--query", "scores", "--ledger", pg.dsn, *code]).stdout
    assert f'the window of key ["b"] from {minute} to {minute + 60_000} in epoch 2' in " ".join(said.split())
    assert [(span.answer, "--windows" in span.why) for span in again(events, pg, None).spans] == [
        (RecomputedRange.CANNOT, True)
    ]
    with pytest.raises(OnceOnlyError, match="was written by other windows") as refused:
        again(events, pg, panes(trigger=AtWatermark()))
    assert refused.value.code == "E110"


@pytest.mark.slow
def test_windows_that_were_given_up_begin_anew(events: Events, pg: PostgresTarget) -> None:
    made = panes(trigger=EARLY)

    def write() -> Any:
        return exactly_once(pg.sink(), event_time=NOTED, windows=made)

    events.come(*BATCHES[:2]).run(write())
    sinks = write().arguments.sinks
    with closing(SqlLedger(pg.dsn)) as ledger:
        operator.reset_panes(sinks, ledger, "scores", Adoption(AdoptionKind.RESET_PANES, last=2))
    for sink in sinks:
        sink.close()
    events.come(*BATCHES[2:]).run(write())
    assert again(events, pg, made).equal
    assert again(events, pg, made, range(5, 6)).equal


CODE = """
from onceonly.windows import AtCount, AtWatermark, Sum, Tumbling, Windows

PANES = Windows(key="team", aggregates={{"total": Sum("value")}}, time="at", window=Tumbling("1 minute"),
              trigger=AtWatermark(early=AtCount(1), late=AtCount(1)))

def stream(spark):
    read = spark.readStream.schema("team string, value bigint, at timestamp").option("maxFilesPerTrigger", 1)
    return read.parquet({inbox!r})

def other(spark):
    return stream(spark).where("value <> 5")
"""

HARM = {
    "a row was changed": "update orders_state set body = replace(body, '5', '6') where key = '[\"b\"]'",
    "a row was deleted": "delete from orders_state where key = '[\"b\"]'",
    "a row was added": "insert into orders_state select '[\"x\"]', start, stop, body, wake_clock, wake_time, bucket, "
    "_epoch from orders_state where key = '[\"b\"]'",
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARM)
def test_state_that_others_changed_is_computed_again_and_put_right_wherever_that_is_killed(
    events: Events, pg: PostgresTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    (tmp_path / "jobs.py").write_text(CODE.format(inbox=str(events.inbox)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = panes(trigger=EARLY)

    def write() -> Any:
        return exactly_once(pg.sink(), event_time=NOTED, windows=made)

    events.come(*BATCHES[:2]).run(write())
    state = pg.says("select key, start, stop, body, wake_clock, wake_time from orders_state order by 1, 2")
    pg.says(f"{HARM[harm]} returning 1")
    said = run(["onceonly", "audit", "scores", "--ledger", pg.dsn, "--deep"], code=1)
    assert "A176" in said
    printed = command(said.replace("\n", " ").replace("; or restore", "\n"), "recover rebuild-windows")
    rebuild = [word.replace("MODULE:FUNCTION", "jobs:stream").replace("MODULE:NAME", "jobs:PANES") for word in printed]
    other = [word.replace("jobs:stream", "jobs:other") for word in rebuild]
    assert "computes" in run(rebuild, code=4)
    with pytest.raises(AssertionError, match="ONCE-E226"):
        run(other, "--yes")
    killed(rebuild, Point.PREPARE_AFTER)
    run(rebuild, "--yes")
    assert pg.says("select key, start, stop, body, wake_clock, wake_time from orders_state order by 1, 2") == state
    assert "nothing was written" in run(rebuild, "--yes")
    events.come(*BATCHES[2:]).run(write())
    audits = ["onceonly", "audit", "scores", "--ledger", pg.dsn]
    assert run(audits).startswith("EXACTLY ONCE")
    deep = run([*audits, "--deep"])
    assert not {"A175", "A176", "A177", "A178"} & set(deep.split())
    assert again(events, pg, made).equal
    assert len(scores(pg)) > 5


@pytest.mark.slow
def test_a_row_of_state_that_says_an_epoch_which_never_was_is_written_anew_as_the_refusal_says(
    events: Events, pg: PostgresTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.py").write_text(CODE.format(inbox=str(events.inbox)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write() -> Any:
        return exactly_once(pg.sink(), event_time=NOTED, windows=panes(trigger=EARLY))

    events.come(*BATCHES[:2]).run(write())
    pg.says("update orders_state set _epoch = 99 returning 1")
    said = events.come(*BATCHES[2:]).fail(write())
    assert "[ONCE-E226]" in said
    printed = command(said, "recover rebuild-windows")
    rebuild = [word.replace("MODULE:FUNCTION", "jobs:stream").replace("MODULE:NAME", "jobs:PANES") for word in printed]
    # The table of state has the epoch then, that of results has not.
    killed(rebuild, Point.COMMIT_SENT, 2)
    assert pg.says("select max(_epoch) from orders_state") == [(3,)]
    run(rebuild, "--yes")
    events.run(write())
    assert run(["onceonly", "audit", "scores", "--ledger", pg.dsn]).startswith("EXACTLY ONCE")
    assert again(events, pg, panes(trigger=EARLY)).equal


@pytest.mark.slow
def test_where_no_window_is_open_a_rebuild_writes_nothing_and_takes_away_what_is_nobodys(
    events: Events, pg: PostgresTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "panes_again_jobs.py").write_text(CODE.format(inbox=str(events.inbox)))
    monkeypatch.syspath_prepend(str(tmp_path))
    events.come(BATCHES[0]).run(exactly_once(pg.sink(), event_time=NOTED, windows=panes(trigger=EARLY)))
    last = exactly_once(pg.sink(), event_time=EventTime("at", callback=drain), windows=panes(trigger=EARLY))
    events.come([]).run(last)
    assert pg.says("select count(*) from orders_state") == [(0,)]
    code = ["--with", "panes_again_jobs:stream", "--windows", "panes_again_jobs:PANES"]
    typed = ["recover", "rebuild-windows", "--query", "scores", "--ledger", pg.dsn, *code, "--yes"]

    def said() -> str:
        done = CliRunner().invoke(app, typed)
        assert done.exit_code == 0, done.output
        return done.output

    assert "nothing was written" in said()
    pg.says("insert into orders_state values ('[\"x\"]', 0, 60000, '{}', null, 60000, 1, 2) returning 1")
    assert "0 windows written, 1 taken away" in said().replace("\n", " ")
    assert pg.says("select count(*) from orders_state") == [(0,)]
    assert "nothing was written" in said()
    assert CliRunner().invoke(app, ["audit", "scores", "--ledger", pg.dsn]).stdout.startswith("EXACTLY ONCE")
