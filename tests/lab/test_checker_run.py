"""What is wrong with the course of a run is called so, with its lines; what looks alike is not."""

from __future__ import annotations

import pytest
from tests.lab.tale import Tale, write, written

from onceonly_lab.checker import MUST_HOLD, Anomaly
from onceonly_lab.history import LEDGER, Kind, Mark, Op, Range, Row, UnreadableHistory

# X-GAP


def test_a_slice_that_starts_too_late_is_a_gap() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, slice=(Range("0", 2, 3),))
    tale.end(ledger={"markers": None})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.GAP, "pg", 2)
    assert finding.what == "0 starts at 2, not at 1: leaves out 1 to 2"


def test_a_slice_that_starts_too_early_is_a_gap() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, slice=(Range("0", 0, 2),))
    tale.end(ledger={"markers": None})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.what) == (Anomaly.GAP, "0 starts at 0, not at 1: takes again 0 to 1")


def test_a_first_slice_that_leaves_out_the_beginning_is_a_gap() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, slice=(Range("0", 1, 2),))
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == {"X-GAP"}


def test_every_partition_stands_for_itself() -> None:
    tale = Tale("pg")
    tale.chunks = [(Row("a"),), (Row("b"),), (Row("c"),)]
    tale.commit("pg", 1, slice=(Range("0", 0, 5), Range("1", 7, 9)))
    tale.commit("pg", 2, slice=(Range("0", 5, 5), Range("2", 3, 4)))
    tale.commit("pg", 3, slice=(Range("0", 5, 6), Range("1", 9, 10)))
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == set()
    tale.chunks.append((Row("d"),))
    tale.commit("pg", 4, slice=(Range("1", 11, 12),))
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == {"X-GAP"}


def test_a_slice_that_never_landed_leaves_no_gap() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, slice=(Range("0", 1, 5),), outcome=Kind.FAIL)
    write(tale, 2)
    tale.end()
    assert tale.anomalies() == set()


# X-EARLY


def test_bytes_that_were_staged_after_their_commit_are_early() -> None:
    tale = Tale("pg", "delta")
    tale.input("a1")
    tale.commit("pg", 1, manifest="m1")
    tale.stage(1)
    tale.commit("delta", 1, manifest="m1")
    tale.end(ledger={"markers": None})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.EARLY, "pg", 1)
    assert finding.what == "committed from m1, which was staged later"
    assert {tale.entries[line - 2].op for line in finding.lines} == {Op.COMMIT, Op.STAGE}


def test_bytes_that_were_never_staged_are_early() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, manifest="m1")
    tale.end(ledger={"markers": None})
    assert [finding.what for finding in tale.judged().findings] == ["committed from m1, which was never staged"]


def test_a_staging_that_failed_is_none() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.say("driver", Kind.INVOKE, Op.STAGE, epoch=1)
    tale.say("driver", Kind.FAIL, Op.STAGE, epoch=1, manifest="m1")
    tale.commit("pg", 1, manifest="m1")
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == {"X-EARLY"}


def test_an_epoch_that_is_read_before_it_was_sent_is_early() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.read("pg", rows=[Row("a1", 1)], markers=None)
    tale.commit("pg", 1)
    tale.end(ledger={"markers": None})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.what) == (Anomaly.EARLY, "visible before any commit of it was sent")


def test_bytes_that_a_healer_takes_from_the_dead_are_not_early() -> None:
    tale = Tale("pg", "delta")
    tale.input("a1")
    tale.stage(1)
    tale.commit("pg", 1, manifest="m1")
    tale.commit("delta", 1, driver=2, generation=2, manifest="m1")
    tale.record(1)
    tale.end()
    assert tale.anomalies() == set()


# X-REGRESS


def test_an_epoch_that_was_seen_and_is_gone_has_regressed() -> None:
    tale = written("pg")
    tale.read("pg")
    tale.read("pg", rows=tale.held["pg"][:2], markers=[tale.marks["pg"][1]])
    tale.end()
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.REGRESS, "pg", 2)
    assert finding.what == "its marker was seen, and is gone"
    assert len(finding.lines) == 2


def test_rows_that_were_seen_and_are_gone_have_regressed() -> None:
    tale = written("pg")
    tale.read("pg", markers=None)
    tale.read("pg", markers=None, rows=tale.held["pg"][:2])
    tale.end()
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.what, finding.witnesses) == (
        Anomaly.REGRESS,
        "2 rows seen, and gone",
        ("a2", "b2"),
    )


def test_another_reader_may_see_less() -> None:
    tale = written("pg")
    tale.read("pg")
    tale.read("pg", rows=[], markers=[], reader="slow")
    tale.end()
    assert tale.anomalies() == set()


def test_what_a_restore_took_has_not_regressed() -> None:
    tale = written("pg", refusals=("E207",))
    tale.read("pg")
    tale.restore("pg", 1)
    tale.settle(Kind.FAIL, "E207")
    tale.last_reads()
    assert tale.anomalies() == set()


def test_a_restore_during_a_read_excuses_it() -> None:
    tale = written("pg", refusals=("E207",))
    held, marks = tuple(tale.held["pg"]), tuple(tale.marks["pg"].values())
    tale.say("reader", Kind.INVOKE, Op.READ, sink="pg")
    tale.restore("pg", 1)
    tale.say("reader", Kind.READ, sink="pg", rows=held, markers=marks)
    tale.settle(Kind.FAIL, "E207")
    tale.last_reads()
    assert tale.anomalies() == set()


def test_a_restore_between_reads_whose_beginning_is_not_known_excuses_them() -> None:
    tale = written("pg", refusals=("E207",))
    tale.say("reader", Kind.READ, sink="pg", rows=tuple(tale.held["pg"]))
    tale.restore("pg", 1)
    tale.say("reader", Kind.READ, sink="pg", rows=tuple(tale.held["pg"]))
    tale.settle(Kind.FAIL, "E207")
    tale.last_reads()
    assert tale.anomalies() == set()


def test_an_older_restore_excuses_nothing() -> None:
    tale = written("pg")
    tale.restore("pg", 1, 2)
    tale.read("pg")
    tale.read("pg", rows=tale.held["pg"][:2], markers=[tale.marks["pg"][1]])
    tale.end()
    assert tale.anomalies() == {"X-REGRESS"}


def test_rows_that_an_upsert_replaced_have_not_regressed_but_markers_have() -> None:
    tale = written("pg").promising("pg", keeps=False)
    tale.read("pg")
    tale.end(pg={"rows": tale.held["pg"][2:]})
    assert tale.anomalies() == set()
    tale.read("pg", markers=[tale.marks["pg"][1]], rows=None)
    assert tale.anomalies() == {"X-REGRESS"}


def test_a_phantom_may_go_again() -> None:
    tale = written("pg")
    tale.read("pg", rows=[*tale.held["pg"], Row("stranger")])
    tale.end()
    assert tale.anomalies() == {"X-PHANTOM"}


# X-AUDIT


def test_an_epoch_that_is_recorded_before_it_is_in_every_sink_is_misrecorded() -> None:
    tale = Tale("pg", "delta")
    tale.input("a1")
    tale.stage(1)
    tale.commit("pg", 1, manifest="m1")
    tale.record(1)
    tale.commit("delta", 1, driver=2, generation=2, manifest="m1")
    tale.end()
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.AUDIT, "delta", 1)
    assert finding.what == "recorded before it was in the sink"


def test_an_epoch_that_the_engine_hears_of_too_soon_is_misrecorded() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.offered(1)
    tale.commit("pg", 1)
    tale.record(1)
    tale.end()
    assert [finding.what for finding in tale.judged().findings] == ["reported to the engine before it was in the sink"]


def test_a_record_of_what_landed_later_is_misrecorded() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.commit("pg", 1, outcome=Kind.INFO)
    tale.record(1)
    tale.read("pg")
    tale.land("pg", 1)
    tale.end()
    assert tale.anomalies() == {"X-AUDIT"}


def test_a_record_of_what_may_have_landed_before_is_right() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.read("pg")
    tale.commit("pg", 1, outcome=Kind.INFO, landed=True)
    tale.record(1)
    tale.end()
    assert tale.anomalies() == set()


def test_a_batch_that_failed_was_not_reported() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.offered(1, Kind.FAIL)
    write(tale, 1)
    tale.end()
    assert tale.anomalies() == set()


def test_a_record_of_an_epoch_that_no_sink_holds_is_misrecorded() -> None:
    tale = written("pg")
    tale.end(ledger={"markers": [*tale.marks[LEDGER].values(), Mark(3)]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch, finding.what) == (Anomaly.AUDIT, 3, "recorded, and not in the sink")


def test_an_epoch_without_a_record_is_misrecorded() -> None:
    tale = written("pg")
    tale.end(ledger={"markers": [tale.marks[LEDGER][1]]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch, finding.what) == (Anomaly.AUDIT, 2, "in the sink, and not recorded")


def test_a_record_with_other_rows_is_misrecorded() -> None:
    tale = written("pg")
    tale.end(ledger={"markers": [tale.marks[LEDGER][1], Mark(2, None, 2, "other")]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch) == (Anomaly.AUDIT, 2)
    assert finding.what == "recorded with other rows than its marker"


def test_a_ledger_that_is_behind_when_the_pipeline_stopped_is_right() -> None:
    tale = written("pg", refusals=("E203",))
    tale.settle(Kind.FAIL, "E203")
    tale.last_reads(ledger={"markers": [tale.marks[LEDGER][1]]})
    assert tale.anomalies() == set()


# X-ZOMBIE


def replaced(*, answered: Kind | None) -> Tale:
    """Driver 2 has the fence; driver 1 sends epoch 1 afterwards."""
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 1)
    tale.install("pg", 2, driver=2)
    tale.commit("pg", 1, driver=1, outcome=answered, landed=answered is not Kind.FAIL)
    return tale


@pytest.mark.parametrize("answered", [Kind.OK, Kind.INFO, None])
def test_an_effect_of_a_replaced_fence_is_a_zombies(answered: Kind | None) -> None:
    tale = replaced(answered=answered)
    tale.end(ledger={"markers": None})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.ZOMBIE, "pg", 1)
    assert finding.what == "written by driver 1 in generation 1, after driver 2 had installed generation 2"
    assert {tale.entries[line - 2].op for line in finding.lines} == {Op.COMMIT, Op.INSTALL}


def test_an_effect_that_landed_after_the_fence_is_a_zombies_though_it_was_sent_before() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 1)
    tale.commit("pg", 1, outcome=Kind.INFO)
    tale.install("pg", 2, driver=2)
    tale.read("pg")
    tale.land("pg", 1)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == {"X-ZOMBIE"}


def test_an_equal_generation_belongs_to_who_installed_it_last() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 1)
    tale.install("pg", 1, driver=2)
    tale.commit("pg", 1, driver=1)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == {"X-ZOMBIE"}


def test_an_equal_generation_that_was_there_before_replaces_nothing() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 1, driver=2)
    tale.install("pg", 1)
    tale.commit("pg", 1, driver=1)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == set()


def test_a_lower_generation_replaces_nothing() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 5)
    tale.install("pg", 3, driver=2)
    tale.commit("pg", 1, driver=1, generation=5)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == set()


def test_where_generations_are_not_known_the_last_fence_counts() -> None:
    for owners, expected in (((1, 2), {"X-ZOMBIE"}), ((2, 1), set()), ((2,), set())):
        for known in (None, 1):
            tale = Tale("pg")
            tale.input("a1")
            for owner in owners:
                tale.say("driver", Kind.OK, Op.INSTALL, incarnation=owner, sink="pg")
            tale.commit("pg", 1, generation=known)
            tale.end(pg={"markers": None}, ledger={"markers": None})
            assert tale.anomalies() == expected


def test_a_lower_generation_that_was_let_in_again_is_a_zombies() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 5)
    tale.install("pg", 1, driver=2)
    tale.commit("pg", 1, driver=2, generation=1)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == {"X-ZOMBIE"}


def test_a_zombie_that_was_refused_is_clean() -> None:
    tale = replaced(answered=Kind.FAIL)
    tale.commit("pg", 1, driver=2, generation=2)
    tale.record(1, driver=2)
    tale.end()
    assert tale.anomalies() == set()


def test_an_effect_that_may_have_landed_before_the_fence_is_no_zombies() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 1)
    tale.commit("pg", 1, outcome=Kind.INFO, landed=True)
    tale.install("pg", 2, driver=2)
    tale.read("pg")
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == set()


def test_a_fence_in_another_sink_replaces_nothing() -> None:
    tale = Tale("pg", "delta")
    tale.input("a1")
    tale.install("pg", 1)
    tale.install("delta", 2, driver=2)
    tale.commit("pg", 1)
    tale.commit("delta", 1, driver=2, generation=2)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == set()


def test_a_fence_whose_installation_failed_or_is_not_answered_replaces_nothing() -> None:
    for outcome in (Kind.FAIL, Kind.INFO, None):
        tale = Tale("pg")
        tale.input("a1")
        tale.install("pg", 1)
        tale.install("pg", 2, driver=2, outcome=outcome)
        tale.commit("pg", 1)
        tale.end(ledger={"markers": None})
        assert tale.anomalies() == set()


def test_a_fence_that_a_restore_took_replaces_nothing() -> None:
    tale = Tale("pg")
    tale.input("a1")
    tale.install("pg", 5)
    tale.restore("pg")
    tale.install("pg", 1, driver=2)
    tale.commit("pg", 1, driver=2, generation=1)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == set()


def test_a_sink_may_show_an_epoch_some_time_after_its_yes() -> None:
    tale = Tale("kafka")
    tale.input("a1")
    tale.install("kafka", 1)
    tale.commit("kafka", 1, landed=False)
    tale.install("kafka", 2, driver=2)
    tale.read("kafka")
    tale.land("kafka", 1)
    tale.end(ledger={"markers": None})
    assert tale.anomalies() == set()


# X-STUCK


def test_a_pipeline_that_takes_no_more_input_is_stuck() -> None:
    for outcome in (Kind.INFO, None):
        tale = written("pg")
        tale.settle(outcome)
        tale.last_reads()
        (finding,) = tale.judged().findings
        assert (finding.anomaly, finding.what) == (Anomaly.STUCK, "not all input was taken when time was up")


def test_a_pipeline_that_refuses_without_a_reason_is_stuck() -> None:
    tale = written("pg", refusals=("E207",))
    tale.settle(Kind.FAIL, "E203")
    tale.last_reads()
    (finding,) = tale.judged().findings
    assert finding.anomaly is Anomaly.STUCK
    assert finding.what == "the pipeline refused with E203, which is no answer to what was broken"


def test_what_is_left_behind_at_the_end_is_stuck() -> None:
    tale = written("pg")
    tale.end(pg={"leaks": ("prepared transaction 812", "staging e3")})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink) == (Anomaly.STUCK, "pg")
    assert finding.what == "left behind: prepared transaction 812, staging e3"


def test_what_is_open_in_the_middle_of_a_run_is_not_stuck() -> None:
    tale = written("pg")
    tale.read("pg", leaks=("transaction 7",))
    tale.end()
    assert tale.anomalies() == set()


# X-NONDET


def test_a_batch_that_gave_other_rows_the_second_time_is_nondeterministic() -> None:
    for op in (Op.PREPARE, Op.STAGE, Op.EXECUTE):
        tale = written("pg")
        tale.compute(op, 2, digest="other")
        tale.end()
        (finding,) = tale.judged().findings
        assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.NONDET, None, 2)
        assert finding.what == "computed as a2b2, and again as other"
        assert len(finding.lines) == 4


def test_an_execution_for_state_must_give_what_was_committed_in_any_plan() -> None:
    tale = written("pg", deterministic=False)
    tale.compute(Op.EXECUTE, 2, digest="other")
    tale.end()
    assert tale.anomalies() == {"X-NONDET"}


def test_a_plan_that_promises_nothing_may_give_other_rows_before_it_is_committed() -> None:
    tale = written("pg", deterministic=False)
    tale.compute(Op.PREPARE, 2, digest="other")
    tale.compute(Op.EXECUTE, 2)
    tale.end()
    assert tale.anomalies() == set()


def test_another_slice_gives_other_rows() -> None:
    tale = written("pg")
    tale.say("driver", Kind.OK, Op.PREPARE, epoch=2, slice=(Range("0", 1, 9),), digest="other")
    tale.say("driver", Kind.OK, Op.PREPARE, epoch=2, slice=tale.slice(2))
    tale.say("driver", Kind.FAIL, Op.PREPARE, epoch=2, slice=tale.slice(2), digest="other")
    tale.end()
    assert tale.anomalies() == set()


# Assertions


def test_a_query_that_does_not_hold_is_the_anomaly_it_names() -> None:
    tale = written("pg")
    counter = (Row("17"), Row("18"))
    tale.say("judge", Kind.FAIL, Op.ASSERTION, sink="pg", note="no overdraft", rows=counter, anomaly="X-LOSS")
    tale.end()
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.what) == (Anomaly.LOSS, "pg", "does not hold: no overdraft")
    assert finding.witnesses == ("17", "18")


def test_a_query_that_names_no_anomaly_denies_what_is_promised() -> None:
    tale = written("pg")
    tale.say("judge", Kind.FAIL, Op.ASSERTION, note="no overdraft")
    tale.end()
    assert tale.anomalies() == {"X-AUDIT"}


def test_a_query_that_names_no_anomaly_there_is_cannot_be_judged() -> None:
    tale = written("pg")
    line = tale.say("judge", Kind.FAIL, Op.ASSERTION, note="no overdraft", anomaly="X-FOO")
    with pytest.raises(UnreadableHistory, match=f"line {line}: there is no anomaly 'X-FOO'"):
        tale.judged()


def test_a_query_that_holds_changes_nothing() -> None:
    tale = written("pg")
    tale.say("judge", Kind.OK, Op.ASSERTION, note="no overdraft", anomaly="X-LOSS")
    tale.end()
    assert tale.anomalies() == set()


# Findings


def test_a_finding_shows_five_witnesses_at_most_and_is_made_once_per_place() -> None:
    tale = Tale("pg")
    tale.input(*"abcdefgh")
    for _ in range(3):
        tale.read("pg", rows=[Row(name) for name in "aabbccddeeffgghh"], markers=None)
    tale.end(pg={"rows": [Row(name) for name in "aabbccddeeffgghh"], "markers": None})
    (finding,) = tale.judged().findings
    assert finding.witnesses == ("a", "b", "c", "d", "e")
    assert finding.what == "8 rows up to 2 times"
    assert len(finding.lines) == 1


def test_findings_come_in_the_order_of_the_anomalies_then_by_sink_and_epoch() -> None:
    tale = written("pg", "delta")
    rows = {sink: [row for row in tale.held[sink] if row.epoch == 1] * 2 for sink in ("pg", "delta")}
    tale.end(pg={"rows": rows["pg"]}, delta={"rows": rows["delta"]})
    found = [(str(finding.anomaly), finding.sink, finding.epoch) for finding in tale.judged().findings]
    assert found == [
        ("X-LOSS", "delta", 2),
        ("X-LOSS", "pg", 2),
        ("X-DUP", "delta", 1),
        ("X-DUP", "pg", 1),
    ]


def test_every_anomaly_says_what_must_hold() -> None:
    assert set(MUST_HOLD) == set(Anomaly)
    assert len(Anomaly) == 19
