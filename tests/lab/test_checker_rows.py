"""Rows that are lost, doubled, from nowhere, in part, unlike or out of order are called so; what looks alike is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab.tale import Tale, without, write, written

from onceonly_lab.checker import Anomaly
from onceonly_lab.history import LEDGER, Entry, Header, History, Kind, Mark, Op, Promise, Range, Row


def test_a_run_that_keeps_every_promise_is_clean() -> None:
    for tale in (written("pg"), written("pg", "delta"), written("pg", "kafka", "delta")):
        tale.end()
        assert tale.anomalies() == set()
        assert tale.judged().missing == ()


# X-LOSS


def test_an_epoch_that_is_in_no_read_is_lost() -> None:
    tale = written("pg")
    tale.end(pg={"rows": without(tale.held["pg"], "a2", "b2")})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.LOSS, "pg", 2)
    assert finding.what == "2 rows of epoch 2 missing at the end"
    assert finding.witnesses == ("a2", "b2")
    assert [tale.entries[line - 2].final for line in finding.lines] == [True]


def test_input_that_never_became_an_epoch_is_lost() -> None:
    tale = written("pg")
    tale.input("skipped")
    tale.end()
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch) == (Anomaly.LOSS, None)
    assert finding.what == "1 row of no epoch that is known missing at the end"


def test_a_commit_taken_for_a_success_is_a_loss_that_the_ledger_denies() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, landed=False)
    tale.record(2)
    tale.end()
    assert tale.anomalies() == {"X-LOSS", "X-AUDIT"}


def test_rows_of_a_plain_job_are_lost_though_no_commit_is_known() -> None:
    tale = Tale("pg")
    tale.input("a", "b")
    tale.end(pg={"rows": [Row("a")], "markers": None}, ledger={"markers": None})
    assert tale.anomalies() == {"X-LOSS"}


def test_input_that_a_stopped_pipeline_never_took_is_not_lost() -> None:
    tale = written("pg", refusals=("E203",))
    tale.input("waiting")
    tale.settle(Kind.FAIL, "E203")
    tale.last_reads()
    assert tale.anomalies() == set()


def test_what_a_stopped_pipeline_said_yes_to_is_lost_all_the_same() -> None:
    tale = written("pg", refusals=("E203",))
    tale.settle(Kind.FAIL, "E203")
    tale.last_reads(pg={"rows": without(tale.held["pg"], "a2", "b2")})
    assert tale.anomalies() == {"X-LOSS"}


def test_an_epoch_that_the_engine_was_told_of_is_due_in_every_sink() -> None:
    tale = written("pg", "delta", refusals=("E203",))
    tale.settle(Kind.FAIL, "E203")
    del tale.marks["delta"][2]
    tale.last_reads(delta={"rows": without(tale.held["delta"], "a2", "b2")})
    assert "X-LOSS" in tale.anomalies()


def test_an_epoch_of_one_sink_that_nobody_reported_is_not_due_in_the_other() -> None:
    tale = written("pg", "delta", epochs=1, refusals=("E203",))
    tale.input("a2")
    tale.stage(2)
    tale.commit("pg", 2, manifest="m2")
    tale.settle(Kind.FAIL, "E203")
    tale.last_reads()
    assert tale.anomalies() == set()


def test_rows_that_a_restore_took_from_a_pipeline_that_stopped_are_not_its_loss() -> None:
    tale = written("pg", refusals=("E207",))
    tale.restore("pg", 1)
    tale.settle(Kind.FAIL, "E207")
    tale.last_reads()
    assert tale.anomalies() == set()


def test_rows_that_a_restore_took_from_a_pipeline_that_went_on_are_lost() -> None:
    tale = written("pg")
    tale.restore("pg", 1)
    tale.end()
    assert tale.anomalies() == {"X-LOSS", "X-AUDIT"}


def test_what_an_upsert_replaced_is_not_lost() -> None:
    tale = written("pg").promising("pg", keeps=False)
    tale.end(pg={"rows": without(tale.held["pg"], "a1")})
    assert tale.anomalies() == set()


# X-DUP


def test_an_epoch_that_is_there_twice_is_doubled() -> None:
    tale = written("pg")
    tale.end(pg={"rows": [*tale.held["pg"], *tale.held["pg"][2:]]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.DUP, "pg", 2)
    assert finding.what == "2 rows up to 2 times"
    assert finding.witnesses == ("a2", "b2")
    shown = [tale.entries[line - 2] for line in finding.lines]
    assert [entry.op for entry in shown] == [Op.COMMIT, None]


def test_a_row_that_was_doubled_for_a_while_is_doubled() -> None:
    tale = written("pg")
    tale.read("pg", rows=[*tale.held["pg"], tale.held["pg"][0]], reader="other")
    tale.end()
    assert tale.anomalies() == {"X-DUP"}


def test_an_answer_that_was_lost_and_sent_again_blindly_is_doubled() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, outcome=Kind.INFO, landed=True)
    tale.commit("pg", 2)
    tale.record(2)
    tale.end()
    assert tale.anomalies() == {"X-DUP"}


def test_a_late_commit_beside_its_successor_is_doubled() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, outcome=Kind.INFO)
    tale.look_up("pg", 2, Kind.FAIL)
    tale.commit("pg", 2)
    tale.land("pg", 2)
    tale.record(2)
    tale.end()
    assert tale.anomalies() == {"X-DUP"}


def test_an_answer_that_was_lost_and_looked_up_is_clean() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, outcome=Kind.INFO, landed=True)
    tale.look_up("pg", 2, Kind.OK)
    tale.record(2)
    tale.end()
    assert tale.anomalies() == set()


def test_a_commit_that_was_absent_and_sent_again_is_clean() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, outcome=Kind.INFO)
    tale.look_up("pg", 2, Kind.FAIL)
    tale.commit("pg", 2)
    tale.record(2)
    tale.end()
    assert tale.anomalies() == set()


# X-PHANTOM


def test_a_row_that_is_in_no_input_is_a_phantom() -> None:
    tale = written("pg")
    tale.end(pg={"rows": [*tale.held["pg"], Row("stranger")]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch, finding.witnesses) == (Anomaly.PHANTOM, None, ("stranger",))
    assert finding.what == "1 row that nobody wrote like this"


def test_rows_of_an_epoch_that_no_marker_names_are_phantoms() -> None:
    tale = written("pg")
    tale.end(pg={"markers": [tale.marks["pg"][1]]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch) == (Anomaly.PHANTOM, 2)
    assert finding.what == "2 rows of an epoch that no marker names"


def test_rows_of_a_commit_that_failed_are_phantoms() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, outcome=Kind.FAIL)
    tale.read("pg", rows=[*tale.held["pg"], Row("a2")], markers=None, reader="dirty")
    tale.commit("pg", 2)
    tale.record(2)
    tale.end()
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.what) == (Anomaly.PHANTOM, "1 row of an epoch whose commit failed")


def test_rows_of_an_epoch_that_was_never_sent_are_phantoms() -> None:
    tale = written("pg", epochs=1)
    tale.end(pg={"rows": [*tale.held["pg"], Row("a1", 9)], "markers": None})
    assert "X-PHANTOM" in tale.anomalies()
    other = written("pg", epochs=1)
    other.input("a2")
    other.land("pg", 2)
    other.record(2)
    other.end(pg={"markers": None}, ledger={"markers": None})
    assert {finding.what for finding in other.judged().findings if finding.anomaly is Anomaly.PHANTOM} == {
        "1 row of an epoch that nobody committed"
    }


def test_a_row_that_stands_in_another_epoch_is_a_phantom_there() -> None:
    tale = written("pg")
    moved = [replace(row, epoch=1) if row.identity == "a2" else row for row in tale.held["pg"]]
    tale.end(pg={"rows": moved})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch, finding.witnesses) == (Anomaly.PHANTOM, 1, ("a2",))
    assert finding.what == "1 row in an epoch that did not bring it"


def test_rows_of_a_commit_that_may_still_land_are_no_phantoms() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2")
    tale.commit("pg", 2, outcome=Kind.INFO, landed=True)
    tale.read("pg", markers=None)
    tale.record(2)
    tale.end()
    assert tale.anomalies() == set()


# X-TORN


def test_a_part_of_an_epoch_is_torn_and_not_lost() -> None:
    tale = written("pg")
    tale.end(pg={"rows": without(tale.held["pg"], "a2")})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch, finding.witnesses) == (Anomaly.TORN, 2, ("a2",))
    assert finding.what == "1 of 2 rows are visible"


def test_a_part_that_was_seen_for_a_while_is_torn() -> None:
    tale = written("pg")
    tale.read("pg", rows=without(tale.held["pg"], "b2"), markers=None)
    tale.end()
    assert tale.anomalies() == {"X-TORN"}


def test_a_marker_that_was_seen_before_its_rows_is_torn() -> None:
    tale = written("pg")
    tale.read("pg", rows=without(tale.held["pg"], "a2", "b2"))
    tale.end()
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.what) == (Anomaly.TORN, "its marker is visible, and none of 2 rows")


def test_a_part_is_seen_by_its_count_where_rows_are_not_named() -> None:
    tale = Tale("pg")
    tale.chunks = [(Row("a"), Row("b"))]
    tale.commit("pg", 1, rows=None, slice=None, count=2)
    tale.end(pg={"rows": [Row("x", 1)]}, ledger={"markers": None})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.what) == (Anomaly.TORN, "1 of 2 rows are visible")


def test_a_part_is_seen_by_the_count_of_its_marker() -> None:
    tale = Tale("pg")
    tale.chunks = [(Row("a"), Row("b"))]
    tale.commit("pg", 1, rows=None, slice=None)
    tale.end(pg={"rows": [Row("x", 1)]}, ledger={"markers": None})
    assert tale.anomalies() == {"X-TORN"}


def test_partitions_of_a_topic_may_show_an_epoch_in_parts_but_not_in_the_end() -> None:
    tale = written("kafka").promising("kafka", whole=False)
    tale.read("kafka", rows=without(tale.held["kafka"], "b2"), markers=None)
    tale.end()
    assert tale.anomalies() == set()
    tale = written("kafka").promising("kafka", whole=False)
    tale.end(kafka={"rows": without(tale.held["kafka"], "b2")})
    assert tale.anomalies() == {"X-TORN"}


def test_an_epoch_whose_rows_never_came_is_lost_and_not_torn() -> None:
    tale = written("pg")
    short = without(tale.held["pg"], "a2", "b2")
    tale.read("pg", rows=short)
    tale.end(pg={"rows": short})
    assert tale.anomalies() == {"X-LOSS"}


# X-CROSS


def test_sinks_that_were_given_other_rows_disagree() -> None:
    tale = Tale("pg", "delta", deterministic=False)
    tale.chunks = [(Row("a"), Row("b"))]
    for sink in ("pg", "delta"):
        tale.commit(sink, 1, rows=tale.chunks[0], digest=None)
        tale.chunks = [(Row("a"), Row("c"))]
    tale.settle()
    tale.last_reads(pg={"markers": None}, delta={"markers": None}, ledger={"markers": None})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.CROSS, "delta", 1)
    assert finding.what == "2 rows given to one of pg and delta only"
    assert finding.witnesses == ("b", "c")


def test_a_row_with_another_value_in_one_sink_is_a_disagreement() -> None:
    tale = written("pg", "delta")
    changed = [replace(row, value="w") if row.identity == "a2" else row for row in tale.held["delta"]]
    tale.end(delta={"rows": changed})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch, finding.witnesses) == (Anomaly.CROSS, 2, ("a2",))
    assert finding.what == "1 row with other values in pg than in delta"


def test_markers_that_name_other_rows_disagree() -> None:
    for changed in (Mark(2, 1, 2, "other"), Mark(2, 1, 3, "a2b2")):
        tale = written("pg", "delta")
        tale.end(delta={"markers": [tale.marks["delta"][1], changed]})
        (finding,) = tale.judged().findings
        assert (finding.anomaly, finding.epoch) == (Anomaly.CROSS, 2)
        assert finding.what == "markers of pg and delta name other rows"


def test_the_third_sink_is_compared_too() -> None:
    tale = written("pg", "kafka", "delta")
    changed = [replace(row, value="w") if row.identity == "a2" else row for row in tale.held["delta"]]
    tale.end(delta={"rows": changed})
    assert [(finding.anomaly, finding.sink) for finding in tale.judged().findings] == [(Anomaly.CROSS, "delta")]


def test_sinks_that_say_less_than_others_do_not_disagree() -> None:
    tale = written("pg", "delta")
    bare = [Mark(epoch) for epoch in (1, 2)]
    tale.end(delta={"markers": bare, "rows": [Row(row.identity) for row in tale.held["delta"]]})
    assert tale.anomalies() == set()


# X-ORDER


def test_two_rows_of_a_key_that_changed_places_are_out_of_order() -> None:
    tale = written("kafka").promising("kafka", ordered=True)
    first, second, *rest = tale.held["kafka"]
    tale.end(kafka={"rows": [second, first, *rest]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.sink, finding.epoch) == (Anomaly.ORDER, "kafka", 1)
    assert finding.witnesses == ("a1", "b1")
    assert [tale.entries[line - 2].final for line in finding.lines] == [True]
    assert finding.what == "row a1 of key k stands after b1, which follows it in the input"


def test_epochs_that_changed_places_are_out_of_order_without_keys_too() -> None:
    tale = Tale("kafka").promising("kafka", ordered=True)
    tale.input("a")
    tale.input("b")
    for epoch in (1, 2):
        write(tale, epoch)
    tale.end(kafka={"rows": reversed(tale.held["kafka"])})
    (finding,) = tale.judged().findings
    assert finding.what == "row a stands after b, which follows it in the input"


def test_rows_of_different_keys_have_no_order() -> None:
    tale = Tale("kafka").promising("kafka", ordered=True)
    tale.input("a", key="k")
    tale.input("b", key="l")
    for epoch in (1, 2):
        write(tale, epoch)
    tale.end(kafka={"rows": reversed(tale.held["kafka"])})
    assert tale.anomalies() == set()


def test_order_is_asked_only_where_it_is_promised() -> None:
    tale = written("pg")
    tale.end(pg={"rows": reversed(tale.held["pg"])})
    assert tale.anomalies() == set()


def test_a_doubled_row_is_not_out_of_order_too() -> None:
    tale = written("kafka").promising("kafka", ordered=True)
    tale.end(kafka={"rows": [*tale.held["kafka"], tale.held["kafka"][0]]})
    assert tale.anomalies() == {"X-DUP"}


# Golden


def golden(*rows: Row, sink: str = "pg") -> History:
    final = Entry("reader", Kind.READ, sink=sink, rows=rows, final=True)
    return History(Header((Promise(sink),)), (final,))


def aggregated(*rows: Row) -> Tale:
    """A plan whose output is not its input."""
    tale = Tale("pg").promising("pg", keeps=False)
    tale.input("in1", "in2")
    tale.end(pg={"rows": rows, "markers": None}, ledger={"markers": None})
    return tale


def test_a_golden_run_says_what_an_aggregation_must_hold() -> None:
    right = golden(Row("k", value="2"), Row("l", value="1"))
    assert aggregated(Row("k", value="2"), Row("l", value="1")).anomalies(right) == set()
    assert aggregated(Row("k", value="2")).anomalies(right) == {"X-LOSS"}
    assert aggregated(Row("k", value="3"), Row("l", value="1")).anomalies(right) == {"X-PHANTOM"}
    assert aggregated(Row("k", value="2"), Row("l"), Row("l")).anomalies(right) == {"X-DUP"}
    assert aggregated(Row("k", value="2"), Row("l"), Row("m")).anomalies(right) == {"X-PHANTOM"}


@pytest.mark.parametrize(
    ("keeps", "shown", "anomalies"),
    [
        (False, Row("k", value="1"), set()),
        (False, Row("x", value="1"), {"X-PHANTOM"}),
        (True, Row("k", value="1"), {"X-PHANTOM"}),
    ],
)
def test_a_row_that_is_replaced_has_other_values_before_the_end(keeps: bool, shown: Row, anomalies: set[str]) -> None:
    tale = Tale("pg").promising("pg", keeps=keeps)
    tale.input("in1", "in2")
    tale.read("pg", rows=[shown], markers=None)
    tale.end(pg={"rows": [Row("k", value="2")], "markers": None}, ledger={"markers": None})
    assert tale.anomalies(golden(Row("k", value="2"))) == anomalies


def test_a_row_that_was_to_be_replaced_has_another_value_where_a_pipeline_stopped() -> None:
    tale = Tale("pg", refusals=("E206",)).promising("pg", keeps=False)
    tale.input("in1", "in2")
    tale.settle(Kind.FAIL, "E206")
    tale.last_reads(pg={"rows": [Row("k", value="1")], "markers": None}, ledger={"markers": None})
    assert tale.anomalies(golden(Row("k", value="2"))) == set()


def test_a_golden_run_may_hold_a_row_twice() -> None:
    right = golden(Row("k"), Row("k"))
    assert aggregated(Row("k"), Row("k")).anomalies(right) == set()
    assert aggregated(Row("k")).anomalies(right) == {"X-LOSS"}
    assert aggregated(Row("k"), Row("k"), Row("k")).anomalies(right) == {"X-DUP"}


def test_a_golden_run_can_lie_in_the_history_itself() -> None:
    tale = Tale("pg")
    tale.say("judge", Kind.OK, Op.GOLDEN, sink="pg", rows=(Row("k"), Row("l")))
    tale.end(pg={"rows": [Row("k")], "markers": None}, ledger={"markers": None})
    assert tale.anomalies() == {"X-LOSS"}


def test_nothing_of_a_golden_run_is_due_before_all_input_was_taken() -> None:
    tale = Tale("pg", refusals=("E203",))
    tale.settle(Kind.FAIL, "E203")
    tale.last_reads(pg={"rows": [], "markers": None}, ledger={"markers": None})
    assert tale.anomalies(golden(Row("k"))) == set()


# Rows that a commit does not name


def test_a_commit_without_rows_brings_those_of_its_slice() -> None:
    tale = written("pg", epochs=1)
    tale.input("a2", "b2")
    tale.commit("pg", 2, rows=None)
    tale.record(2)
    tale.end(pg={"rows": [Row(row.identity) for row in without(tale.held["pg"], "b2")]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.epoch, finding.witnesses) == (Anomaly.TORN, 2, ("b2",))


def piece(pieces: tuple[Range, ...], taken: tuple[Range, ...]) -> set[str]:
    """One piece of input with the rows a and b, an epoch with this slice, and only a in the sink."""
    tale = Tale("pg")
    rows = (Row("a"), Row("b"))
    tale.chunks = [rows]
    tale.say("source", Kind.OK, Op.INPUT, slice=pieces, rows=rows)
    tale.commit("pg", 1, rows=None, slice=taken)
    tale.end(pg={"rows": [Row("a")], "markers": None}, ledger={"markers": None})
    return tale.anomalies() - {"X-GAP"}


def test_a_slice_brings_the_pieces_of_the_input_that_lie_in_it() -> None:
    for taken in ((Range("0", 2, 4),), (Range("0", 1, 5),), (Range("0", 2, 4), Range("1", 0, 9))):
        assert piece((Range("0", 2, 4),), taken) == {"X-TORN"}
    both = Range("0", 0, 1), Range("1", 0, 1)
    assert piece(both, both) == {"X-TORN"}


def test_a_slice_that_cuts_a_piece_of_the_input_says_nothing_of_its_rows() -> None:
    for taken in ((Range("0", 2, 3),), (Range("0", 3, 4),), (Range("0", 3, 9),), (Range("0", 0, 3),)):
        assert piece((Range("0", 2, 4),), taken) == {"X-LOSS"}
    assert piece((Range("0", 0, 1), Range("1", 0, 1)), (Range("0", 0, 1),)) == {"X-LOSS"}


def test_pieces_beside_a_slice_are_not_in_it() -> None:
    tale = Tale("pg")
    for name in "abc":
        tale.input(f"{name}1", f"{name}2")
    for epoch in (1, 2, 3):
        tale.commit("pg", epoch, rows=None)
    tale.end(pg={"rows": [Row(row.identity) for row in without(tale.held["pg"], "b2")]}, ledger={"markers": None})
    assert [(str(finding.anomaly), finding.epoch) for finding in tale.judged().findings] == [("X-TORN", 2)]


def test_a_ledger_is_no_sink() -> None:
    tale = written("pg")
    tale.end(ledger={"rows": [Row("x")]})
    assert LEDGER not in {finding.sink for finding in tale.judged().findings}
    assert tale.anomalies() == set()
