"""``onceonly time``: what is complete, whom it waits for, and how waiting ends."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run, assert_answerless, document
from tests.reading.writing import Writer

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
        "complete until 2026-01-01T11:59:00Z",
        "latest row 2026-01-01T12:00:00.005Z",
        "waits for app",
        "writer epoch recorded last commit state",
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
    assert lines(time("show", "web", "--history").stdout) == [
        "epoch rows recorded complete until first last late timed out",
        "1 2 7 7 3 9 0",
        "2 1 7 7 4 4 1",
    ]
    assert [one["epoch"] for one in document(time("show", "web", "--history", "-n", "1", "-o", "json"))["epochs"]] == [
        2
    ]


def test_a_pipeline_that_notes_no_time_has_no_answer_and_the_way_to_one(
    time: Run, run: Run, store: MemoryStore, ledger: SqlLedger
) -> None:
    writer(store, ledger).commit((1,), None)
    result = time("show", "web")
    assert_answerless(result, "E110", "event_time=")
    printed = result.stderr[result.stderr.index("onceonly epochs") :].splitlines()[0]
    assert run(*shlex.split(printed)[1:], ONCEONLY_LEDGER=ledger.address).exit_code == 0


# ---- wait


@pytest.mark.parametrize("until", ["2026-01-01T11:59Z", "2026-01-01T12:59+01:00", str(NOON - MINUTE)])
def test_what_is_complete_ends_with_0(time: Run, two: tuple[Writer, Writer], until: str) -> None:
    result = time("wait", "web", until, "--timeout", "0s")
    assert (result.exit_code, result.stdout) == (0, "memory:clicks: complete until 2026-01-01T11:59:00Z\n")


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
        assert "Left out: app. To continue without them: --allow-left-out\n" in result.stderr
    printed = shlex.split(result.stderr.partition("To continue without them: ")[2].strip())
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
        "app 2 2026-01-01T12:00:00.005Z 1970-01-01T00:21:00Z left out until it records 2026-01-01T12:01:00Z"
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
    assert (result.exit_code, result.stdout) == (0, "ledger: complete until 2026-01-01T12:00:00Z\n")


def test_a_time_that_is_none_is_refused_before_anything_is_opened(time: Run) -> None:
    assert_answerless(time("wait", "web", "5", "--timeout", "soon"), "--timeout 'soon' is no time")
    assert_answerless(time("wait", "web", "noon"), "is no moment")
