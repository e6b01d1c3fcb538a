"""Nobody knows whether some commits landed: a run is wrong only if no choice explains it. And: what a run proves."""

from __future__ import annotations

from tests.lab.tale import Tale, without, write, written

from onceonly_lab.checker import Verdict
from onceonly_lab.history import Kind, Mark, Op, Row, Situation


def two_unknown(rows: tuple[str, ...]) -> Tale:
    """Two drivers sent epoch 1 with other rows, neither was answered; a read shows ``rows``."""
    tale = Tale("pg")
    tale.chunks = [(Row("a1"),)]
    tale.commit("pg", 1, driver=1, generation=1, outcome=Kind.INFO, digest=None)
    tale.install("pg", 2, driver=2)
    tale.commit("pg", 1, driver=2, generation=2, outcome=None, rows=(Row("b1"),), digest=None)
    tale.end(pg={"rows": [Row(row) for row in rows], "markers": None}, ledger={"markers": None})
    return tale


def test_the_commit_whose_rows_are_there_is_the_one_that_landed() -> None:
    for rows in (("a1",), ("b1",)):
        assert two_unknown(rows).anomalies() == set()


def test_both_landed_where_both_are_there_is_told_by_the_rows() -> None:
    tale = two_unknown(("a1", "a1"))
    assert tale.anomalies() == {"X-DUP"}


def test_the_marker_says_who_wrote() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 1)
    tale.install("pg", 2, driver=2)
    tale.commit("pg", 1, driver=1, generation=1, outcome=None)
    tale.commit("pg", 1, driver=2, generation=2, outcome=None)
    tale.end(pg={"rows": [Row("a1", 1)], "markers": [Mark(1, 2)]}, ledger={"markers": None})
    assert tale.anomalies() == set()
    tale.end(pg={"rows": [Row("a1", 1)], "markers": [Mark(1, 1)]}, ledger={"markers": None})
    assert tale.anomalies() == {"X-ZOMBIE"}


def test_without_a_marker_the_choice_that_breaks_nothing_is_taken() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 1)
    tale.install("pg", 2, driver=2)
    tale.commit("pg", 1, driver=1, generation=1, outcome=None)
    tale.commit("pg", 1, driver=2, generation=2, outcome=None)
    tale.end(pg={"rows": [Row("a1")], "markers": None}, ledger={"markers": None})
    assert tale.anomalies() == set()


def test_the_choice_that_was_staged_in_time_is_taken() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, driver=1, outcome=None, manifest="never")
    tale.stage(1)
    tale.commit("pg", 1, driver=2, outcome=None, manifest="m1")
    tale.end(pg={"rows": [Row("a1")], "markers": None}, ledger={"markers": None})
    assert tale.anomalies() == set()


def convicted(never_staged: tuple[str, ...], other: tuple[str, ...], *read: Row) -> bool:
    """Of two commits of epoch 1, whether the one whose bytes were never staged is taken to have landed."""
    for turn in (1, -1):
        tale = Tale("pg")
        tale.chunks = [(Row("a1"),)]
        sent = [{"rows": rows, "manifest": name} for rows, name in ((never_staged, "never"), (other, None))]
        for driver, commit in enumerate(sent[::turn], 1):
            rows = tuple(Row(identity) for identity in commit["rows"] or ())
            manifest = commit["manifest"]
            tale.commit("pg", 1, driver=driver, outcome=None, digest=None, rows=rows, manifest=manifest)
        tale.end(pg={"rows": read, "markers": None}, ledger={"markers": None})
        anomalies = tale.anomalies() - {"X-LOSS", "X-TORN", "X-PHANTOM"}
        assert anomalies <= {"X-EARLY"}
    return anomalies == {"X-EARLY"}


def test_rows_that_are_there_outweigh_what_speaks_for_another_commit() -> None:
    assert convicted(("a1",), ("b1",), Row("a1", 1))
    assert not convicted(("a1",), ("b1",), Row("b1", 1))


def test_a_commit_fits_if_it_brought_all_that_names_its_epoch_and_nothing_is_missing() -> None:
    assert convicted(("a1",), ("a1", "b1"), Row("a1", 1))
    assert convicted(("a1", "b1"), ("a1",), Row("a1", 1), Row("b1", 1))
    assert convicted(("a1", "b1"), ("a1",), Row("a1"), Row("b1", 1))
    assert not convicted(("a1", "b1"), ("a1",), Row("a1", 1), Row("b1", 2))
    assert not convicted(("a1",), ("a1", "b1"), Row("a1", 1), Row("b1"))


def test_where_two_commits_fit_alike_the_one_that_breaks_nothing_is_taken() -> None:
    assert not convicted(("a1",), ("a1",), Row("a1", 1))
    assert not convicted((), (), Row("a1", 1))


def test_a_look_up_says_nothing_of_a_commit_before_the_last() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, outcome=Kind.INFO, manifest="never")
    tale.commit("pg", 1, outcome=Kind.INFO, landed=True)
    tale.look_up("pg", 1, Kind.OK)
    tale.record(1)
    tale.end()
    assert tale.anomalies() == set()


def test_an_unknown_commit_that_is_nowhere_did_not_land() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, outcome=Kind.INFO)
    write(tale, 1)
    tale.end()
    assert tale.anomalies() == set()
    assert Situation.RESOLVED not in tale.judged().reached


def test_an_unknown_commit_whose_rows_are_missing_explains_no_record() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, outcome=Kind.INFO)
    tale.record(1)
    tale.end()
    assert tale.anomalies() == {"X-LOSS", "X-AUDIT"}


def test_an_empty_epoch_that_no_read_can_show_may_have_landed() -> None:
    tale = Tale("pg")
    tale.input()
    tale.commit("pg", 1, outcome=Kind.INFO)
    tale.record(1)
    tale.end(pg={"markers": None}, ledger={"markers": None})
    assert tale.anomalies() == set()


def test_an_empty_epoch_that_markers_deny_did_not_land() -> None:
    tale = Tale("pg")
    tale.input()
    tale.commit("pg", 1, outcome=Kind.INFO)
    tale.record(1)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == {"X-AUDIT"}


def test_a_read_that_began_before_a_commit_says_nothing_about_it() -> None:
    tale = Tale("pg", refusals=("E207",))
    tale.input("a1")
    tale.say("reader", Kind.INVOKE, Op.READ, sink="pg")
    tale.commit("pg", 1, outcome=Kind.INFO)
    tale.say("reader", Kind.READ, sink="pg", rows=())
    tale.record(1)
    tale.restore("pg")
    tale.settle(Kind.FAIL, "E207")
    tale.last_reads()
    assert tale.anomalies() == set()


def test_a_look_up_is_about_the_commit_before_it() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, outcome=Kind.INFO)
    tale.look_up("pg", 1, Kind.INFO)
    tale.look_up("pg", 1, Kind.FAIL)
    tale.commit("pg", 1, outcome=Kind.INFO, landed=True)
    tale.look_up("pg", 1, Kind.OK)
    tale.record(1)
    tale.end()
    assert tale.anomalies() == set()
    assert tale.judged().reached == {Situation.RESOLVED}


def test_the_look_up_of_another_driver_settles_nothing() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, outcome=Kind.INFO, landed=True)
    tale.look_up("pg", 1, Kind.FAIL, driver=2)
    tale.end(pg={"markers": None}, ledger={"markers": None})
    assert tale.anomalies() == set()


# Situations


def test_an_epoch_that_another_driver_finished_was_split() -> None:
    tale = Tale("pg", "delta", requires=(Situation.SPLIT,))
    tale.input("a1")
    tale.stage(1)
    tale.commit("pg", 1, manifest="m1")
    tale.commit("delta", 1, driver=2, generation=2, manifest="m1")
    tale.record(1)
    tale.end()
    assert tale.judged().reached == {Situation.SPLIT}
    assert tale.judged().verdict is Verdict.CLEAN


def test_an_epoch_that_one_sink_never_got_was_not_recovered() -> None:
    tale = Tale("pg", "kafka", "delta")
    tale.input("a1")
    tale.commit("pg", 1)
    tale.commit("kafka", 1, driver=2, generation=2)
    tale.end()
    assert Situation.SPLIT not in tale.judged().reached


def test_a_driver_that_was_refused_after_another_had_come_was_a_blocked_zombie() -> None:
    tale = written("pg", requires=(Situation.ZOMBIE,))
    tale.install("pg", 2, driver=2)
    tale.commit("pg", 2, outcome=Kind.FAIL)
    tale.end()
    assert tale.judged().reached == {Situation.ZOMBIE}
    assert tale.judged().verdict is Verdict.CLEAN


def test_a_refusal_without_a_higher_fence_blocks_no_zombie() -> None:
    for generation, driver in ((1, 2), (2, 1)):
        tale = written("pg")
        tale.install("pg", generation, driver=driver)
        tale.commit("pg", 2, driver=1, outcome=Kind.FAIL)
        tale.end()
        assert tale.judged().reached == set()


def test_a_fence_that_came_too_late_blocks_no_zombie() -> None:
    tale = written("pg")
    tale.commit("pg", 2, outcome=Kind.FAIL)
    tale.install("pg", 2, driver=2)
    tale.end()
    assert tale.judged().reached == set()


def test_a_fence_that_was_refused_after_a_higher_one_was_a_blocked_zombies() -> None:
    tale = written("pg")
    tale.install("pg", 7, driver=2)
    tale.install("pg", 5, driver=3, outcome=Kind.FAIL)
    tale.end()
    assert tale.judged().reached == {Situation.ZOMBIE}


# Inconclusive


def test_a_run_that_did_not_reach_what_it_had_to_is_inconclusive() -> None:
    tale = written("pg", requires=(Situation.ZOMBIE, Situation.RESOLVED))
    tale.end()
    judged = tale.judged()
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.missing == ("never reached: zombie blocked", "never reached: answer lost, resolved as committed")


def test_an_anomaly_outweighs_what_is_missing() -> None:
    tale = written("pg", requires=(Situation.ZOMBIE,))
    tale.end(pg={"rows": []})
    assert tale.judged().verdict is Verdict.ANOMALY
    assert tale.judged().missing


def test_a_history_that_ends_in_the_middle_is_inconclusive() -> None:
    tale = written("pg")
    tale.last_reads()
    assert tale.judged().missing == ("the history ends before the pipeline was left in peace",)


def test_a_sink_that_was_not_read_at_the_end_is_inconclusive() -> None:
    tale = written("pg", "delta")
    tale.settle()
    tale.read("pg", final=True)
    tale.read("delta")
    assert tale.judged().missing == ("delta was not read at the end",)
    tale.read("delta", final=True, rows=None)
    assert tale.judged().missing == ("delta was not read at the end",)


def test_a_run_of_which_nothing_is_known_is_inconclusive() -> None:
    tale = Tale("pg")
    tale.end(pg={"rows": [Row("a")], "markers": None}, ledger={"markers": None})
    assert tale.judged().missing == ("nothing says what pg ought to hold",)
    assert Tale().judged().verdict is Verdict.INCONCLUSIVE


def test_a_query_that_could_not_be_asked_is_inconclusive() -> None:
    tale = written("pg")
    tale.say("judge", Kind.INFO, Op.ASSERTION, note="no overdraft")
    tale.end()
    assert tale.judged().missing == ("could not be asked: no overdraft",)


def test_a_judgement_is_one_sentence() -> None:
    tale = written("pg", "delta")
    tale.read("pg")
    tale.end(pg={"rows": []})
    judged = tale.judged()
    assert judged.sentence == "ANOMALY: X-LOSS, X-REGRESS (2 epochs, 4 rows in, 4 reads)"
    clean = written("pg")
    clean.end()
    assert clean.judged().sentence == "CLEAN (2 epochs, 4 rows in, 2 reads)"


def test_of_a_run_that_tells_of_no_commit_no_number_of_epochs_is_said() -> None:
    seen = Tale("pg")
    seen.end()
    judged = seen.judged()
    assert (judged.epochs, judged.sentence) == (0, "INCONCLUSIVE (0 rows in, 2 reads)")


def test_a_judgement_is_one_document() -> None:
    tale = written("pg", requires=(Situation.SPLIT, Situation.RESOLVED))
    tale.commit("pg", 2, outcome=Kind.INFO)
    tale.look_up("pg", 2, Kind.OK)
    tale.end(pg={"rows": without(tale.held["pg"], "b2", "a2")})
    assert tale.judged().to_json() == {
        "schema_version": 1,
        "verdict": "ANOMALY",
        "run": "a tale",
        "epochs": 2,
        "rows": 4,
        "reads": 2,
        "reached": ["answer lost, resolved as committed"],
        "missing": ["never reached: one sink committed, one not, recovered"],
        "findings": [
            {
                "anomaly": "X-LOSS",
                "must_hold": "Every row of the input is in every sink that it is for at the end.",
                "sink": "pg",
                "epoch": 2,
                "what": "2 rows of epoch 2 missing at the end",
                "witnesses": ["a2", "b2"],
                "lines": [len(tale.entries) - 1],
            }
        ],
    }
