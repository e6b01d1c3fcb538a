"""The doctor's rules over pipelines, clocks and checkpoints: pure, each with a case that is fine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.histories import epochs, record_of

from onceonly.doctor import PAGES, UNOBSERVED, Check, Observed, State
from onceonly.doctor.rules import (
    Clock,
    PipelineFacts,
    enough_ms,
    judge_checkpoint,
    judge_clock,
    judge_names,
    judge_settings,
    judge_timeout,
    judge_timeouts,
    too_short,
)
from onceonly.protocol.health import observe, spell
from onceonly_checkpoints import epoch_time
from onceonly_checkpoints.epoch_time import EpochTime, WriterProgress

SAFE = {"server_version": "18", "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


def codes(checks) -> list[tuple[str, State]]:
    return [(check.code, check.state) for check in checks if check.code]


# ---- what past epochs say


def test_a_transaction_is_open_from_the_first_row_to_the_commits_answer() -> None:
    one, two = (record_of(epoch) for epoch in epochs((3, 4)))
    one = replace(one, phases=(("stage", 90.0), ("prepare", 2.0), ("commit", 0.5)), recorded_ms=10_000)
    two = replace(two, phases=(("prepare", 1.0),), recorded_ms=70_000)
    assert observe([one, two], 100_000) == Observed(2, 2.5, 60.0)
    assert observe([one, two], 200_000).longest_gap_s == 130.0
    assert observe([], 5) == UNOBSERVED


@pytest.mark.parametrize(("longest", "state"), [(10.0, None), (49.0, None), (50.0, State.HINT), (100.0, State.PROBLEM)])
def test_a_limit_is_told_before_it_is_met(longest: float, state: State | None) -> None:
    assert too_short(100.0, Observed(3, longest)) is state
    assert too_short(100.0, Observed(0, longest)) is None


def test_a_limit_that_is_enough_leaves_room() -> None:
    assert enough_ms(Observed(1, 400.0)) == 1_200_000
    assert enough_ms(Observed(1, 0.1)) == 60_000


@pytest.mark.parametrize(("seconds", "words"), [(0.25, "0.25 s"), (300, "5 min"), (9000, "2.5 h"), (9e6, "104 days")])
def test_times_are_spelled_as_people_say_them(seconds: float, words: str) -> None:
    assert spell(seconds) == words


# ---- one name


def facts(*queries: str, fences: tuple[tuple[str, int], ...] = ()) -> PipelineFacts:
    return PipelineFacts("orders", "file:/ck", 4, tuple((query, f"file:/{query}") for query in queries), fences)


@pytest.mark.parametrize("queries", [(), ("a",), ("a", "b"), ("a", "b", "c")])
def test_a_new_checkpoint_that_stays_is_a_restart(queries: tuple[str, ...]) -> None:
    assert list(judge_names(facts(*queries))) == []


def test_a_query_that_comes_back_after_another_one_means_two() -> None:
    [check] = judge_names(facts("a", "b", "a", "b"))
    assert check.code == "D403"
    assert "query id b (file:/b) and query id a (file:/a)" in check.message


def test_a_generation_beyond_the_ledgers_is_anothers() -> None:
    assert codes(judge_names(facts("a", fences=(("s", 4),)))) == []
    assert codes(judge_names(facts("a", fences=(("s", 4), ("t", 5))))) == [("D404", State.HINT)]


# ---- several writers of one dataset


def seen_of(*planned: int, left_out: int | None = None, first: int = 1) -> list[EpochTime]:
    """What "web" says of time: it sees each epoch of "app" a second after that was planned, and then leaves it out."""

    def said(at: int, mark: WriterProgress, *silent: str) -> EpochTime:
        return EpochTime(
            "ms", 1, 1, 1, batch_timestamp_ms=at, writers=(mark, WriterProgress("web", 1, 1, at)), timed_out=silent
        )

    marks = [WriterProgress("app", number, 1, at) for number, at in enumerate(planned, start=first)]
    told = [said(mark.batch_timestamp_ms + 1000, mark) for mark in marks]
    # It stays silent in a second epoch, which leaves nobody out anew.
    out = [] if left_out is None else [said(left_out, marks[-1], "app"), said(left_out + 9**9, marks[-1], "app")]
    return [*told, *out]


PACE = tuple(range(0, 300_000, 60_000))
"""An epoch each minute; the last is planned at 240 s."""


@pytest.mark.parametrize(("left_out", "codes_found"), [(None, []), (420_000, []), (419_999, [("D405", State.HINT)])])
def test_a_writer_that_is_left_out_before_three_of_its_epochs_could_have_come_is_told(
    left_out: int | None, codes_found: list[tuple[str, State]]
) -> None:
    assert codes(judge_timeout("web", seen_of(*PACE, left_out=left_out))) == codes_found


def test_the_longer_time_out_is_named_and_is_three_times_the_pace() -> None:
    [check] = judge_timeout("web", seen_of(*PACE, left_out=300_000))
    assert '"web" left app out as idle after 60 s, and epochs of app are up to 60 s apart' in check.message
    assert check.remedy.endswith('Writers(..., timeout="180 seconds")')
    assert epoch_time.milliseconds("180 seconds") == 3 * 60_000


def test_one_outage_says_nothing_of_the_pace_and_epochs_that_nobody_saw_are_counted() -> None:
    assert codes(judge_timeout("web", seen_of(0, 60_000, 120_000, 9_000_000, left_out=9_200_000))) == []
    every_other = [
        replace(one, writers=(replace(one.writers[0], epoch=2 * at), one.writers[1]))
        for at, one in enumerate(seen_of(0, 120_000, 240_000), start=1)
    ]
    [*_, out, _] = seen_of(240_000, left_out=240_000 + 180_000, first=6)
    assert codes(judge_timeout("web", [*every_other, out])) == []


def test_of_a_writer_that_was_seen_once_or_twice_no_pace_is_known() -> None:
    assert codes(judge_timeout("web", seen_of(0, 60_000, left_out=61_000))) == []


# ---- around


@pytest.mark.parametrize(
    ("url", "mount", "state"),
    [
        ("/data/ck", "ext4", None),
        ("file:/data/ck", None, None),
        ("hdfs://name/ck", None, None),
        ("abfss://box@account/ck", None, None),
        ("s3a://bucket/ck", None, State.PROBLEM),
        ("gs://bucket/ck", None, State.PROBLEM),
        ("wasbs://box@account/ck", None, State.PROBLEM),
        ("/mnt/bucket/ck", "fuse.s3fs", State.PROBLEM),
        ("file:/mnt/bucket/ck", "fuse.gcsfuse", State.PROBLEM),
        ("moon://base/ck", None, State.HINT),
    ],
)
def test_a_checkpoint_needs_a_store_that_creates_files_atomically(url: str, mount: str, state: State | None) -> None:
    found = codes(judge_checkpoint(url, mount))
    assert found == ([("D402", state)] if state else [])


@pytest.mark.parametrize(
    ("ahead", "within", "state"),
    [(0.5, 0.1, None), (-1.9, 0.0, None), (5.0, 4.0, None), (-5.0, 0.1, State.HINT), (3600.0, 0.1, State.PROBLEM)],
)
def test_a_clock_is_told_only_where_it_certainly_differs(ahead: float, within: float, state: State | None) -> None:
    found: list[Check] = list(judge_clock("db", Clock(ahead, within)))
    assert codes(found) == ([("D401", state)] if state else [])
    assert all(("ahead of" if ahead > 0 else "behind") in check.message for check in found)


# ---- a Postgres server


@pytest.mark.parametrize(
    ("changed", "code", "state"),
    [
        ({}, None, None),
        ({"fsync": "off"}, "D201", State.PROBLEM),
        ({"full_page_writes": "off"}, "D202", State.PROBLEM),
        ({"synchronous_commit": "off"}, "D203", State.PROBLEM),
        ({"synchronous_commit": "local"}, None, None),
        ({"synchronous_commit": "local", "synchronous_standby_names": "one"}, "D204", State.HINT),
        ({"synchronous_commit": "remote_apply", "synchronous_standby_names": "one"}, None, None),
        ({"transaction_read_only": "on"}, "D205", State.PROBLEM),
    ],
)
def test_a_server_that_can_lose_a_commit_is_told(changed: Mapping[str, str], code: str, state: State) -> None:
    assert codes(judge_settings("db", {**SAFE, **changed})) == ([(code, state)] if code else [])


def test_a_server_that_ends_long_transactions_is_told() -> None:
    limits = {"statement_timeout": "60000", "transaction_timeout": "0"}
    assert codes(judge_timeouts("db", limits, UNOBSERVED)) == [("D214", State.HINT)]
    assert codes(judge_timeouts("db", limits, Observed(5, 3.0))) == []
    [check] = judge_timeouts("db", limits, Observed(5, 61.0))
    assert (check.code, check.state) == ("D206", State.PROBLEM)
    assert "ALTER ROLE ... SET statement_timeout = '240000ms'" in check.remedy


# ---- documentation


def test_the_page_of_the_doctor_names_every_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    spans = re.sub(
        r"D(\d+) to D(\d+)", lambda two: ", ".join(f"D{n}" for n in range(int(two[1]), int(two[2]) + 1)), text
    )
    assert set(re.findall(r"\bD\d{3}\b", spans)) == set(PAGES)
