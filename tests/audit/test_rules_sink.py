"""Each rule over one sink: one history that fires it, and the true one beside it that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.audit.histories import (
    FENCE,
    PIPELINE,
    SINK,
    at,
    entry,
    epoch_after,
    epochs,
    ledger_of,
    relinked,
    sink_of,
    slice_,
    true_facts,
    with_history,
    with_ledger,
    with_rows,
    with_sink,
    without_ledger,
)

from onceonly.audit import Severity, Verdict, judge, rules_sink
from onceonly.audit.facts import Content, Facts
from onceonly.audit.finding import exit_code_of
from onceonly.audit.sink_history import line_of
from onceonly.protocol.values import ExternalChange, PrunedEpochs, RowTotals, ToleratedChanges
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence
from onceonly_checkpoints.model import Adoption, AdoptionKind, SourceOffsets


def codes(facts: Facts) -> list[str]:
    return [finding.code for finding in judge(facts).findings]


def only(facts: Facts, code: str):
    found = [finding for finding in judge(facts).findings if finding.code == code]
    assert len(found) == 1, judge(facts).text
    return found[0]


def of_line(line: tuple[Epoch, ...], **changed: object) -> Facts:
    return with_sink(Facts(PIPELINE, (sink_of(line),), ledger_of(line)), **changed)


def test_a_true_history_has_no_findings() -> None:
    result = judge(true_facts())
    assert (result.verdict, result.findings, result.exit_code) == (Verdict.EXACTLY_ONCE, (), 0)
    assert "epochs 1 to 4" in result.scope
    assert "29 rows counted" in result.scope


def test_missing_rows_of_one_epoch_are_a_gap_at_that_epoch() -> None:
    facts = with_rows(true_facts(), e3=6)
    finding = only(facts, "A121")
    assert (finding.epoch, judge(facts).verdict, judge(facts).exit_code) == (3, Verdict.GAPS, 1)
    assert "7 rows were committed, 6 are there: 1 missing" in finding.evidence


def test_a_sink_that_holds_the_rows_of_an_older_epoch_is_taken_back_there() -> None:
    """As where a table was filled from a dump under its markers: the source has the rest, and nothing is lost."""
    facts = with_sink(true_facts(), rows={1: 10}, holds=2)
    remedy = next(finding for finding in judge(facts).findings if finding.code == "A121").remedy
    assert "onceonly recover rewind orders --ledger sqlite:///l.db --to 2" in remedy
    assert remedy.index("recover rewind") < remedy.index("replay run 3..3 --query orders --ledger sqlite:///l.db")
    for holds in (None, 4):
        remedy = only(with_rows(with_sink(true_facts(), holds=holds), e3=6), "A121").remedy
        assert "recover rewind" not in remedy, "some rows are gone, and the sink stands at no older epoch"


def test_an_epoch_without_any_row_left_is_a_gap() -> None:
    assert only(with_sink(true_facts(), rows={1: 10, 4: 12}), "A121").epoch == 3


def test_an_empty_epoch_may_be_absent_from_the_count() -> None:
    assert codes(with_sink(true_facts(), rows={1: 10, 3: 7, 4: 12})) == []


def test_too_many_rows_of_one_epoch_are_duplicates() -> None:
    facts = with_rows(true_facts(), e4=24)
    assert only(facts, "A122").epoch == 4
    assert judge(facts).verdict == Verdict.DUPLICATES


def test_rows_without_a_marker_are_reported() -> None:
    facts = with_rows(true_facts(), e9=5)
    assert only(facts, "A123").epoch == 9
    assert judge(facts).verdict == Verdict.DUPLICATES


def test_rows_committed_while_counting_are_not_compared() -> None:
    facts = with_sink(true_facts(), rows={1: 10, 3: 7}, counted=3)
    assert codes(facts) == []


def test_what_others_did_to_rows_that_were_countable_cannot_be_told_and_is_no_clean_answer() -> None:
    shared = with_sink(true_facts(), rows=None, others=("second",))
    assert 'pipeline "second"' in next(finding for finding in judge(shared).findings if finding.code == "A120").evidence
    assert (judge(shared).verdict, judge(shared).exit_code) == (Verdict.CANNOT_TELL, 2)
    deleted = with_sink(true_facts(), rows=None, disturbances=(ExternalChange("deleted", "DELETE", fatal=True),))
    assert "several epochs" in only(deleted, "A120").evidence


def test_fail_on_info_counts_what_is_only_told() -> None:
    findings = judge(with_sink(true_facts(), rows={0: 5, 1: 10, 3: 7, 4: 12})).findings
    codes_of = {severity: exit_code_of(findings, severity) for severity in Severity}
    assert codes_of == {Severity.ERROR: 0, Severity.WARN: 0, Severity.INFO: 1}


def test_rows_that_no_epoch_brought_are_told_and_not_judged() -> None:
    facts = with_sink(true_facts(), rows={0: 5, 1: 10, 3: 7, 4: 12})
    assert "5 rows" in only(facts, "A128").evidence
    assert (judge(facts).verdict, judge(facts).exit_code) == (Verdict.EXACTLY_ONCE, 0)
    assert "29 rows counted there" in judge(facts).scope


def test_an_upsert_with_a_broken_chain_is_still_found_out() -> None:
    line = epochs()
    facts = with_sink(with_history(true_facts(), (line[0], line[2], line[3])), rows=None, append_only=False)
    assert judge(facts).verdict == Verdict.GAPS


def test_a_marker_missing_between_two_others_is_a_gap() -> None:
    line = epochs()
    facts = with_history(true_facts(), (line[0], line[1], line[3]))
    finding = only(facts, "A111")
    assert finding.epoch == 3
    assert "the ledger's record of it fits in" in finding.evidence
    assert "A123" not in codes(facts)


def test_rows_of_a_missing_marker_are_named_when_no_ledger_proves_them() -> None:
    line = epochs()
    found = codes(without_ledger(with_history(true_facts(), (line[0], line[1], line[3]))))
    assert {"A111", "A123"} <= set(found)


def test_a_marker_whose_content_was_edited_is_unsound() -> None:
    line = epochs()
    edited = replace(line[2], digest=Digest(8, 1, 1))
    facts = with_rows(with_history(true_facts(), (*line[:2], edited, line[3])), e3=8)
    assert only(facts, "A110").epoch == 3
    assert judge(facts).verdict == Verdict.IN_DOUBT


def test_an_epoch_of_another_history_breaks_the_chain() -> None:
    line, other = epochs(), epochs((9, 9, 7, 12))
    facts = without_ledger(of_line((*line[:2], *other[2:])))
    assert only(facts, "A112").epoch == 3
    assert "A110" not in codes(facts)


def test_a_first_epoch_that_names_a_predecessor_is_reported() -> None:
    third = epochs()[2]
    facts = without_ledger(of_line(relinked([replace(third, number=1)])))
    assert only(facts, "A112").epoch == 1


@pytest.mark.parametrize(
    ("start", "code", "verdict"),
    [(250, "A113", Verdict.GAPS), (150, "A114", Verdict.DUPLICATES)],
)
def test_a_slice_that_does_not_continue_is_a_gap_or_an_overlap(start: int, code: str, verdict: Verdict) -> None:
    one = epochs((10, 5))
    third = epoch_after(one[1], 7, written=slice_(start, 300))
    facts = of_line((*one, third, epoch_after(third, 1)))
    finding = only(facts, code)
    assert (finding.epoch, judge(facts).verdict) == (3, verdict)
    assert str(start) in finding.evidence
    assert "200" in finding.evidence


def test_offsets_that_cannot_be_ordered_are_in_doubt() -> None:
    first = epoch_after(None, 3)
    second = epoch_after(first, 3, written=replace(first.written, start=SourceOffsets.of({"0": "shard-b"})))
    facts = of_line((first, second))
    assert only(facts, "A115").epoch == 2
    assert judge(facts).verdict == Verdict.IN_DOUBT


def test_an_adoption_is_an_event_and_not_a_gap() -> None:
    one = epochs((10, 5))
    moved = epoch_after(one[1], 0, written=slice_(200, 900), adoption="accept-loss: files deleted")
    facts = of_line((*one, moved, epoch_after(moved, 4, written=slice_(900, 950))))
    result = judge(facts)
    assert [finding.code for finding in result.findings] == ["A116"]
    assert "files deleted" in result.findings[0].evidence
    assert (result.verdict, result.exit_code) == (Verdict.EXACTLY_ONCE, 0)
    assert result.spoken == "EXACTLY ONCE (rows given up, accepted)"


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        ((Adoption(AdoptionKind.ACCEPT_DUPLICATES, first=1, last=2),), "rows of epochs 1 to 2 written again, accepted"),
        ((Adoption(AdoptionKind.ACCEPT_LOSS, ("delta:t",), 2, 2),), "rows of epoch 2 given up, accepted"),
        ((Adoption(AdoptionKind.ACCEPT_CHANGE, ("delta:t",), versions=("7",)),), "changes by others, accepted"),
        (
            (Adoption(AdoptionKind.KEEP_RECOMPUTED_STATE, first=2, last=2),),
            "state of epoch 2 kept as it was recomputed, accepted",
        ),
        ((Adoption(AdoptionKind.CONTINUE), Adoption(AdoptionKind.START)), "another start, accepted"),
        ((Adoption(AdoptionKind.SAME_DATA, ("delta:t",)), Adoption(AdoptionKind.DROP_SINK, ("delta:old",))), ""),
        (
            (
                Adoption(AdoptionKind.ACCEPT_LOSS, first=1, last=2),
                Adoption(AdoptionKind.ACCEPT_LOSS, offsets=slice_(100, 200)),
            ),
            "rows of epochs 1 to 2 given up, accepted; rows given up, accepted",
        ),
        (
            (
                Adoption(AdoptionKind.ACCEPT_LOSS, first=1, last=1),
                Adoption(AdoptionKind.START),
                Adoption(AdoptionKind.ACCEPT_LOSS, first=2, last=2),
            ),
            "rows of epochs 1 to 2 given up, accepted; another start, accepted",
        ),
    ],
)
def test_the_headline_names_what_an_operator_accepted(taken: tuple[Adoption, ...], said: str) -> None:
    line = epochs((10, 5))
    for one in taken:
        line = (*line, epoch_after(line[-1], 0, adoption=one))
    assert judge(of_line(line)).spoken == (f"EXACTLY ONCE ({said})" if said else "EXACTLY ONCE")


def test_an_adoption_that_moves_back_accepts_duplicates() -> None:
    one = epochs((10, 5))
    moved = epoch_after(one[1], 0, written=slice_(200, 100), adoption="accept-duplicates: asked for")
    again = epoch_after(moved, 5, written=slice_(100, 200))
    assert codes(of_line((*one, moved, again))) == ["A116"]


def test_epochs_that_may_have_come_again_are_named_where_nobody_knew_what_a_batch_repeats() -> None:
    lost = Adoption(AdoptionKind.ACCEPT_LOSS, sinks=(SINK,), first=1, last=2)
    for adoption, wanted in (
        (Adoption(AdoptionKind.CONTINUE, first=1, last=2), {"A116": 3, "A198": 1}),
        (Adoption(AdoptionKind.CONTINUE), {"A116": 3}),
        (lost, {"A116": 3}),
    ):
        before = epochs((10, 5))
        line = (*before, epoch_after(before[1], 0, adoption=adoption))
        told = {finding.code: finding.epoch for finding in judge(of_line(line)).findings}
        assert told == wanted, adoption
        judged = line_of(sink_of(line), None)
        assert {one.code for one in rules_sink.adoptions(judged)} == set(wanted), adoption


def test_one_epoch_with_two_markers_is_a_duplicate() -> None:
    line = epochs()
    second = entry(line[2])
    twice = replace(second[1], position=(("entry", 9),))
    history = (*(entry(epoch) for epoch in line[:3]), (second[0], twice), entry(line[3]))
    facts = with_sink(true_facts(), history=history)
    assert "at entry 3 and again at entry 9" in only(facts, "A117").evidence
    assert judge(facts).verdict == Verdict.DUPLICATES


def test_a_newer_driver_taking_over_is_no_finding() -> None:
    line = epochs()
    newer = Fence(2, "b" * 32)
    history = (*(entry(epoch) for epoch in line[:2]), *(entry(epoch, fence=newer) for epoch in line[2:]))
    assert codes(with_sink(true_facts(), history=history, fence=newer)) == []


@pytest.mark.parametrize("late", [Fence(1, "a" * 32), Fence(2, "c" * 32)])
def test_an_older_or_second_owner_writing_later_is_found(late: Fence) -> None:
    line = epochs()
    fences = (FENCE, Fence(2, "b" * 32), late, late)
    history = tuple(entry(epoch, fence=fence) for epoch, fence in zip(line, fences, strict=True))
    facts = with_sink(true_facts(), history=history)
    assert only(facts, "A118").epoch == 3


def test_a_history_that_starts_late_is_proven_by_the_ledger() -> None:
    line = epochs()
    facts = with_history(true_facts(), line[2:])
    finding = only(facts, "A103")
    assert (finding.epoch, judge(facts).verdict, judge(facts).exit_code) == (1, Verdict.EXACTLY_ONCE, 0)
    assert len(judge(facts).epochs) == 4


def test_a_history_that_starts_late_without_a_ledger_cannot_be_told() -> None:
    facts = without_ledger(with_history(true_facts(), epochs()[2:]))
    result = judge(facts)
    assert "nothing proves epochs 1 to 2" in only(facts, "A104").evidence
    assert (result.verdict, result.exit_code) == (Verdict.CANNOT_TELL, 2)


def test_a_ledger_of_another_history_proves_nothing() -> None:
    facts = with_history(true_facts(), epochs()[2:])
    other = ledger_of(epochs((99, 99, 99, 99)))
    found = codes(with_ledger(facts, records=other.records))
    assert "A104" in found
    assert "A103" not in found


def test_rows_of_an_aged_epoch_are_compared_where_they_are_counted() -> None:
    facts = with_rows(with_history(true_facts(), epochs()[2:]), e1=9)
    assert only(facts, "A121").epoch == 1


def test_a_sink_that_joined_later_starts_where_it_joined() -> None:
    line = epochs()
    joined = relinked([replace(epoch, sinks=(("other", 1), ("memory:orders", 3))) for epoch in line[2:]])
    found = codes(without_ledger(of_line(joined)))
    assert "A104" not in found
    assert "A112" not in found


def test_a_receipt_that_names_other_rows_than_the_digest_is_in_doubt() -> None:
    line = epochs()
    marker, receipt = entry(line[2])
    history = (*(entry(epoch) for epoch in line[:2]), (marker, replace(receipt, rows=6)), entry(line[3]))
    facts = with_sink(true_facts(), history=history)
    assert only(facts, "A124").epoch == 3


def test_a_target_that_became_another_one_is_found_in_its_own_history() -> None:
    line = epochs()
    later = tuple((marker, replace(receipt, identity="table-2")) for marker, receipt in map(entry, line[2:]))
    facts = without_ledger(with_sink(true_facts(), history=(*map(entry, line[:2]), *later)))
    assert only(facts, "A134").epoch == 3


def test_a_target_whose_identity_is_not_known_yet_did_not_become_another_one() -> None:
    (marker, receipt), *later = map(entry, epochs())
    facts = with_sink(true_facts(), history=((marker, replace(receipt, identity="")), *later))
    assert "A134" not in codes(without_ledger(facts))


def test_an_adopted_change_of_the_target_is_not_reported() -> None:
    one = epochs((10, 5))
    moved = epoch_after(one[1], 0, written=slice_(200, 200), adoption="accept-change: new table")
    line = (*one, moved, epoch_after(moved, 4, written=slice_(200, 250)))
    later = tuple((marker, replace(receipt, identity="table-2")) for marker, receipt in map(entry, line[2:]))
    facts = of_line(line, history=(*map(entry, line[:2]), *later))
    assert "A134" not in codes(without_ledger(facts))


def test_the_first_epoch_that_disagrees_is_named() -> None:
    facts = with_rows(true_facts(), e3=6, e4=24)
    result = judge(facts)
    assert result.scope.startswith("First disagreement: epoch 3 in memory:orders")
    assert result.to_json()["pipelines"][0]["first_disagreement"]["epoch"] == 3


def test_a_position_is_spelled_with_its_source() -> None:
    assert at(5).text == '[["0","{\\"events\\":{\\"0\\":5}}"]]'


def test_rows_that_an_operator_accepted_as_lost_are_told_and_not_held_against_it() -> None:
    one = epochs((10, 5))
    moved = epoch_after(one[1], 0, written=slice_(200, 200), adoption="accept-change: restored on purpose")
    line = (*one, moved, epoch_after(moved, 4, written=slice_(200, 250)))
    result = judge(with_rows(of_line(line), e2=3))
    assert [(finding.code, finding.epoch) for finding in result.findings] == [("A125", 2), ("A116", 3)]
    assert result.verdict == Verdict.EXACTLY_ONCE


def test_rows_lost_after_an_accepted_loss_are_a_gap() -> None:
    one = epochs((10, 5))
    moved = epoch_after(one[1], 0, written=slice_(200, 200), adoption="accept-loss")
    line = (*one, moved, epoch_after(moved, 4, written=slice_(200, 250)))
    assert only(with_rows(of_line(line), e4=3), "A121").epoch == 4


def test_a_failover_is_an_event_and_not_a_fault() -> None:
    event = ExternalChange("failed_over", "timeline 2", fatal=False)
    result = judge(with_sink(true_facts(), disturbances=(event,)))
    assert [finding.code for finding in result.findings] == ["A127"]
    assert (result.verdict, result.exit_code) == (Verdict.EXACTLY_ONCE, 0)


def test_a_restore_by_somebody_else_is_in_doubt_even_if_the_count_is_right() -> None:
    event = ExternalChange("restored", "RESTORE as version 9, back to version 4", fatal=True)
    facts = with_sink(true_facts(), disturbances=(event,))
    assert "RESTORE as version 9" in only(facts, "A126").evidence
    assert (judge(facts).verdict, judge(facts).exit_code) == (Verdict.IN_DOUBT, 1)


def test_an_aged_marker_that_a_fence_repeats_is_not_counted_and_not_missed() -> None:
    facts = with_sink(with_history(true_facts(), epochs()[2:]), rows={4: 12})
    assert [finding.code for finding in judge(facts).findings] == ["A119", "A103"]


def test_sinks_that_hold_the_same_share_a_sentence() -> None:
    line = epochs()
    alike = [sink_of(line, name) for name in ("postgres:orders", "kafka:orders", "delta:orders")]
    short = replace(alike[2], rows={**(alike[2].rows or {}), 4: 11})
    said = judge(Facts(PIPELINE, tuple(alike))).scope
    assert said == (
        "postgres:orders, kafka:orders and delta:orders hold epochs 1 to 4; 29 rows counted in each, 29 committed."
    )
    said = judge(Facts(PIPELINE, (*alike[:2], short))).scope
    assert "postgres:orders and kafka:orders hold epochs 1 to 4; 29 rows counted in each, 29 committed." in said
    assert "delta:orders holds epochs 1 to 4; 28 rows counted there, 29 committed." in said


def test_a_loss_that_was_accepted_for_another_sink_excuses_nothing_here() -> None:
    one = epochs()[:2]
    for sink, code in (("memory:orders", "A125"), ("memory:other", "A121")):
        moved = epoch_after(one[1], 0, written=slice_(200, 200), adoption="accept-loss: restored", sinks=(sink,))
        moved = replace(moved, sinks=one[1].sinks)
        [relisted] = relinked([moved])
        facts = without_ledger(with_rows(of_line((*one, relisted)), e1=3))
        assert code in codes(facts), sink


def pruned(*, accepted: int = 0, rows: int = 17, stand: int = 17, adoption: str = "") -> Facts:
    """Four epochs, of which the sink keeps the markers of the newest two; epochs 1 to 3 brought 10, 0 and 7 rows."""
    line = epochs()
    if adoption:
        line = (*line, epoch_after(line[-1], 0, written=slice_(400, 400), adoption=adoption))
    facts = with_rows(of_line(line), e1=stand - 7)
    milestone = PrunedEpochs(3, line[2].chain, rows, accepted)
    return with_sink(facts, history=tuple(entry(epoch) for epoch in line[3:]), milestone=milestone)


def test_the_scope_counts_the_rows_of_the_epochs_that_it_names() -> None:
    said = judge(pruned()).scope
    assert said == "memory:orders holds epoch 4; 12 rows counted there, 12 committed."


def test_the_epoch_behind_a_milestone_follows_it() -> None:
    facts = pruned()
    [sink] = facts.sinks
    assert sink.milestone is not None
    torn = replace(sink, milestone=replace(sink.milestone, chain="f" * 64))
    assert "A112" in codes(replace(facts, sinks=(torn,)))
    assert "A112" not in codes(facts)
    assert "A166" in codes(with_sink(facts, rows=None))
    whole = replace(torn, history=())  # no epoch behind it has a marker yet
    assert "A112" not in codes(replace(facts, sinks=(whole,)))


def test_rows_below_a_milestone_are_excused_by_what_was_accepted_there_or_later_and_nothing_else() -> None:
    assert codes(pruned()) == ["A166"]
    assert codes(pruned(stand=16)) == ["A121"]
    assert codes(pruned(stand=18)) == ["A122"]
    assert codes(pruned(stand=16, accepted=2, rows=7)) == ["A166"]
    assert codes(pruned(stand=16, accepted=2, rows=8)) == ["A121"]
    assert codes(pruned(stand=16, adoption="accept-loss: disk gone")) == ["A166", "A116"]
    assert codes(pruned(stand=16, adoption="continue: moved")) == ["A121", "A116"]


def test_a_sink_that_takes_rows_one_by_one_is_never_called_exactly_once() -> None:
    facts = with_sink(true_facts(), rows=None, append_only=False, transactional=False)
    result = judge(facts)
    assert codes(facts) == ["A167"]
    assert (result.verdict, result.exit_code) == (Verdict.CANNOT_TELL, 3)
    assert "epochs 1 to 4" in result.scope
    assert judge(with_history(facts, [*epochs()[:1], *epochs()[2:]])).verdict is Verdict.GAPS


def test_a_sink_without_a_marker_has_no_rows_that_were_put_one_by_one() -> None:
    facts = without_ledger(with_sink(true_facts(), history=(), rows=None, append_only=False, transactional=False))
    assert "A167" not in codes(facts)


@pytest.mark.parametrize(("standing", "code"), [(29 + 4 - 3, None), (29 + 4 - 3 - 1, "A154"), (29 + 4 - 3 + 1, "A155")])
def test_rows_that_others_added_and_removed_are_counted_in_sum(standing: int, code: str | None) -> None:
    changes = (ExternalChange("deleted", "DELETE", fatal=False, allowed=True),)
    facts = with_sink(
        true_facts(), rows=None, allowed=ToleratedChanges(changes, sums=RowTotals(standing, removed=3, added=4))
    )
    assert codes(facts) == [*([code] if code else []), "A164"]


def test_content_is_not_judged_where_others_changed_rows_and_is_where_they_did_not() -> None:
    for kind, wanted in (("overwritten", ["A109", "A164"]), ("deleted", ["A164"])):
        changes = (ExternalChange(kind, "somebody", fatal=False, allowed=True),)
        assert sorted(codes(with_sink(true_facts(), allowed=ToleratedChanges(changes)))) == wanted


def test_rows_of_the_right_number_that_hash_otherwise_are_in_doubt_whichever_sum_differs() -> None:
    line = epochs()
    committed = {epoch.number: epoch.digest for epoch in line if epoch.digest.rows}
    third = committed[3]
    altered = [replace(third, **{field: getattr(third, field) + 1}) for field in ("low", "high")]
    for digest in [third, *altered]:
        facts = with_sink(true_facts(), content=Content({**committed, 3: digest}, "hashed"))
        assert (digest, codes(facts)) == (digest, [] if digest == third else ["A129"])
        assert judge(facts).verdict is (Verdict.EXACTLY_ONCE if digest == third else Verdict.IN_DOUBT)
