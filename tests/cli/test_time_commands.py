"""``onceonly time``: what is complete, whom it waits for, how waiting ends, and what is certified."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Run, assert_answerless, document
from tests.reading.writing import Writer

from onceonly.cli import lateness
from onceonly.cli.connect import Connection
from onceonly.machine.writer_progress import WriterSet
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore

NOON = 1_767_268_800_000
MINUTE = 60_000
SEVERAL = WriterSet(("web", "app"), 10 * MINUTE)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    found = SqlLedger(str(tmp_path / "ledger.db"))
    found.open()
    yield found
    found.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("clicks")


@pytest.fixture
def time(run: Run, ledger: SqlLedger) -> Run:
    def invoke(*words: str, **env: str):
        return run("time", *words, ONCEONLY_LEDGER=ledger.address, **env)

    return invoke


def writer(
    store: MemoryStore, ledger: SqlLedger, name: str = "web", writers: WriterSet | None = None, **said
) -> Writer:
    return Writer(name, MemorySink(store=store), writers, ledger=ledger, **{"unit": "ms", **said})


@pytest.fixture
def two(store: MemoryStore, ledger: SqlLedger) -> tuple[Writer, Writer]:
    """Of web noon is complete, of app a minute less."""
    web, app = (writer(store, ledger, name, SEVERAL) for name in ("web", "app"))
    web.write(NOON + 5, noted=NOON, ingest=NOON + 1_000)
    app.write(NOON - MINUTE, noted=NOON - MINUTE, ingest=NOON + 2_000, sees=[web])
    return web, app


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# ---- show, history


def test_show_tells_how_far_it_came_whom_it_waits_for_and_what_each_noted_last(
    time: Run, two: tuple[Writer, Writer]
) -> None:
    result = time("show", "web")
    assert result.exit_code == 0, result.output
    assert lines(result.stdout) == [
        "sink memory:clicks",
        "complete through 2026-01-01T11:59:00Z",
        "latest row 2026-01-01T12:00:00.005Z",
        "waits for app",
        "writer epoch noted last commit state",
        "app 1 2026-01-01T11:59:00Z 2026-01-01T12:00:02Z",
        "web 1 2026-01-01T12:00:00Z 2026-01-01T12:00:01Z",
    ]


def test_show_in_json_has_numbers_and_moments(time: Run, two: tuple[Writer, Writer]) -> None:
    found = document(time("show", "web", "-o", "json"))
    (sink,) = found["sinks"]
    assert (sink["lower"], sink["lower_at"], sink["held"]) == (NOON - MINUTE, "2026-01-01T11:59:00Z", ["app"])


def test_history_lists_what_each_epoch_said(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    web = writer(store, ledger, unit="integer")
    web.write(3, 9, noted=7)
    web.write(4, noted=6)
    assert lines(time("history", "web").stdout) == [
        "epoch rows noted complete through first last late silent",
        "1 2 7 7 3 9 0",
        "2 1 7 7 4 4 1",
    ]
    assert [one["epoch"] for one in document(time("history", "web", "-n", "1", "-o", "json"))["epochs"]] == [2]


def test_a_pipeline_that_notes_no_time_has_no_answer_and_the_way_to_one(
    time: Run, run: Run, store: MemoryStore, ledger: SqlLedger
) -> None:
    writer(store, ledger).commit((1,), None)
    result = time("show", "web")
    assert_answerless(result, "E110", "note_time=")
    printed = result.stderr[result.stderr.index("onceonly epochs") :].splitlines()[0]
    assert run(*shlex.split(printed)[1:], ONCEONLY_LEDGER=ledger.address).exit_code == 0
    assert_answerless(time("certify", "web"), "says anything of time")


# ---- wait


@pytest.mark.parametrize("until", ["2026-01-01T11:59Z", "2026-01-01T12:59+01:00", str(NOON - MINUTE)])
def test_what_is_complete_ends_with_0(time: Run, two: tuple[Writer, Writer], until: str) -> None:
    result = time("wait", "web", until, "--timeout", "0s")
    assert (result.exit_code, result.stdout) == (0, "memory:clicks: complete through 2026-01-01T11:59:00Z\n")


def test_a_time_out_ends_with_1_and_says_whom_it_waits_for_and_who_stopped(
    time: Run, two: tuple[Writer, Writer], ledger: SqlLedger
) -> None:
    ledger.note(Event("app", EventKind.FAILED, "E501: the database is away", 1, 1))
    result = time("wait", "web", "2026-01-01T12:00Z", "--timeout", "100ms", "--poll", "50ms")
    assert result.exit_code == 1
    assert result.stderr == '"web" is not complete until 2026-01-01T12:00Z.\n'
    assert "waits for app" in lines(result.stdout)
    stopped = [line for line in lines(result.stdout) if line.startswith("app ")]
    assert stopped == [
        "app 1 2026-01-01T11:59:00Z 2026-01-01T12:00:02Z stopped: E501: the database is away",
    ]
    found = document(time("wait", "web", "2026-01-01T12:00Z", "--timeout", "0s", "-o", "json"))
    assert (found["complete"], found["sinks"][0]["held"]) == (False, ["app"])
    assert found["writers"] == {"app": "stopped: E501: the database is away"}


def test_a_writer_that_was_started_again_is_not_called_stopped(
    time: Run, two: tuple[Writer, Writer], ledger: SqlLedger
) -> None:
    ledger.note(Event("app", EventKind.FAILED, "E501: the database is away", 1, 1))
    two[1].take_over()
    shown = time("show", "web").stdout
    assert ("app" in shown, "stopped" in shown) == (True, False), shown


def test_without_a_zone_there_is_no_answer_and_both_spellings_have_one(time: Run, two: tuple[Writer, Writer]) -> None:
    result = time("wait", "web", "2026-01-01T11:00", "--timeout", "0s")
    assert_answerless(result, "has no time zone")
    utc, here = result.stderr.partition("Next: ")[2].strip().split(" in UTC, or ")
    for until in (utc, here.partition(" by the clock")[0]):
        assert time("wait", "web", until, "--timeout", "0s").exit_code in (0, 1)


def test_a_dataset_without_one_of_its_writers_is_complete_only_for_who_allows_it(
    time: Run, store: MemoryStore, ledger: SqlLedger
) -> None:
    web, app = (writer(store, ledger, name, SEVERAL) for name in ("web", "app"))
    app.write(noted=NOON)
    web.write(noted=NOON + MINUTE, ingest=20 * MINUTE, sees=[app])
    until = str(NOON + MINUTE)
    for asked in ("web", "app"):
        result = time("wait", asked, until, "--timeout", "0s")
        assert (result.exit_code, "without app" in lines(result.stdout)) == (1, True)
        assert "Left out: app. To go on without them: --allow-left-out\n" in result.stderr
    printed = shlex.split(result.stderr.partition("To go on without them: ")[2].strip())
    result = time("wait", "web", until, "--timeout", "0s", *printed)
    assert (result.exit_code, "without app" in result.stdout) == (0, True)


def test_show_says_of_each_writer_whether_it_is_waited_for_or_left_out_and_never_both(
    time: Run, store: MemoryStore, ledger: SqlLedger
) -> None:
    web, app = (writer(store, ledger, name, SEVERAL) for name in ("web", "app"))
    app.write(noted=NOON)
    web.write(noted=NOON + MINUTE, ingest=20 * MINUTE, sees=[app])
    app.write(noted=NOON + 5, ingest=21 * MINUTE, sees=[web])  # it is back, and has not caught up
    shown = lines(time("show", "web").stdout)
    assert ("waits for web" in shown, "without app" in shown) == (True, True), shown
    assert [line for line in shown if line.startswith("app ")] == [
        "app 2 2026-01-01T12:00:00.005Z 1970-01-01T00:21:00Z left out until it notes 2026-01-01T12:01:00Z"
    ]


def test_a_name_that_nobody_knows_is_refused_and_not_waited_for(
    time: Run, run: Run, two: tuple[Writer, Writer]
) -> None:
    for result in (
        time("wait", "wbe", str(NOON)),
        time("wait", "wbe", str(NOON), "--sink", two[0].sink.address),
        run("time", "wait", "wbe", str(NOON), "--sink", two[0].sink.address),
    ):
        assert_answerless(result, "E110", '"wbe"')
    near = time("wait", "wbe", str(NOON), "--sink", two[0].sink.address).stderr
    assert "did you mean web?" in near


def test_every_sink_must_have_it(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    writer(store, ledger).write(noted=NOON)
    behind = MemoryStore("behind")
    other = MemorySink(store=behind)
    Writer("web", other, unit="ms").write(noted=NOON - 1)
    both = [word for sink in (MemorySink(store=store), other) for word in ("--sink", sink.address)]
    assert time("wait", "web", str(NOON), "--timeout", "0s", *both).exit_code == 1
    assert time("wait", "web", str(NOON - 1), "--timeout", "0s", *both).exit_code == 0


def test_where_no_sink_can_be_read_the_ledger_answers(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    made = writer(store, ledger)
    made.write(noted=NOON)
    name = store.address
    del made, store
    MemoryStore._all.pop(name)
    result = time("wait", "web", str(NOON), "--timeout", "0s")
    assert (result.exit_code, result.stdout) == (0, "ledger: complete through 2026-01-01T12:00:00Z\n")


def test_a_time_that_is_none_is_refused_before_anything_is_opened(time: Run) -> None:
    assert_answerless(time("wait", "web", "5", "--timeout", "soon"), "--timeout 'soon' is no time")
    assert_answerless(time("wait", "web", "noon"), "is no moment")


# ---- certify


def test_no_row_behind_the_horizon_is_certified(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    web = writer(store, ledger)
    web.write(NOON, NOON + 1, noted=NOON)
    web.write(NOON, noted=NOON + 5)
    result = time("certify", "web", "--epochs", "1..2")
    assert (result.exit_code, result.stdout) == (0, "no row behind the horizon in epochs 1..2 (3 rows)\n")


def test_each_epoch_with_late_rows_is_named_with_the_worst_of_them(
    time: Run, store: MemoryStore, ledger: SqlLedger
) -> None:
    web = writer(store, ledger)
    web.write(NOON, noted=NOON + 6 * MINUTE)
    web.write(NOON + 85_000, NOON + 2 * MINUTE, noted=NOON, untimed=3)
    web.write(NOON + 6 * MINUTE, noted=NOON)
    result = time("certify", "web")
    assert result.exit_code == 1
    assert lines(result.stdout) == [
        "epoch late first horizon at worst",
        "2 2 2026-01-01T12:01:25Z 2026-01-01T12:06:00Z 4 min 35 s",
        "2 rows behind the horizon in epochs 1..3 (4 rows)",
        "3 rows without a time, which are never late",
    ]
    (late,) = document(time("certify", "web", "-o", "json"))["late"]
    assert (late["epoch"], late["late"], late["worst"]) == (2, 2, 275_000)
    assert time("certify", "web", "--epochs", "3..3").exit_code == 0


def test_of_epochs_whose_markers_are_gone_nothing_is_certified(
    time: Run, store: MemoryStore, ledger: SqlLedger
) -> None:
    web = writer(store, ledger)
    web.write(NOON, noted=NOON)
    web.commit((1,), None)
    web.write(NOON, noted=NOON)
    result = time("certify", "web", "--epochs", "1..5")
    assert (result.exit_code, result.stdout) == (2, "")
    assert lines(result.stderr) == [
        "epochs 2..2: their markers are gone, or say nothing of time",
        "epochs 4..5: their markers are gone, or say nothing of time",
    ]
    assert document(time("certify", "web", "--epochs", "1..5", "-o", "json"))["unknown"] == [[2, 2], [4, 5]]


def clicks_at(times: Iterable[int]) -> pa.Table:
    """Rows with an instant, and a number that is no time."""
    times = list(times)
    return pa.table(
        {"at": pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC")), "n": range(len(times))}
    )


def late(store: MemoryStore, ledger: SqlLedger, **said) -> Writer:
    web = writer(store, ledger, **{"table": clicks_at, "column": "at", **said})
    web.write(NOON, noted=NOON + 6 * MINUTE)
    web.write(NOON + 85_000, NOON + 2 * MINUTE, NOON + 6 * MINUTE, noted=NOON)
    web.write(NOON + 5 * MINUTE, NOON + 9 * MINUTE, noted=NOON)
    return web


def test_the_late_rows_themselves_are_shown_the_latest_first(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    late(store, ledger)
    result = time("certify", "web", "--rows")
    assert (result.exit_code, result.stderr) == (1, "")
    assert lines(result.stdout)[3:] == [
        "3 rows behind the horizon in epochs 1..3 (6 rows)",
        "",
        "epoch time behind row in memory:clicks",
        '2 2026-01-01T12:01:25Z 4 min 35 s {"at": "2026-01-01 12:01:25+00:00", "n": 0}',
        '2 2026-01-01T12:02:00Z 4 min {"at": "2026-01-01 12:02:00+00:00", "n": 1}',
        '3 2026-01-01T12:05:00Z 1 min {"at": "2026-01-01 12:05:00+00:00", "n": 0}',
    ]
    result = time("certify", "web", "--rows", "-n", "1", "--epochs", "3..3")
    assert [line.split()[0] for line in lines(result.stdout)[-1:]] == ["3"]
    result = time("certify", "web", "--rows", "--limit", "1")
    assert result.stderr == "2 late rows not shown; --limit shows more\n"


def test_the_late_rows_in_json_are_those_of_the_table(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    late(store, ledger)
    told = document(time("certify", "web", "--rows", "-o", "json"))["late_rows"]
    assert (told["sink"], told["found"], told["counted"], told["unknown"]) == ("memory:clicks", 3, 3, [])
    assert [(one["epoch"], one["time"], one["worst"]) for one in told["rows"]] == [
        (2, NOON + 85_000, 275_000),
        (2, NOON + 2 * MINUTE, 240_000),
        (3, NOON + 5 * MINUTE, 60_000),
    ]
    assert "late_rows" not in document(time("certify", "web", "-o", "json"))


def test_late_numbers_are_found_as_well_as_late_moments(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    web = writer(store, ledger, unit="integer", column="at")
    web.write(3, 9, noted=7)
    web.write(4, 7, noted=7)
    told = document(time("certify", "web", "--rows", "-o", "json"))["late_rows"]
    assert [(one["time"], one["row"]) for one in told["rows"]] == [(4, {"at": 4})]


def test_the_sink_that_tells_most_shows_its_rows(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    web = late(store, ledger)
    replacing = MemorySink(store=MemoryStore("replacing"), key="n")
    replacing.open("web")
    asked = lateness.rows_of(Connection("web", None, (replacing, web.sink), None), web.epochs, 20)
    assert (asked.sink, asked.found) == ("memory:clicks", 3)
    asked = lateness.rows_of(Connection("web", None, (replacing,), None), web.epochs, 20)
    assert (asked.rows, [number for number, _ in asked.unknown]) == ((), [2, 3])


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (None, "the epoch does not say which column its rows say their time in; who can: rows, in "),
        ("gone", "its rows lie there without a time in gone; who can: rows with gone before 2026-01-01T12:06:00Z, in "),
        ("n", "its rows lie there without a time in n; who can: rows with n before 2026-01-01T12:06:00Z, in "),
    ],
)
def test_where_no_sink_tells_the_late_rows_it_is_said_why_and_who_can(
    time: Run, store: MemoryStore, ledger: SqlLedger, column: str | None, why: str
) -> None:
    web = late(store, ledger, column=column)
    result = time("certify", "web", "--rows")
    assert (result.exit_code, "{" in result.stdout) == (1, False)
    said = [
        f"epoch {number}: memory:clicks cannot tell its late rows: {why}{web.sink.address} itself" for number in (2, 3)
    ]
    assert result.stderr.splitlines() == said


def test_late_rows_that_somebody_took_away_since_are_told(time: Run, store: MemoryStore, ledger: SqlLedger) -> None:
    late(store, ledger)
    place_ = next(index for index, entry in enumerate(store._log) if entry.epoch == 3)
    store._log[place_] = replace(store._log[place_], rows=clicks_at([NOON + 9 * MINUTE]))
    result = time("certify", "web", "--rows")
    assert result.stderr == "3 were counted when they were written, 2 stand in memory:clicks\n"


@pytest.mark.parametrize("said", ["7", "3..1", "0..2", "a..b"])
def test_epochs_that_are_none_are_refused(time: Run, two: tuple[Writer, Writer], said: str) -> None:
    assert_answerless(time("certify", "web", "--epochs", said), "names no epochs", "--epochs 1..7")
