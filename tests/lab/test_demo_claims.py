"""The second act's judge: a figure that differs from the expected one is called wrong, and by which verdict."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.audit import Verdict
from onceonly.faults import Point
from onceonly.page import Provenance
from onceonly_lab.demo import claims, pictures, report
from onceonly_lab.demo.claims import Claim, Reads, Sample, Wait, WindowsReport
from onceonly_lab.demo.plan import plan_windows
from onceonly_lab.demo.streaming102 import Result, cases
from onceonly_lab.demo.windows import ORDERS, Setting
from onceonly_lab.necessity.crashes import Shown, shown
from onceonly_lab.necessity.world import Symptom

CASES = cases()
SCORES, SESSIONS = CASES[ORDERS["A"]], CASES["row 9 sessions"]
IDLE, COMPLETE = Wait(1, ("app",), "2026-01-01T12:19:00Z"), Wait(0, (), "2026-01-01T13:09:00Z")
TAKEN = Provenance(0, "0.1.0a1", "3.11")


@pytest.fixture(scope="module")
def designs() -> Shown:
    return shown()


def reads(*pairs: tuple[int, int, int, int]) -> Reads:
    """Newest epochs of two tables and two views, a read each second."""
    made = Reads()
    for second, (first, second_table, view, second_view) in enumerate(pairs):
        tables, views = ((first, first), (second_table, second_table)), ((view, view), (second_view, second_view))
        made.add(Sample(float(second), tables, views))
    return made


def whole(*parts: Claim) -> WindowsReport:
    made = {"reads.svg": pictures.reads(reads((1, 0, 0, 0), (1, 1, 1, 1)), [0.5])}
    return WindowsReport(7, "A", ["commit.after of scores"] * 2, parts, {"total": 60.0}, (), made)


def right() -> list[Claim]:
    return [
        claims.of_results("results", SCORES, SCORES.results),
        claims.of_sessions(SESSIONS, SESSIONS.results),
        claims.of_writers("app", "13:00", [IDLE, COMPLETE]),
        claims.of_reads(reads((1, 0, 0, 0), (1, 1, 1, 1)), 2),
    ]


def test_figures_as_expected_are_exactly_once() -> None:
    made = whole(*right())
    assert [claim.verdict for claim in made.claims] == [Verdict.EXACTLY_ONCE] * 4
    assert (made.verdict, made.exit_code) == (Verdict.EXACTLY_ONCE, 0)
    assert made.sentence == "EXACTLY ONCE: 4 of 4 parts as expected, after 2 SIGKILLs."
    assert ("sum", "totals 5, 7, 10, 25, 39, sum 51", "EXACTLY ONCE") in made.table


def moved(rows: list[Result]) -> list[Result]:
    return [rows[1], rows[0], *rows[2:]]


@pytest.mark.parametrize(
    ("wrong", "verdict", "code"),
    [
        (claims.of_results("results", SCORES, SCORES.results[1:]), Verdict.GAPS, 1),
        (claims.of_results("results", SCORES, [*SCORES.results, SCORES.results[0]]), Verdict.DUPLICATES, 1),
        (claims.of_results("results", SCORES, moved(SCORES.results)), Verdict.IN_DOUBT, 1),
        (claims.of_sessions(SESSIONS, SESSIONS.results[:-1]), Verdict.IN_DOUBT, 1),
        (claims.of_writers("shop", "13:00", [IDLE, COMPLETE]), Verdict.IN_DOUBT, 1),
        (claims.of_writers("app", "13:00", [IDLE, replace(COMPLETE, code=1)]), Verdict.IN_DOUBT, 1),
        (claims.of_writers("app", "13:00", [replace(IDLE, code=0), COMPLETE]), Verdict.IN_DOUBT, 1),
        (claims.of_reads(reads((1, 0, 1, 0)), 2), Verdict.IN_DOUBT, 1),
        (claims.of_reads(reads((1, 1, 1, 1)), 2), Verdict.CANNOT_TELL, 2),
    ],
)
def test_one_figure_that_differs_decides_the_verdict_and_is_named(wrong: Claim, verdict: Verdict, code: int) -> None:
    made = whole(*right(), wrong)
    assert (made.verdict, made.exit_code) == (verdict, code)
    assert made.sentence.endswith(f" NOT as expected: {wrong.name}.")
    assert json.loads(json.dumps(made.to_json()))["claims"][wrong.name]["verdict"] == str(verdict)


def test_a_result_with_another_total_is_missing_and_foreign() -> None:
    first, *others = SCORES.results
    altered = claims.of_results("results", SCORES, [first._replace(total=first.total + 1), *others])
    assert altered.verdict is Verdict.GAPS
    assert "1 missing, 1 doubled or altered" in altered.sentence


def test_a_design_that_breaks_in_another_way_is_noticed(designs: Shown) -> None:
    assert claims.of_designs(designs).holds
    first, *others = designs.crashed
    for counts in ({}, {**first.counts, Symptom.LOSS: 1}):
        assert not claims.of_designs(replace(designs, crashed=(replace(first, counts=counts), *others))).holds


def test_reads_are_mixed_where_epoch_or_rows_differ() -> None:
    made = Reads()
    made.add(Sample(0.0, ((3, 5), (3, 4)), ((3, 5), (3, 5))))
    made.add(Sample(1.0, ((3, 5), (3, 4)), ((3, 5), (2, 5))))
    assert (made.done, made.mixed_tables, made.mixed_views, len(made.changes)) == (2, 2, 1, 2)


@given(st.integers(0, 10_000), st.sampled_from([*ORDERS.values()]))
def test_the_seed_draws_two_kills_in_epochs_with_results_one_of_them_between_the_commits(seed: int, name: str) -> None:
    epochs = sorted({result.epoch for result in CASES[name].results})
    first, second = kills = plan_windows(seed, epochs)
    assert kills == plan_windows(seed, epochs)
    assert {first.batch, first.batch + second.batch - 1} <= set(epochs)
    assert second.batch > 1
    assert [kill.written for kill in kills if kill.point is Point.COMMIT_AFTER] == [1]


def test_seeds_draw_orders_idle_writers_and_kills() -> None:
    settings = [Setting.drawn(seed) for seed in range(40)]
    assert {setting.scores.name for setting in settings} == set(ORDERS.values())
    assert {setting.idle for setting in settings} == {"shop", "app"}
    assert len({plan_windows(seed, (5, 6, 10, 12, 14, 15)) for seed in range(40)}) > 20


@pytest.mark.parametrize("name", ORDERS.values())
def test_both_orders_bring_early_on_time_and_late_results_of_the_same_ten_values(name: str) -> None:
    assert {result.timing for result in CASES[name].results} == {"EARLY", "ON_TIME", "LATE"}
    values = sorted(value for epoch in CASES[name].epochs for value, _ in epoch["rows"])
    assert (len(values), sum(values)) == (10, 51)


def drawn(designs: Shown) -> dict[str, str]:
    figure = pictures.figure(SCORES.name, SCORES.epochs, SCORES.results, killed=(6, 15))
    return {
        "windows": pictures.stacked("Windows", [("Early, on-time and late results", figure)]),
        "necessity": pictures.necessity(designs),
        "reads": pictures.reads(reads((0, 0, 0, 0), (4, 2, 2, 2), (4, 4, 4, 4)), [1.5]),
    }


def words(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text")]


def test_pictures_are_xml_without_an_address_and_small(designs: Shown) -> None:
    for name, picture in drawn(designs).items():
        assert ElementTree.fromstring(picture).tag.endswith("}svg"), name
        assert picture.replace("http://www.w3.org/2000/svg", "").count("http") == 0, name
        assert len(picture) < 100_000, name


def test_pictures_show_the_figures_that_they_are_given(designs: Shown) -> None:
    by_name = drawn(designs)
    assert words(by_name["windows"]).count("SIGKILL") == 2
    assert {"5", "7", "14", "22", "Early, on-time and late results"} <= set(words(by_name["windows"]))
    altered = [result._replace(total=99) for result in SCORES.results]
    assert "99" in words(pictures.figure(SCORES.name, SCORES.epochs, altered))
    assert "3 reads, mixed: 1 of the tables (shaded), 0 of the views" in words(by_name["reads"])
    shown_words = words(by_name["necessity"])
    for tally in designs.crashed:
        assert tally.variant.name in shown_words
    assert shown_words.count("clean") == sum(not run.counts for run in (*designs.crashed, *designs.interleaved))


def test_the_index_shows_verdict_figures_and_pictures_and_fetches_nothing() -> None:
    made = whole(*right())
    page = report.render(made, TAKEN)
    assert "EXACTLY ONCE</h1>" in page
    for claim in made.claims:
        assert claim.sentence in page
    assert page.count('<svg class="chart"') == 1
    assert "default-src 'none'" in unescape(page)
    assert set(re.findall(r'(?:href|src)="([^"]*)', page)) == {"#content", "data:,", "audit.html", "reads.svg"}
