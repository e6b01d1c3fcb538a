"""The report's text: verdict and evidence first, nothing from a history can become markup, and it stays small."""

from __future__ import annotations

import re

from tests.audit.test_page import EVIL, Reader
from tests.lab.report_tales import TAKEN, clean, damaged, hostile, inconclusive, story
from tests.lab.tale import Tale

from onceonly_lab.fuzzer.draw import draw
from onceonly_lab.fuzzer.world import play
from onceonly_lab.report import Run, render, run_of
from onceonly_lab.report.view import PICTURED, STRIP, STRIPS
from onceonly_lab.schedule import Action


def page(*runs: Run) -> Reader:
    return Reader(render(runs, TAKEN))


def test_verdict_findings_witnesses_and_evidence_come_before_any_picture() -> None:
    text = render([damaged()], TAKEN)
    parts = [
        "ANOMALY",
        "X-DUP",
        "X-LOSS",
        "Every row of the input",
        ">a3<",
        "line ",
        "onceonly lab replay",
        'class="chart"',
    ]
    places = [text.index(part, text.index("<main")) for part in parts]
    assert places == sorted(places)


def test_a_clean_run_says_so_and_shows_no_findings() -> None:
    text = page(clean()).text
    assert "No anomaly" in text
    assert "Findings" not in text


def test_what_proves_nothing_says_why() -> None:
    assert "the history ends before the pipeline was left in peace" in page(inconclusive()).text


def test_texts_from_a_history_cannot_become_markup() -> None:
    found = page(hostile(), damaged())
    assert len(found.scripts) == 2
    assert not [tag for tag, _ in found.elements if tag in {"img", "iframe", "object", "base", "form"}]
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    assert "alert(1)" not in found.scripts[1]
    assert found.text.count(EVIL) > 10


def test_only_the_page_s_own_script_may_run() -> None:
    found = page(damaged())
    policy = next(
        attributes["content"] for tag, attributes in found.elements if tag == "meta" and "http-equiv" in attributes
    )
    assert re.fullmatch(r"default-src 'none';.*script-src 'sha256-[\w+/=]+';.*", policy or "")
    assert "data-reader" not in found.scripts[1]


def test_the_verdicts_are_in_the_page_for_programs() -> None:
    facts = page(clean(), damaged()).facts
    assert facts["verdict"] == "ANOMALY"
    runs: list[dict[str, object]] = facts["runs"]  # type: ignore[assignment]
    assert [(run["history"], run["verdict"]) for run in runs] == [
        ("damaged.jsonl", "ANOMALY"),
        ("clean.jsonl", "CLEAN"),
    ]


def test_runs_of_the_simulated_level_are_drawn_with_their_faults() -> None:
    played = next(found for found in map(play, map(draw, range(1, 60))) if len(found.acted) > 2)
    text = page(run_of("drawn.jsonl", played.history)).text
    for fault in played.acted:
        assert (f"{fault.point}:{fault.action}" if fault.action is not Action.LOSE_LEDGER else "ledger lost") in text


def test_a_long_history_is_drawn_in_part_and_says_so() -> None:
    tale = story(epochs=STRIP * (STRIPS + 2) // 12)
    tale.end()
    found = page(run_of("long.jsonl", tale.history))
    charts = [attributes for tag, attributes in found.elements if tag == "svg" and attributes.get("class") == "chart"]
    assert len(charts) == STRIPS + 1
    assert "more stretches are not drawn" in found.text
    assert "look_up.after:kill" in found.text


def test_of_very_many_runs_the_worst_are_drawn() -> None:
    empty = Tale("pg")
    empty.settle()
    plain = run_of("plain.jsonl", empty.history)
    found = page(*[plain] * PICTURED, damaged())
    assert found.text.count("This run is not drawn") == 1
    assert found.text.index("damaged.jsonl") < found.text.index("plain.jsonl")
