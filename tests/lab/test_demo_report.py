"""The demo's verdict and exit code, for every way it can end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onceonly.audit import Verdict
from onceonly_lab.demo.judge import Finding, Report, RunResult, SeveralResult, SinkResult, unanswered
from onceonly_lab.demo.killer import Tally

EXACT = Finding(rows=100, missing=0, doubled=0, foreign=0)
DOUBLED = Finding(rows=110, missing=0, doubled=10, foreign=0)


def wrapped(finding: Finding = EXACT, audit: Verdict = Verdict.EXACTLY_ONCE) -> SinkResult:
    return SinkResult(finding, epochs=16, replayed=2, skipped=1, audit=audit)


def report(*sinks: SinkResult, plain: Finding | None = DOUBLED) -> Report:
    onceonly = RunResult(dict(zip(("delta", "postgres"), sinks, strict=False)), ["commit.sent", "random"], 2, 20.0)
    today = RunResult({"delta": SinkResult(plain, 16, 1, 0)}, ["a", "b"], 2, 21.0) if plain else None
    return Report(7, 100, onceonly, today, 44.0)


def several(*sinks: SinkResult, differing: tuple[int, ...] = ()) -> SeveralResult:
    named = dict(zip(("postgres", "kafka", "delta"), sinks, strict=True))
    return SeveralResult(RunResult(named, ["between"] * 3, 3, 30.0), differing)


@pytest.mark.parametrize(
    ("sink", "verdict", "code"),
    [
        (wrapped(), Verdict.EXACTLY_ONCE, 0),
        (wrapped(DOUBLED), Verdict.DUPLICATES, 1),
        (wrapped(Finding(90, 10, 0, 0)), Verdict.GAPS, 1),
        (wrapped(Finding(100, 10, 10, 0)), Verdict.GAPS, 1),
        (wrapped(Finding(101, 0, 0, 1)), Verdict.DUPLICATES, 1),
        (wrapped(audit=Verdict.IN_DOUBT), Verdict.IN_DOUBT, 1),
        (wrapped(audit=Verdict.CANNOT_TELL), Verdict.CANNOT_TELL, 2),
        (wrapped(DOUBLED, audit=Verdict.EXACTLY_ONCE), Verdict.DUPLICATES, 1),
    ],
)
def test_rows_decide_and_then_the_audit(sink: SinkResult, verdict: Verdict, code: int) -> None:
    found = report(sink)
    assert (found.verdict, found.exit_code) == (verdict, code)


def test_one_wrong_sink_is_enough() -> None:
    assert report(wrapped(), wrapped(DOUBLED)).exit_code == 1


@pytest.mark.parametrize(
    ("found", "verdict", "code"),
    [
        (several(wrapped(), wrapped(), wrapped()), Verdict.EXACTLY_ONCE, 0),
        (several(wrapped(), wrapped(DOUBLED), wrapped()), Verdict.DUPLICATES, 1),
        (several(wrapped(), wrapped(), wrapped(), differing=(4,)), Verdict.IN_DOUBT, 1),
        (several(*[wrapped(audit=Verdict.CANNOT_TELL)] * 3), Verdict.CANNOT_TELL, 2),
        (several(wrapped(), wrapped(), wrapped(Finding(90, 10, 0, 0)), differing=(4,)), Verdict.GAPS, 1),
    ],
)
def test_several_sinks_must_be_right_one_by_one_and_alike(found: SeveralResult, verdict: Verdict, code: int) -> None:
    for whole in (replace(report(wrapped()), several=found), Report(7, 100, None, None, 44.0, found)):
        assert (whole.verdict, whole.exit_code) == (verdict, code)
        assert whole.to_json()["several"]["verdict"] == str(verdict)


def test_several_sinks_are_told_apart_in_document_and_sentence() -> None:
    alone = Report(7, 100, None, None, 44.0, several(wrapped(), wrapped(DOUBLED), wrapped(), differing=(3, 4)))
    document = json.loads(json.dumps(alone.to_json()))
    assert (document["schema_version"], document["kills"], document["restarts"]) == (1, 3, 3)
    assert (document["several"]["kills"], document["several"]["epochs_differing"]) == (3, [3, 4])
    assert [document["several"]["sinks"][kind]["doubled"] for kind in ("postgres", "kafka", "delta")] == [0, 10, 0]
    assert "onceonly" not in document
    assert "kafka 110 rows, 0 missing, 10 doubled" in alone.sentence
    assert "epochs 3, 4 are not alike" in alone.sentence


def test_what_the_plain_job_doubled_does_not_count_against_the_wrapped_one() -> None:
    assert report(wrapped(), plain=DOUBLED).exit_code == 0


def test_the_document_has_the_promised_fields() -> None:
    document = json.loads(json.dumps(report(wrapped(), wrapped()).to_json()))
    assert document["schema_version"] == 1
    assert {"seed", "rows_in", "kills", "restarts", "verdict"} <= document.keys()
    assert (document["kills"], document["restarts"], document["verdict"]) == (2, 2, "EXACTLY ONCE")
    for sink in (document["plain"]["delta"], document["onceonly"]["delta"], document["onceonly"]["postgres"]):
        assert {"rows", "missing", "doubled", "epochs", "replayed", "skipped"} <= sink.keys()


def test_without_a_plain_job_the_document_has_none() -> None:
    found = report(wrapped(), plain=None)
    assert "plain" not in found.to_json()
    assert "Plain" not in found.sentence


def test_the_sentence_holds_the_counts() -> None:
    said = report(wrapped(), wrapped(DOUBLED)).sentence
    assert said.startswith("DUPLICATES: 100 flights in; after 2 SIGKILLs:")
    assert "postgres 110 rows, 0 missing, 10 doubled" in said


def test_a_demo_that_could_not_answer_says_why() -> None:
    assert unanswered(3, "no Java") == {
        "schema_version": 1,
        "seed": 3,
        "verdict": "CANNOT TELL",
        "reason": "no Java",
    }


def test_a_batch_is_replayed_when_an_earlier_driver_was_offered_it() -> None:
    tally = Tally([{0, 1, 2}, {2, 3}, {3}, {3, 4}])
    assert (tally.batches, tally.replayed) == (5, 3)
