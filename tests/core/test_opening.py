"""Every rule of the recovery table: one test that makes it speak, one that keeps it silent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.stories import (
    FROM_THE_LEDGER,
    SINK,
    SOURCES,
    adoption,
    at,
    batch,
    changed,
    cut,
    epochs,
    lineage,
    marked,
    offer,
    opening,
    reading,
)

from onceonly.errors import refuse
from onceonly.errors.codes import CATALOGUE
from onceonly.machine.acceptance import Stop, applicable, covers, option, stop_of
from onceonly.machine.comparison import decide_batch
from onceonly.machine.facts import Heal, NewEpoch, Proceed, Refusal, Skip
from onceonly.machine.opening import decide_opening
from onceonly.machine.source_order import kafka_identity
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.epoch import ResumePoint
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceIdentity, SourceOffsets, canonical

ONE, TWO, THREE = epochs(10, 20, 30)


def code(decision: object) -> str:
    """The code of a refusal, which must also be able to become an error."""
    assert isinstance(decision, Refusal), decision
    assert str(refuse(decision.code, **{**FROM_THE_LEDGER, **dict(decision.details)})).startswith("[ONCE-")
    return decision.code


# ---- opening


def test_a_fresh_sink_and_an_empty_ledger_proceed_from_nothing():
    assert decide_opening(opening(reading(None, rows=False, identity=""))) == Proceed(None)


def test_r2_equal_markers_proceed():
    assert decide_opening(opening(reading(TWO, known=TWO), head=TWO)) == Proceed(TWO)


def test_r6_a_sink_behind_its_receipt_is_blocked():
    assert code(decide_opening(opening(reading(ONE, known=TWO), head=TWO))) == "E207"


def test_r6_another_identity_is_blocked_before_being_behind():
    assert code(decide_opening(opening(reading(None, known=TWO, identity="table-2"), head=TWO))) == "E208"


def test_r6_a_vanished_target_is_blocked():
    assert code(decide_opening(opening(reading(None, known=TWO, identity="", rows=False), head=TWO))) == "E208"


def test_r6_a_restore_is_blocked_and_a_failover_is_only_noted():
    restored = ExternalChange("restored", "RESTORE to version 3", fatal=True)
    moved = ExternalChange("failed_over", "timeline 1 -> 2", fatal=False)
    assert code(decide_opening(opening(reading(TWO, known=TWO, disturbed=(restored,)), head=TWO))) == "E209"
    decision = decide_opening(opening(reading(TWO, known=TWO, disturbed=(moved,)), head=TWO))
    assert isinstance(decision, Proceed)
    assert [happening.reason for happening in decision.happenings] == ["timeline 1 -> 2"]


def test_r6_a_recreated_target_is_blocked_even_without_a_ledger():
    recreated = ExternalChange("recreated", "table oid 7 -> 9", fatal=True)
    assert code(decide_opening(opening(reading(TWO, disturbed=(recreated,))))) == "E208"


def test_r6_equal_epochs_with_different_chains_are_blocked():
    (other, *_) = epochs(11)
    assert code(decide_opening(opening(reading(other, known=other), head=ONE))) == "E210"


def test_r6_a_history_that_does_not_descend_from_the_ledger_is_blocked():
    foreign = epochs(11, 20)
    assert code(decide_opening(opening(reading(foreign[1], known=ONE, ahead=foreign[1:]), head=ONE))) == "E210"


def test_r6_a_marker_whose_chain_is_not_its_own_hash_is_blocked():
    forged = replace(TWO, written=cut(10, 21))
    assert code(decide_opening(opening(reading(forged, ahead=(forged,))))) == "E210"


def test_r6_is_taken_as_known_when_an_operator_accepts_it():
    accepted = Adoption(AdoptionKind.ACCEPT_LOSS, (SINK,), 2, 2)
    decision = decide_opening(opening(reading(ONE, known=TWO), head=TWO, accepted=accepted))
    assert isinstance(decision, Proceed)
    assert decision.last == ONE


@pytest.mark.parametrize(
    "accepted",
    [
        Adoption(AdoptionKind.ACCEPT_LOSS, ("memory:two",), 2, 2),
        Adoption(AdoptionKind.ACCEPT_LOSS, (), 2, 2),
        Adoption(AdoptionKind.ACCEPT_LOSS, (SINK,), 1, 1),
        Adoption(AdoptionKind.ACCEPT_STATE_LOSS),
        Adoption(AdoptionKind.ACCEPT_DUPLICATES, (), 1, 2),
        Adoption(AdoptionKind.KEEP_RECOMPUTED_STATE, (), 2, 2),
        Adoption(AdoptionKind.ACCEPT_CHANGE, (SINK,), versions=("9",)),
        Adoption(AdoptionKind.SAME_DATA, (SINK,)),
        Adoption(AdoptionKind.CONTINUE),
        Adoption(AdoptionKind.START),
    ],
    ids=lambda accepted: accepted.words,
)
def test_r6_an_acceptance_lets_nothing_pass_that_it_does_not_name(accepted):
    assert code(decide_opening(opening(reading(ONE, known=TWO), head=TWO, accepted=accepted))) == "E207"


def test_r6_what_is_accepted_for_one_sink_leaves_the_others_refused():
    three = changed(ONE, TWO, THREE, sinks=((SINK, 1), ("memory:two", 1)))
    swept = ExternalChange("overwritten", "WRITE as version 7", fatal=True, at=7)
    behind = reading(three[0], known=three[2], sink="memory:two")
    facts = opening(reading(three[2], known=three[2], disturbed=(swept,)), behind, head=three[2])
    assert code(decide_opening(facts)) == "E207"
    lost = replace(facts, accepted=Adoption(AdoptionKind.ACCEPT_LOSS, ("memory:two",), 2, 3))
    assert code(decide_opening(lost)) == "E209"
    undisturbed = opening(reading(three[2], known=three[2]), behind, head=three[2])
    assert isinstance(decide_opening(replace(undisturbed, accepted=lost.accepted)), Proceed)


def test_r6_a_change_is_accepted_up_to_the_version_that_is_named():
    swept = ExternalChange("deleted", "DELETE as version 7", fatal=True, at=7)
    facts = opening(reading(TWO, known=TWO, disturbed=(swept,)), head=TWO)
    for version, passes in ((6, False), (7, True), (8, True)):
        decision = decide_opening(
            replace(facts, accepted=Adoption(AdoptionKind.ACCEPT_CHANGE, (SINK,), versions=(str(version),)))
        )
        assert isinstance(decision, Proceed) is passes, version


def test_r6_each_of_two_changed_sinks_is_accepted_up_to_a_version_of_its_own():
    two = changed(ONE, TWO, sinks=((SINK, 1), ("memory:two", 1)))[1]

    def swept(first: int, second: int):
        one, other = (ExternalChange("deleted", "DELETE", fatal=True, at=at_) for at_ in (first, second))
        return opening(
            reading(two, known=two, disturbed=(one,)), reading(two, known=two, disturbed=(other,), sink="memory:two")
        )

    accepted = applicable(AdoptionKind.ACCEPT_CHANGE, stop_of(decide_opening(swept(12, 5))))
    assert accepted is not None
    assert option(accepted) == f"--accept-change --sink {SINK}@12 --sink memory:two@5"
    assert isinstance(decide_opening(replace(swept(12, 5), accepted=accepted)), Proceed)
    assert code(decide_opening(replace(swept(12, 11), accepted=accepted))) == "E209"


def test_r6_a_change_that_is_not_counted_is_accepted_by_what_was_seen_of_it():
    def seen(detail: str):
        return opening(reading(TWO, known=TWO, disturbed=(ExternalChange("restored", detail, fatal=True),)), head=TWO)

    accepted = applicable(
        AdoptionKind.ACCEPT_CHANGE, stop_of(decide_opening(seen("events/0 ends at 7, it once ended at 9")))
    )
    assert isinstance(
        decide_opening(replace(seen("events/0 ends at 7, it once ended at 9"), accepted=accepted)), Proceed
    )
    assert code(decide_opening(replace(seen("events/0 ends at 3, it once ended at 9"), accepted=accepted))) == "E209"


def test_r6_a_sink_whose_rows_were_set_back_under_its_markers_is_not_healed_above_the_lack_of_them():
    """A RESTORE of Delta leaves its markers: one that a crash left an epoch behind is no more than that by these."""
    three = changed(ONE, TWO, THREE, sinks=((SINK, 1), ("memory:two", 1)), manifest="file:/staging/e")
    restored = ExternalChange("restored", "RESTORE as version 9, back to version 4", fatal=True, at=9)
    behind = reading(three[1], known=three[1], disturbed=(restored,), sink="memory:two")
    facts = opening(reading(three[2], known=three[1], ahead=three[2:]), behind, head=three[1])
    refused = decide_opening(facts)
    assert (code(refused), stop_of(refused).sinks) == ("E209", ("memory:two",))
    accepted = applicable(AdoptionKind.ACCEPT_CHANGE, stop_of(refused))
    assert isinstance(decide_opening(replace(facts, accepted=accepted)), Heal)


def test_r6_two_sinks_that_were_set_back_are_named_together():
    three = changed(ONE, TWO, THREE, sinks=((SINK, 1), ("memory:two", 1)))
    facts = opening(
        reading(three[0], known=three[2]), reading(three[1], known=three[2], sink="memory:two"), head=three[2]
    )
    refused = decide_opening(facts)
    stop = stop_of(refused)
    assert (stop.code, stop.sinks, stop.first, stop.last) == ("E207", (SINK, "memory:two"), 2, 3)
    accepted = applicable(AdoptionKind.ACCEPT_LOSS, stop)
    assert isinstance(decide_opening(replace(facts, accepted=accepted)), Heal)  # what one of them holds is not lost


def test_r6_same_data_is_offered_only_where_it_lets_all_of_them_pass():
    three = changed(ONE, TWO, THREE, sinks=((SINK, 1), ("memory:two", 1)))
    moved = reading(three[2], known=three[2], identity="table-9")
    facts = opening(moved, reading(three[0], known=three[2], sink="memory:two"), head=three[2])
    refused = decide_opening(facts)
    assert (code(refused), dict(refused.details)["holds"]) == ("E208", False)
    accepted = applicable(AdoptionKind.ACCEPT_LOSS, stop_of(refused))
    assert accepted is not None
    assert accepted.sinks == (SINK, "memory:two")
    assert not isinstance(decide_opening(replace(facts, accepted=accepted)), Refusal)
    both = opening(moved, replace(reading(three[2], known=three[2], identity="t", sink="memory:two")), head=three[2])
    assert dict(decide_opening(both).details)["holds"] is True


def test_r6_another_target_that_brought_rows_along_lacks_only_the_epochs_behind_them():
    """What a table holds that was restored from a dump: what is given up, and whether all is there."""
    told = {
        None: (1, 3, False),  # it does not say
        0: (1, 3, False),
        2: (3, 3, False),
        3: (1, 3, True),
    }
    found = {}
    for content in told:
        replaced = replace(reading(THREE, known=THREE, identity="table-2"), content=content)
        refused = decide_opening(opening(replaced, head=THREE))
        moved = replace(
            reading(THREE, known=THREE, disturbed=(ExternalChange("moved", "there", True),)), content=content
        )
        both = [code(refused), code(decide_opening(opening(moved, head=THREE)))]
        assert both == ["E208", "E208"]
        stop, said = stop_of(refused), dict(refused.details)
        accepted = applicable(AdoptionKind.ACCEPT_LOSS, stop)
        assert decide_opening(opening(replaced, head=THREE, accepted=accepted)) == Proceed(THREE)
        found[content] = (stop.first, stop.last, said["holds"] or content is None)
    assert found == {**told, None: (1, 3, True)}


def test_r6_a_database_restored_from_a_dump_gives_up_no_epoch_that_it_holds():
    restored = replace(reading(ONE, known=THREE, identity="table-2"), content=1)
    stop = stop_of(decide_opening(opening(restored, head=THREE)))
    assert (stop.code, stop.first, stop.last) == ("E208", 2, 3)
    accepted = applicable(AdoptionKind.ACCEPT_LOSS, stop)
    assert decide_opening(opening(restored, head=THREE, accepted=accepted)) == Proceed(ONE)


def test_r3_another_target_is_not_brought_to_the_epoch_that_was_given_up():
    three = changed(ONE, TWO, THREE, sinks=((SINK, 1), ("memory:two", 1)), manifest="m")
    dumped = replace(reading(three[1], known=three[2], identity="table-2"), content=2)
    facts = opening(dumped, reading(three[2], known=three[2], sink="memory:two"), head=three[2])
    stop = stop_of(decide_opening(facts))
    assert (stop.code, stop.sinks, stop.first, stop.last) == ("E208", (SINK,), 3, 3)
    accepted = applicable(AdoptionKind.ACCEPT_LOSS, stop)
    assert decide_opening(replace(facts, accepted=accepted)) == Proceed(three[2])


def test_first_contact_with_rows_of_unknown_origin_is_refused_unless_adopted():
    assert code(decide_opening(opening(reading(None, rows=True)))) == "E201"
    assert decide_opening(opening(reading(None, rows=True), adopt=True)) == Proceed(None)


def test_r13_a_listed_sink_missing_from_the_call_is_refused():
    (both,) = changed(ONE, sinks=((SINK, 1), ("memory:two", 1)))
    assert code(decide_opening(opening(reading(both)))) == "E213"


def test_r13_a_name_that_the_ledger_knows_from_other_sinks_only_is_refused_before_anything_is_written():
    new = reading(None, sink="memory:two", rows=False, identity="")
    assert code(decide_opening(opening(new, head=ONE))) == "E213"
    assert decide_opening(opening(new)) == Proceed(None)
    assert (
        code(decide_opening(opening(new, head=ONE, accepted=Adoption(AdoptionKind.ACCEPT_LOSS, (SINK,), 1, 1))))
        == "E213"
    )
    both = opening(reading(ONE, known=ONE), new, head=ONE)
    assert decide_opening(both) == Proceed(ONE)


def test_r13_a_new_sink_with_rows_is_refused_and_an_empty_one_joins():
    stranger = reading(None, sink="memory:two", rows=True)
    assert code(decide_opening(opening(reading(ONE), stranger))) == "E202"
    empty = reading(None, sink="memory:two", rows=False, identity="")
    assert isinstance(decide_opening(opening(reading(ONE, known=ONE), empty, head=ONE)), Proceed)


def test_r3_a_sink_one_epoch_behind_is_healed_from_the_highest_marker():
    first, second = changed(ONE, TWO, sinks=((SINK, 1), ("memory:two", 1)))
    behind = reading(first, known=first, sink="memory:two")
    decision = decide_opening(opening(reading(second, known=first, ahead=(second,)), behind, head=first))
    assert decision == Heal(("memory:two",), marked(second))


def test_r3_never_joins_a_listed_sink_that_has_no_marker_yet():
    (first,) = changed(ONE, sinks=((SINK, 1), ("memory:two", 1)))
    empty = reading(None, sink="memory:two", rows=False, identity="")
    decision = decide_opening(opening(reading(first, ahead=(first,)), empty))
    assert decision == Heal(("memory:two",), marked(first))


def test_r6_two_epochs_behind_the_others_is_blocked():
    (third,) = changed(THREE, sinks=((SINK, 1), ("memory:two", 1)))
    behind = reading(ONE, sink="memory:two")
    assert code(decide_opening(opening(reading(third), behind))) == "E207"


def test_r5_markers_ahead_of_the_ledger_are_indexed():
    decision = decide_opening(opening(reading(THREE, known=ONE, ahead=(TWO, THREE)), head=ONE))
    assert isinstance(decision, Proceed)
    assert [pair[0].epoch.number for pair in decision.index] == [2, 3]
    assert decision.last == THREE


def test_r5_a_lost_ledger_is_filled_from_the_sink():
    decision = decide_opening(opening(reading(THREE, ahead=(ONE, TWO, THREE))))
    assert isinstance(decision, Proceed)
    assert len(decision.index) == 3


def test_r5_a_marker_text_that_aged_out_needs_the_ledger():
    assert decide_opening(opening(reading(None, known=TWO, number=2), head=TWO)) == Proceed(TWO)
    assert code(decide_opening(opening(reading(None, number=2)))) == "E216"


def test_r5_an_operator_can_say_where_a_number_without_a_text_stands():
    forgotten = reading(None, number=2)
    for kind in (AdoptionKind.START, AdoptionKind.CONTINUE):
        decision = decide_opening(opening(forgotten, accepted=Adoption(kind)))
        assert isinstance(decision, Proceed)
        assert decision.last is None
    assert code(decide_opening(opening(forgotten, accepted=Adoption(AdoptionKind.ACCEPT_LOSS)))) == "E216"


def test_r13_only_the_sink_that_is_dropped_may_be_missing():
    (listed,) = changed(ONE, sinks=((SINK, 1), ("memory:two", 1), ("memory:three", 1)))
    assert code(decide_opening(opening(reading(listed), dropped="memory:two"))) == "E213"
    (pair,) = changed(ONE, sinks=((SINK, 1), ("memory:two", 1)))
    assert decide_opening(opening(reading(pair, known=pair), head=pair, dropped="memory:two")) == Proceed(pair)


def test_r6_is_not_taken_as_known_when_a_sink_is_dropped():
    assert code(decide_opening(opening(reading(ONE, known=TWO), head=TWO, dropped="memory:two"))) == "E207"


def test_r13_a_sink_that_comes_back_is_refused_unless_adopted():
    back = reading(ONE, sink="memory:two")
    assert code(decide_opening(opening(reading(THREE, known=THREE), back, head=THREE))) == "E202"
    assert isinstance(decide_opening(opening(reading(THREE, known=THREE), back, head=THREE, adopt=True)), Proceed)


def test_r3_is_silent_about_an_epoch_that_was_given_up():
    first, second = changed(ONE, TWO, sinks=((SINK, 1), ("memory:two", 1)))
    readings = (reading(second, known=second), reading(first, known=first, sink="memory:two"))
    assert isinstance(
        decide_opening(opening(*readings, head=second, accepted=Adoption(AdoptionKind.ACCEPT_LOSS), lost=2)), Proceed
    )


# ---- batches


def test_r8_the_first_batch_of_an_empty_pipeline_is_epoch_one():
    assert decide_batch(batch(None, offer(cut(None, 10), 0))) == NewEpoch(1)


def test_first_contact_in_the_middle_of_a_stream_is_refused_unless_adopted():
    assert code(decide_batch(batch(None, offer(cut(40, 50), 4)))) == "E217"
    assert isinstance(decide_batch(batch(None, offer(cut(40, 50), 4), adopt="here")), NewEpoch)
    assert isinstance(decide_batch(batch(None, offer(cut(40, 50), 4), adopt=at(40))), NewEpoch)
    assert code(decide_batch(batch(None, offer(cut(40, 50), 4), adopt=at(39)))) == "E218"


def test_r8_a_slice_that_starts_at_the_last_end_is_the_next_epoch():
    assert decide_batch(batch(TWO, offer(cut(20, 30), 2))) == NewEpoch(3)


def test_r8_an_empty_slice_is_an_epoch_of_its_own_and_never_matched_across_batch_ids():
    nothing = offer(cut(20, 20), 2)
    assert decide_batch(batch(TWO, nothing)) == NewEpoch(3)


def test_r7_the_same_batch_is_a_proven_skip():
    decision = decide_batch(batch(THREE, offer(TWO.written, 1), descent=(TWO, THREE)))
    assert decision == Skip(TWO, execute=False)


def test_r7_a_stateful_skip_still_executes():
    decision = decide_batch(batch(TWO, offer(TWO.written, 1, stateful=True), descent=(TWO,)))
    assert decision == Skip(TWO, execute=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"slice": cut(10, 21)},
        {"lineage": lineage(1, clock=5)},
        {"lineage": replace(lineage(1), watermark_ms=7)},
        {"sources": (replace(SOURCES[0], inputs="other files"),)},
    ],
    ids=["slice", "clock", "watermark", "files"],
)
def test_r7_one_batch_id_for_something_else_is_blocked(changed):
    assert code(decide_batch(batch(TWO, offer(TWO.written, 1, **changed), descent=(TWO,)))) == "E205"


@pytest.mark.parametrize(("last", "descent", "alone"), [(TWO, (TWO,), " --entry 1"), (THREE, (TWO, THREE), "")])
def test_r7_an_entry_is_put_back_alone_only_where_none_comes_after_it(last, descent, alone):
    refused = decide_batch(batch(last, offer(cut(10, 25), 1), descent=descent))
    assert code(refused) == "E205"
    assert (dict(refused.details)["alone"], dict(refused.details)["each"]) == (alone, "")


def test_r7_entries_of_a_query_with_state_are_put_back_one_after_the_other():
    refused = decide_batch(batch(THREE, offer(cut(10, 25), 1, stateful=True), descent=(TWO, THREE)))
    assert code(refused) == "E205"
    assert (dict(refused.details)["alone"], dict(refused.details)["each"]) == (
        " --entry 1",
        ", one batch after the other up to 2",
    )


def test_r7_a_record_that_does_not_lead_to_the_marker_proves_nothing():
    foreign = epochs(11, 20)
    assert code(decide_batch(batch(TWO, offer(foreign[1].written, 1), descent=(foreign[1],)))) == "E210"


def test_r7_a_ledger_with_a_hole_proves_nothing_and_says_how_to_fill_it():
    # It was lost, and a driver that was fenced out meanwhile recorded the epoch that it had committed before.
    refused = decide_batch(batch(THREE, offer(ONE.written, 0), descent=(ONE, THREE)))
    assert code(refused) == "E203"
    assert "lacks epoch 2" in str(dict(refused.details)["cause"])
    assert dict(refused.details)["hole"] == 2


def test_r7_is_silent_for_a_batch_that_an_operator_moved_back_over():
    moved = adoption(THREE, "accept-duplicates", at(10))
    decision = decide_batch(batch(moved, offer(TWO.written, 1), descent=(TWO, THREE, moved)))
    assert decision == NewEpoch(5)


def test_r7_is_silent_for_a_batch_that_an_operator_said_comes_next():
    moved = adoption(THREE, "start", at(10))
    assert decide_batch(batch(moved, offer(TWO.written, 1), descent=(TWO, THREE, moved))) == NewEpoch(5)
    elsewhere = adoption(THREE, "start", at(0))
    skipped = decide_batch(batch(elsewhere, offer(TWO.written, 1), descent=(TWO, THREE, elsewhere)))
    assert skipped == Skip(TWO, execute=False)


def test_r8_a_gap_is_blocked_and_names_the_empty_batch_trap():
    assert code(decide_batch(batch(TWO, offer(cut(25, 30), 2)))) == "E204"
    assert "isEmpty" in CATALOGUE[code(decide_batch(batch(TWO, offer(cut(25, 30), 3))))].cause


def test_r8_a_checkpoint_that_has_finished_more_batches_is_called_ahead_of_sink_and_ledger():
    ahead = decide_batch(batch(TWO, offer(cut(25, 30), 3)))
    assert code(ahead) == "E229"
    assert {"first": 3, "last": 3, "batch": 2}.items() <= dict(ahead.details).items()
    assert code(decide_batch(batch(TWO, offer(cut(25, 30), 3, "q2")))) == "E204"
    assert isinstance(decide_batch(batch(TWO, offer(cut(20, 30), 7))), NewEpoch)  # batch ids have legal gaps
    stood = adoption(TWO, "drop-sink", at(20), sinks=("memory:two",))
    assert code(decide_batch(batch(stood, offer(cut(25, 30), 3)))) == "E229"


def test_r8_an_overlap_is_blocked():
    assert code(decide_batch(batch(TWO, offer(cut(5, 30), 3)))) == "E203"


def test_r8_a_new_checkpoint_that_goes_on_exactly_is_accepted_for_a_source_with_an_identity():
    decision = decide_batch(batch(TWO, offer(cut(20, 30), 0, "q2")))
    assert isinstance(decision, NewEpoch)
    assert decision.happenings


def test_r8_a_new_checkpoint_over_a_source_without_identity_is_blocked():
    files = (SourceIdentity("0", "files:FileStreamSource[file:/in]", "abc"),)
    (last,) = changed(TWO, sources=files)
    assert code(decide_batch(batch(last, offer(cut(20, 30), 0, "q2", sources=files)))) == "E211"


def test_r8_a_deleted_checkpoint_is_blocked_even_if_the_offsets_read_the_same():
    (first,) = changed(ONE, sources=SOURCES)
    assert code(decide_batch(batch(first, offer(cut(None, 10), 0, "q2")))) == "E211"


def test_r8_an_overlap_on_a_new_lineage_names_both_query_ids():
    decision = decide_batch(batch(TWO, offer(cut(15, 30), 0, "q2")))
    assert code(decision) == "E203"
    assert "q1" in str(dict(decision.details)["cause"])
    assert "q2" in str(dict(decision.details)["cause"])


def test_r8_another_source_is_blocked_and_an_added_named_one_is_not():
    other = (SourceIdentity("0", kafka_identity("cluster", {"events": "id-2"})),)
    assert code(decide_batch(batch(TWO, offer(cut(20, 30), 2, sources=other)))) == "E212"


def test_r8_another_topic_of_the_same_cluster_is_another_source():
    other = (SourceIdentity("0", kafka_identity("cluster", {"invoices": "id-9"})),)
    for query in ("q1", "q2"):
        assert code(decide_batch(batch(TWO, offer(cut(5, 30), 0, query, sources=other)))) == "E212"
    none_yet = (SourceIdentity("0", kafka_identity("cluster", {})),)  # a pattern that no topic matches
    assert decide_batch(batch(TWO, offer(cut(20, 20), 2, sources=none_yet))) == NewEpoch(3)
    more = (SourceIdentity("0", kafka_identity("cluster", {"events": "id-1", "invoices": "id-9"})),)
    assert decide_batch(batch(TWO, offer(cut(20, 30), 2, sources=more))) == NewEpoch(3)


def topics(**ends: int) -> SourceOffsets:
    return SourceOffsets.of({"0": canonical({topic: {"0": end} for topic, end in ends.items()})})


def test_r8_positions_are_compared_partition_by_partition():
    """A topic that went or came beside others: what a batch is that starts elsewhere than where the epoch ended."""
    named = (SourceIdentity("0", kafka_identity("cluster", {"a": "1", "b": "2", "c": "3"})),)
    (last,) = changed(ONE, written=Slice(topics(), topics(a=2, b=1)), sources=named)
    told = {
        "b alone goes on": (topics(b=1), "E250"),
        "b alone comes again": (topics(b=0), "E203"),
        "b alone skips": (topics(b=5), "E204"),
        "c comes": (topics(a=2, b=1, c=0), "E250"),
        "c comes and a goes": (topics(b=1, c=7), "E250"),
        "both go on": (topics(a=2, b=1), None),
        "both ways": (topics(a=3, b=0), "E203"),
    }
    found = {}
    for what, (start, _) in told.items():
        offered = offer(Slice(start, topics(a=9, b=9, c=9)), 0, "q2", sources=named)
        decision = decide_batch(batch(last, offered))
        found[what] = start, code(decision) if isinstance(decision, Refusal) else None
        if found[what][1] == "E250":
            stop = stop_of(decision, offered.range, 1)
            accepted = applicable(AdoptionKind.CONTINUE, stop, last.written.end)
            assert covers(accepted, stop)
            went_on = adoption(last, "continue", start)
            assert decide_batch(batch(went_on, offered)) == NewEpoch(3)
    assert found == told
    said = dict(
        decide_batch(batch(last, offer(Slice(topics(b=1, c=7), topics(b=9, c=9)), 0, "q2", sources=named))).details
    )
    assert said["difference"] == (
        "no longer reads partition 0 of a (read up to 2) and also reads partition 0 of c (from 7 on)"
    )


def test_r8s_a_stateful_query_on_a_new_lineage_is_blocked_until_accepted():
    lost = offer(cut(None, 30), 0, "q2", stateful=True)
    assert code(decide_batch(batch(TWO, lost))) == "E206"
    accepted = adoption(TWO, "accept-state-loss", at(20))
    goes_on = offer(cut(20, 30), 0, "q2", stateful=True)
    assert isinstance(decide_batch(batch(accepted, goes_on)), NewEpoch)
    assert code(decide_batch(batch(accepted, lost))) == "E211"  # the state was given up, no row
    again = offer(cut(0, 30), 0, "q2", stateful=True)
    assert code(decide_batch(batch(accepted, again))) == "E203"
    both = adoption(accepted, "accept-duplicates", at(0), first=1, last=2)
    assert decide_batch(batch(both, again)) == NewEpoch(5)


def test_r8s_what_stops_the_batch_next_is_numbered_behind_the_acceptance_of_the_loss_of_state():
    refused = decide_batch(batch(TWO, offer(cut(40, 50), 0, "q2", stateful=True)))
    assert isinstance(refused, Refusal)
    after = dict(refused.details)["after"]
    assert isinstance(after, Refusal)
    assert after.code == "E204"
    assert {name: value for name, value in after.details if name in {"epoch", "first", "last"}} == {
        "epoch": 3,
        "first": 4,
        "last": 4,
    }


def test_r8_goes_on_after_an_adoption_whatever_the_lineage():
    adopted = adoption(TWO, "accept-duplicates", at(None))
    assert decide_batch(batch(adopted, offer(cut(None, 5), 0, "q9"))) == NewEpoch(4)


@pytest.mark.parametrize("kind", ["drop-sink", "keep-recomputed-state"])
def test_r8_an_adoption_that_leaves_the_source_alone_lets_no_other_source_pass(kind):
    adopted = adoption(TWO, kind, at(20))
    assert decide_batch(batch(adopted, offer(cut(20, 30), 2))) == NewEpoch(4)
    other = (SourceIdentity("0", kafka_identity("cluster", {"events": "id-2"})),)
    assert code(decide_batch(batch(adopted, offer(cut(20, 30), 2, sources=other)))) == "E212"
    elsewhere = offer(cut(None, 20), 0, "q2")
    assert code(decide_batch(batch(adopted, elsewhere))) == "E211"


def test_r11_missing_input_blocks_before_anything_is_read():
    gone = offer(cut(20, 30), 2, missing=("file:/in/a.csv",))
    assert code(decide_batch(batch(TWO, gone))) == "E214"
    accepted = adoption(TWO, "accept-loss", at(20), first=3, last=3, offsets=gone.slice)
    assert decide_batch(batch(accepted, gone)) == NewEpoch(4)


def test_r11_a_loss_that_names_something_else_lets_no_missing_input_pass():
    gone = offer(cut(20, 30), 2, missing=("file:/in/a.csv",))
    of_a_sink = adoption(TWO, "accept-loss", at(20), sinks=(SINK,), first=1, last=2)
    assert code(decide_batch(batch(of_a_sink, gone))) == "E214"
    of_another_range = adoption(TWO, "accept-loss", at(20), first=3, last=3, offsets=cut(20, 40))
    assert code(decide_batch(batch(of_another_range, gone))) == "E214"


def test_r11_input_that_is_gone_before_the_first_epoch_can_be_given_up():
    gone = offer(cut(None, 10), 0, missing=("file:/in/a.csv",))
    accepted = applicable(AdoptionKind.ACCEPT_LOSS, Stop("E214", first=1, last=1, offered=gone.slice))
    assert accepted is not None
    stays = adoption(ONE, "accept-loss", at(None), first=1, last=1, offsets=accepted.offsets)
    nowhere = Slice(at(None), at(None))
    moved = replace(stays, number=1, written=nowhere, sources=(), carried=ResumePoint(None, (accepted,)))
    assert decide_batch(batch(moved, gone)) == NewEpoch(2)
    other_input_too = offer(cut(None, 20), 0, missing=("file:/in/a.csv", "file:/in/b.csv"))
    assert code(decide_batch(batch(moved, other_input_too))) == "E214"


def test_r11_a_stateless_skip_needs_no_input_but_a_stateful_one_does():
    gone = offer(TWO.written, 1, missing=("file:/in/a.csv",))
    assert isinstance(decide_batch(batch(TWO, gone, descent=(TWO,))), Skip)
    assert code(decide_batch(batch(TWO, replace(gone, stateful=True), descent=(TWO,)))) == "E214"


def test_rows_that_another_pipeline_wrote_name_it_as_the_likely_former_name():
    theirs = replace(reading(None, rows=True), position=replace(reading(None, rows=True).position, writers=("a1",)))
    decision = decide_opening(opening(theirs))
    assert isinstance(decision, Refusal)
    said = str(refuse(decision.code, **dict(decision.details)))
    assert 'name="a1"' in said
    assert said.index('name="a1"') < said.index('adopt="here"')
    assert 'name="' not in str(refuse("E201", **dict(decide_opening(opening(reading(None, rows=True))).details)))
