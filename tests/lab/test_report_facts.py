"""What the report shows before it is drawn: lanes, offsets, witnesses, coverage, and the command for it."""

from __future__ import annotations

import shlex
from dataclasses import replace

from tests.lab.report_tales import clean, damaged, hostile, inconclusive, story
from tests.lab.tale import Tale, written

from onceonly.faults import Point
from onceonly_lab.checker import Verdict
from onceonly_lab.history import Kind, Op, Range
from onceonly_lab.report.charts import Stretch, partitions
from onceonly_lab.report.lanes import FAULTS, FINDINGS, Glyph, Lanes, Outcome, coverage, lanes, pair_of
from onceonly_lab.report.view import Run, by_verdict, run_of, witnesses, worst
from onceonly_lab.schedule import Action


def laid(run: Run) -> Lanes:
    return lanes(run.history, run.judgement)


def test_incarnations_sinks_ledger_and_engine_have_a_lane_each() -> None:
    assert laid(clean()).names == (FAULTS, "engine", "driver 1", "driver 2", "→ postgres", "→ kafka", "ledger")
    assert laid(damaged()).names[0] == FINDINGS


def test_every_mark_lies_in_a_lane_and_within_the_history() -> None:
    for run in (clean(), damaged(), inconclusive(), hostile()):
        drawn = laid(run)
        for mark in (*drawn.bars, *drawn.signs, *drawn.lives):
            assert mark.lane in drawn.names
        assert all(bar.begin <= bar.end <= len(run.history.entries) + 1 for bar in drawn.bars)


def test_a_commit_is_drawn_with_its_caller_and_with_its_sink() -> None:
    drawn = laid(clean())
    fourth = [bar for bar in drawn.bars if bar.wide and bar.epoch == 4]
    assert [(bar.lane, bar.outcome) for bar in fourth] == [
        ("driver 1", Outcome.UNKNOWN),
        ("→ postgres", Outcome.UNKNOWN),
        ("driver 2", Outcome.YES),
        ("→ kafka", Outcome.YES),
        ("driver 1", Outcome.NO),
        ("→ kafka", Outcome.NO),
    ]


def test_a_call_without_an_answer_lasts_as_long_as_its_caller() -> None:
    tale = written("pg")
    tale.say("driver", Kind.INVOKE, Op.COMMIT, incarnation=1, sink="pg", epoch=2)
    killed = tale.say("driver", Kind.KILL, incarnation=1)
    tale.end()
    bar = next(bar for bar in laid(run_of("h", tale.history)).bars if bar.outcome is Outcome.OPEN)
    assert bar.end == killed
    assert "never answered" in bar.tip


def test_an_offer_that_is_never_answered_ends_with_its_driver() -> None:
    tale = written("pg")
    tale.say("engine", Kind.INVOKE, Op.OFFER, incarnation=1)
    killed = tale.say("driver", Kind.KILL, incarnation=1)
    tale.end()
    bar = next(bar for bar in laid(run_of("h", tale.history)).bars if bar.outcome is Outcome.OPEN)
    assert (bar.lane, bar.end) == ("engine", killed)


def test_faults_kills_and_what_findings_name_are_signs() -> None:
    drawn = laid(damaged())
    signs = [(sign.lane, sign.glyph) for sign in drawn.signs if sign.glyph is not Glyph.READ]
    assert (FAULTS, Glyph.ANSWER) in signs
    assert (FAULTS, Glyph.KILL) in signs
    assert (FAULTS, Glyph.DAMAGE) in signs
    assert ("driver 1", Glyph.KILL) in signs
    named = {line for finding in damaged().judgement.findings for line in finding.lines}
    assert {sign.at for sign in drawn.signs if sign.glyph is Glyph.FINDING} == named


def test_strips_hold_every_mark_and_overlap_nowhere() -> None:
    drawn = laid(damaged())
    strips = drawn.strips(10)
    assert [strip.first for strip in strips[1:]] == [strip.last + 1 for strip in strips[:-1]]
    assert (strips[0].first, strips[-1].last) == (drawn.first, drawn.last)
    assert {sign for strip in strips for sign in strip.signs} == set(drawn.signs)
    assert {bar for strip in strips for bar in strip.bars} == set(drawn.bars)


def test_a_sink_that_took_everything_once_has_contiguous_bars() -> None:
    (partition,) = partitions(clean().reading)
    assert partition.sound
    assert [(bar.start, bar.end, bar.what) for bar in partition.bars if bar.lane == "kafka"] == [
        (number, number + 1, Stretch.TAKEN) for number in range(4)
    ]


def test_what_is_left_out_or_taken_again_is_a_bar_of_its_own() -> None:
    tale = Tale("pg")
    for number in range(1, 6):
        tale.input(f"a{number}")
    tale.commit("pg", 1)
    tale.commit("pg", 2, slice=(Range("0", 0, 2),), rows=tale.chunks[1])
    tale.commit("pg", 3, slice=(Range("0", 3, 4),), rows=tale.chunks[3])
    tale.end()
    (partition,) = partitions(run_of("h", tale.history).reading)
    assert not partition.sound
    assert [(bar.start, bar.end, bar.what) for bar in partition.bars if bar.lane == "pg"] == [
        (0, 1, Stretch.TAKEN),
        (0, 1, Stretch.AGAIN),
        (1, 2, Stretch.TAKEN),
        (2, 3, Stretch.LEFT_OUT),
        (3, 4, Stretch.TAKEN),
        (4, 5, Stretch.LEFT_OUT),
    ]


def test_an_epoch_that_two_commits_brought_is_taken_again_unless_the_sink_was_restored() -> None:
    for restored in (False, True):
        tale = written("pg")
        if restored:
            tale.restore("pg", 1)
        tale.commit("pg", 2, driver=2, generation=2)
        tale.end()
        (partition,) = partitions(run_of("h", tale.history).reading)
        again = [(bar.start, bar.end) for bar in partition.bars if bar.what is Stretch.AGAIN]
        assert again == ([] if restored else [(1, 2)])
        assert partition.sound is restored


def test_a_plain_job_that_tells_no_commits_is_not_said_to_leave_anything_out() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.end(pg={"rows": tale.chunks[0], "markers": None})
    (partition,) = partitions(run_of("h", tale.history).reading)
    assert partition.sound


def test_a_witness_says_where_its_row_comes_from_and_where_it_is() -> None:
    run = damaged()
    lost = next(finding for finding in run.judgement.findings if finding.anomaly == "X-LOSS")
    first, second = witnesses(run.reading, lost)
    assert (first.identity, first.origin, first.seen) == ("a3", "0: 2 to 3", (0, 1))
    assert [words.partition(",")[0] for words in second.brought] == ["epoch 3 in postgres", "epoch 3 in kafka"]
    doubled = next(finding for finding in run.judgement.findings if finding.anomaly == "X-DUP")
    assert [row.seen for row in witnesses(run.reading, doubled)] == [(1, 2)]


def test_coverage_counts_faults_by_point_and_action_over_all_runs() -> None:
    counted = coverage([clean().history, damaged().history])
    assert counted.struck == {
        (Point.COMMIT_SENT, Action.LOSE_ANSWER): 2,
        (Point.LOOK_UP_AFTER, Action.KILL): 2,
    }
    assert counted.elsewhere == {"checkpoint: deleted": 2}
    cells = dict(counted.rows)
    assert cells[Point.STAGE_BEFORE][list(Action).index(Action.LOSE_ANSWER)] is None
    assert cells[Point.STAGE_BEFORE][list(Action).index(Action.KILL)] == 0
    assert sum(count is not None for counts in cells.values() for count in counts) == counted.pairs
    assert pair_of("pause:kill") is None


def test_the_verdict_about_several_is_the_worst_and_comes_first() -> None:
    runs = [clean(), inconclusive(), damaged()]
    assert worst(runs) is Verdict.ANOMALY
    assert worst(runs[:2]) is Verdict.INCONCLUSIVE
    assert worst(runs[:1]) is Verdict.CLEAN
    assert [run.place for run in by_verdict(runs)] == ["damaged.jsonl", "unfinished.jsonl", "clean.jsonl"]


def test_the_command_is_one_of_the_lab_whatever_the_history_says() -> None:
    assert shlex.split(damaged().replay) == ["onceonly", "lab", "replay", "it's here.json", "--level", "L2"]
    assert clean().replay == ""
    assert shlex.split(hostile().replay)[:2] == ["onceonly", "lab"]
    assert "; rm -rf ~" in shlex.split(hostile().replay)
    tale = story()
    header = replace(tale.history.header, again=())
    assert run_of("a b", replace(tale.history, header=header)).recheck == "onceonly lab recheck 'a b'"
