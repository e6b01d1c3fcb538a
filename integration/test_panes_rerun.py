"""Recorded epochs stepped through windows again, the same or others, into a table of their own: exactly once."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from integration.printed import command, killed, run
from integration.targets import DeltaTarget, PostgresTarget
from integration.test_panes_audited import BATCHES, EARLY, NOTED, WIDE, shaped
from integration.test_panes_kept import NOON, Event, Events, panes
from integration.test_refresh import FLOW, refresh
from pyspark.sql import SparkSession
from tests.panes.oracle import Epoch, Fixed, Oracle, Row, Rules
from typer.testing import CliRunner

from onceonly import Recovery, exactly_once, faults, replay
from onceonly import windows as p
from onceonly.audit import Verdict, audit
from onceonly.cli.app import app
from onceonly.errors import OnceOnlyError
from onceonly.faults import InjectedFault, Point
from onceonly.runtime import operator
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

STATE = "select key, start, stop, body, wake_clock, wake_time from {}_state where _epoch > {} order by 1, 2"


@pytest.fixture
def events(spark: SparkSession, tmp_path: Any) -> Events:
    return Events(spark, tmp_path, "scores")


def into(pg: PostgresTarget) -> PostgresSink:
    return PostgresSink(pg.dsn, table="again")


def again(events: Events, pg: PostgresTarget, said: Any, epochs: range | None = None, **more: Any) -> replay.Rerun:
    given = {"job": lambda _: events.read(), "into": into(pg), **more}
    return replay.rerun("scores", epochs, windows=said, ledger=pg.dsn, spark=events.spark, **given)


def refused(*given: Any, **more: Any) -> OnceOnlyError:
    with pytest.raises(OnceOnlyError) as stopped:
        again(*given, **more)
    return stopped.value


def proven(events: Events, pg: PostgresTarget) -> None:
    """Demand that the rerun is sound: its rows, and its state against them."""
    rows = into(pg)
    keeper = rows.window_store(separate=True)
    with closing(SqlLedger(pg.dsn)) as ledger, closing(rows), closing(keeper):
        ledger.open()
        found = audit(ledger, "scores~v2", [rows, keeper])
        deep = audit(ledger, "scores~v2", [rows, keeper], spark=events.spark)
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    assert not {"A175", "A176", "A177", "A178"} & {finding.code for finding in deep.findings}


def fence(pg: PostgresTarget) -> Any:
    with closing(pg.sink()) as sink:
        sink.open("scores")
        return sink.fence()


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        {"accumulation": "retracting", "window": p.Sessions("30 seconds")},
        {"accumulation": "discarding"},
    ],
    ids=["sessions that take back", "what came since"],
)
def test_the_same_windows_give_what_stands_and_leave_the_same_state(
    events: Events, pg: PostgresTarget, said: dict[str, Any]
) -> None:
    made = panes(
        key=["team", "part", "day"],
        aggregates=WIDE,
        trigger=EARLY,
        late_rows=PostgresSink(pg.dsn, table="late"),
        **said,
    )

    def write() -> Any:
        return exactly_once(pg.sink(), event_time=NOTED, windows=made, transform=shaped)

    events.come(*BATCHES, [("a", 1, 3), ("d", 2, 300)]).run(write())
    late, stood = pg.says("select count(*) from late"), fence(pg)
    found = again(events, pg, made, transform=shaped)
    assert (found.name, found.written, found.different) == ("scores~v2", 5, ())
    assert found.diff(events.spark, pg.sink()) is None
    assert [ran.text for _, ran in found.held] == [f"epoch {number} of scores" for number in range(1, 6)]
    assert found.rows == pg.says("select count(*) from orders")[0][0] > 0
    assert pg.says(STATE.format("again", 0)) == pg.says(STATE.format("orders", 0)) != []
    assert (pg.says("select count(*) from late"), fence(pg)) == (late, stood)
    events.come([("e", 1, 310)]).run(write())
    assert again(events, pg, made, transform=shaped).written == 1


RULES = Rules(Fixed(90), count=1, late_count=1, lateness=20, retracting=True)
OTHER = {
    "window": p.Tumbling("90 seconds"),
    "allowed_lateness": "20 seconds",
    "accumulation": "retracting",
    "trigger": EARLY,
}
"""The same in the words of ours."""


def drawn(draw: random.Random, files: int) -> list[list[Event]]:
    """Rows file by file, of which some come after their window was closed."""
    return [
        [
            (
                draw.choice("abc"),
                draw.randint(1, 9),
                max(0, 40 * at + draw.randint(-150 if draw.random() < 0.3 else 0, 39)),
            )
            for _ in range(draw.randint(2, 7))
        ]
        for at in range(files)
    ]


def by_brute_force(pg: PostgresTarget, files: Sequence[Sequence[Event]]) -> tuple[list[tuple[Any, ...]], int, int]:
    """Rows of all epochs, how many rows were dropped and how many windows stay open, over the time on record."""
    with closing(SqlLedger(pg.dsn)) as ledger:
        times = [record.epoch.time for record in ledger.epochs("scores") if record.epoch.lineage]
    judge, found, noon = Oracle(RULES), list[tuple[Any, ...]](), int(NOON.timestamp())
    for number, (rows, time) in enumerate(zip(files, times, strict=True), start=1):
        assert time is not None
        assert time.complete_until is not None
        said = tuple(Row(str(team), value, noon + int(at or 0)) for team, value, at in rows)
        for pane in judge.epoch(Epoch(number, said, time.complete_until // 1000)):
            for span, value in pane.retracts:
                found.append((number, pane.key, span[0] - noon, value, -1, pane.timing))
            found.append((number, pane.key, pane.span[0] - noon, pane.value, 1, pane.timing))
    return sorted(found), judge.dropped, len(judge.windows())


@pytest.mark.slow
def test_other_windows_give_what_brute_force_says_wherever_the_rerun_is_cut_off(
    events: Events, pg: PostgresTarget
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    files = drawn(random.Random(seed), 5)
    events.come(*files).run(exactly_once(pg.sink(), event_time=NOTED, windows=panes()))
    other = panes(**OTHER)
    for point, hit in ((Point.COMMIT_AFTER, 2), (Point.COMMIT_BEFORE, 1)):
        faults.arm(point, "raise", hit)
        with pytest.raises(InjectedFault):
            again(events, pg, other)
        faults.disarm()
    found = again(events, pg, other)
    assert (len(found.held), found.written) == (5, 3)
    rows, dropped, still_open = by_brute_force(pg, files)
    start = "extract(epoch from window_start)::bigint - " + str(int(NOON.timestamp()))
    stands = pg.says(f"select _epoch, team, {start}, total, sign, timing from again")
    assert sorted(stands) == rows
    assert sum(epoch.windows.dropped for epoch, _ in found.held if epoch.windows) == dropped
    assert pg.says("select count(*) from again_state") == [(still_open,)]
    proven(events, pg)
    assert refused(events, pg, panes()).code == "E239"


# ---- ranges


@pytest.mark.slow
def test_a_range_from_the_middle_is_refused_with_the_one_that_can_be_and_time_goes_on_where_windows_were_given_up(
    events: Events, pg: PostgresTarget
) -> None:
    def write() -> Any:
        return exactly_once(pg.sink(), event_time=NOTED, windows=panes(trigger=EARLY))

    made = panes(trigger=EARLY)
    events.come(*BATCHES[:2]).run(write())
    sinks = write().arguments.sinks
    with closing(SqlLedger(pg.dsn)) as ledger:
        operator.reset_panes(sinks, ledger, "scores", Adoption(AdoptionKind.RESET_PANES, last=2))
    for sink in sinks:
        sink.close()
    # The first row is late for its window by what epoch 2 noted, though all windows were given up since.
    events.come([("a", 100, 1), ("b", 7, 65)], *BATCHES[3:]).run(write())
    for epochs, whole in ((None, "1..2"), (range(2, 3), "1..2"), (range(5, 6), "4..5"), (range(2, 6), "1..2")):
        found = refused(events, pg, made, epochs)
        assert found.code == "E110"
        assert command(str(found), "replay run")[3] == whole
    first = again(events, pg, made, range(1, 3))
    assert (first.written, first.different) == (2, ())
    after = again(events, pg, made, range(3, 6), into=PostgresSink(pg.dsn, table="after"), name="scores~after")
    assert (after.written, after.different) == (2, ())
    assert [epoch.windows.dropped for epoch, _ in after.held if epoch.windows] == [1, 0]
    assert pg.says(STATE.format("after", 0)) == pg.says(STATE.format("orders", 3)) != []


@pytest.mark.slow
def test_behind_a_full_refresh_windows_begin_anew_and_nothing_is_late(events: Events, pg: PostgresTarget) -> None:
    made = panes(trigger=EARLY)
    events.checkpoint = events.root / FLOW / "0"
    events.come(*BATCHES[:2]).run(exactly_once(pg.sink(), event_time=NOTED, windows=made))
    refresh(events)
    events.come(*BATCHES[2:]).run(
        exactly_once(pg.sink(), event_time=NOTED, windows=made, recovery=Recovery(on_refresh="replace"))
    )
    found = refused(events, pg, made, range(1, 7))
    assert found.code == "E110"
    assert "windows began again with epoch 3" in str(found)
    assert command(str(found), "replay run")[3] == "1..2"
    # Without numbers those are meant whose rows stand.
    after = again(events, pg, made)
    assert (after.written, after.different) == (4, ())
    assert [ran.text for _, ran in after.held] == [f"epoch {number} of scores" for number in range(3, 7)]
    assert again(events, pg, made, range(3, 7)).written == 0
    assert pg.says(STATE.format("again", 0)) == pg.says(STATE.format("orders", 0)) != []
    proven(events, pg)


# ---- what cannot be

CODE = """
from integration.test_panes_audited import EARLY
from integration.test_panes_kept import panes
from onceonly.windows import Tumbling

PANES = panes(trigger=EARLY)
OTHER = panes(trigger=EARLY, window=Tumbling("90 seconds"))

def stream(spark):
    read = spark.readStream.schema("team string, value bigint, at timestamp").option("maxFilesPerTrigger", 1)
    return read.parquet({inbox!r})
"""


@pytest.fixture
def jobs(events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with the query and its windows, by its name."""
    (tmp_path / "panes_rerun_jobs.py").write_text(CODE.format(inbox=str(events.inbox)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "panes_rerun_jobs", None)  # type: ignore[arg-type]
    del sys.modules["panes_rerun_jobs"]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parent.parent}")
    return "panes_rerun_jobs"


class Apart(MemorySink):
    """A sink that holds state, and commits by itself."""

    def can_join(self, other: Any) -> bool:
        return False


def obeyed(found: OnceOnlyError | str, jobs: str, *more: str) -> str:
    """Run the rerun that a refusal prints, as it is printed; what it says."""
    printed = command(str(found), "replay run")
    named = [
        one.replace("MODULE:FUNCTION", f"{jobs}:stream").replace("MODULE:NAME", f"{jobs}:PANES") for one in printed
    ]
    done = CliRunner().invoke(app, [*named[1:], *more, "--yes"])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_each_refusal_prints_the_rerun_that_can_be_and_it_is_obeyed(
    events: Events, pg: PostgresTarget, delta: DeltaTarget, jobs: str
) -> None:
    made = panes(trigger=EARLY)
    events.come(*BATCHES[:3]).run(exactly_once(pg.sink(), event_time=NOTED, windows=made))
    for target in (Apart(id="memory:again"), KafkaSink("localhost:9", topic="results"), delta.sink()):
        found = refused(events, pg, made, into=target)
        assert found.code == "E143", found
    assert "3 have the rows on record" in obeyed(found, jobs, "--diff")
    assert pg.says('select count(*) from "scores~v2"') == pg.says("select count(*) from orders")
    middle = refused(events, pg, made, range(2, 4), name="scores~v3")
    assert "3 written now" in obeyed(middle, jobs)
    assert refused(events, pg, made, coalesce=2).code == "E110"
    for own in (pg.sink(), PostgresSink(pg.dsn, "public.orders")):
        assert "own sinks" in str(refused(events, pg, made, into=own))
    held = refused(events, pg, panes(trigger=EARLY, window=p.Tumbling("90 seconds")), name="scores~v3")
    assert held.code == "E239"
    assert "by other windows" in str(held)
    shown = command(str(held), "epochs list")
    assert CliRunner().invoke(app, shown[1:]).exit_code == 0
    for file in events.inbox.glob("*-0001.parquet"):
        file.unlink()
    gone = refused(events, pg, made, name="scores~v4", into=PostgresSink(pg.dsn, table="fourth"))
    assert gone.code == "E230"
    assert CliRunner().invoke(app, command(str(gone), "epochs show")[1:]).exit_code == 0


@pytest.mark.slow
def test_a_query_without_windows_is_refused_with_the_rerun_of_its_rows(
    events: Events, pg: PostgresTarget, jobs: str
) -> None:
    events.come(*BATCHES[:2]).run(exactly_once(pg.sink()))
    found = refused(events, pg, panes(trigger=EARLY))
    assert "There are no windows in epochs 1..2 of scores" in str(found)
    assert "2 have the rows on record" in obeyed(found, jobs)


@pytest.mark.slow
def test_windows_that_wait_for_a_time_that_nobody_noted_are_refused_and_others_are_stepped(
    events: Events, pg: PostgresTarget
) -> None:
    counted = panes(trigger=p.AtCount(1), state_sink=PostgresSink(pg.dsn, table="again_state"))
    events.come(*BATCHES[:2]).run(exactly_once(pg.sink(), windows=counted))
    elsewhere = PostgresSink(pg.dsn, table="elsewhere")
    for other in (panes(), panes(time="ingest")):
        assert refused(events, pg, other, into=elsewhere).code == "E140"
    beside = refused(events, pg, counted)
    assert (beside.code, "is the query's own" in str(beside)) == ("E143", True)
    assert again(events, pg, counted, into=elsewhere).different == ()


@pytest.mark.slow
def test_a_command_that_is_killed_goes_on_when_it_is_given_again(events: Events, pg: PostgresTarget, jobs: str) -> None:
    made = panes(trigger=EARLY)
    events.come(*BATCHES).run(exactly_once(pg.sink(), event_time=NOTED, windows=made))
    where = ["--query", "scores", "--ledger", pg.dsn, "--into", into(pg).address]
    typed = ["onceonly", "replay", "run", "1..4", *where, "--with", f"{jobs}:stream", "--windows", f"{jobs}:PANES"]
    planned = run(typed, code=4)
    assert "their state is kept next to postgres:again" in planned.replace("\n", " ")
    for death in (Point.COMMIT_SENT, Point.COMMIT_AFTER, Point.RECORD_BEFORE):
        killed(typed, death)
    done = run(typed, "--diff", "--yes")
    assert "4 have the rows on record" in done
    assert "no row differs" in done
    assert pg.says(STATE.format("again", 0)) == pg.says(STATE.format("orders", 0))
    proven(events, pg)
