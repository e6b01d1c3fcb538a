"""What an audit says of epochs that a pipeline was cut back behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.audit.histories import PIPELINE, record_of, true_facts, with_ledger

from onceonly.audit.catalogue import Verdict
from onceonly.audit.facts import Facts
from onceonly.audit.result import judge
from onceonly.machine.rewind import why
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, ReplayedEpochs
from onceonly_checkpoints.ledger import RemovedEpoch


def after_a_cut(*aside: Epoch) -> Facts:
    return with_ledger(true_facts(), superseded=tuple(RemovedEpoch(PIPELINE, epoch, "cut", 7) for epoch in aside))


def line() -> list[Epoch]:
    ledger = true_facts().ledger
    assert ledger is not None
    return [record.epoch for record in ledger.records]


def records(*epochs: Epoch) -> tuple[EpochRecord, ...]:
    return tuple(record_of(epoch) for epoch in epochs)


def said(facts: Facts, code: str) -> str:
    """The evidence of a finding; empty where it is not there."""
    return next((finding.evidence for finding in judge(facts).findings if finding.code == code), "")


def told(facts: Facts) -> str:
    result = judge(facts)
    assert result.verdict is Verdict.EXACTLY_ONCE
    [finding] = result.findings
    assert finding.code == "A181"
    return finding.evidence


def test_nothing_is_said_where_nothing_was_set_aside() -> None:
    assert judge(true_facts()).findings == ()


def test_the_same_rows_in_epochs_cut_otherwise_are_called_that() -> None:
    second, third = line()[1:3]
    whole = replace(second, written=replace(second.written, end=third.written.end), digest=second.digest + third.digest)
    assert told(after_a_cut(whole)).endswith("epochs 2..3 have taken their place, with the same rows")


def test_other_rows_are_called_that() -> None:
    second = line()[1]
    other = replace(second, digest=Digest(second.digest.rows, 1, 1))
    assert "not all of them the same" in told(after_a_cut(other))


def test_what_was_not_read_again_yet_is_called_that() -> None:
    last = line()[-1]
    further = replace(last, number=last.number + 1, written=replace(last.written, end=line()[0].written.start))
    assert told(after_a_cut(further)).endswith("no epoch ends yet where they ended")


def test_why_they_were_set_aside_is_told_and_so_what_was_given_up() -> None:
    second = line()[1]
    cut = (RemovedEpoch(PIPELINE, second, why(1, (2,)), 7),)
    said = told(with_ledger(true_facts(), superseded=cut))
    assert "rows, set aside when every sink was at epoch 1 and the loss of epochs 2..2 was accepted: " in said


@pytest.mark.parametrize("at", [0, 1])
def test_each_cut_is_told_by_itself(at: int) -> None:
    second, third = line()[1:3]
    cuts = (RemovedEpoch(PIPELINE, second, "cut", 7), RemovedEpoch(PIPELINE, third, "cut", 8))
    found = judge(with_ledger(true_facts(), superseded=cuts)).findings
    assert found[at].evidence.startswith(f"epochs {at + 2}..{at + 2}")


def test_rows_that_spark_does_not_read_again_are_told_until_others_take_the_place_of_all() -> None:
    *_, third, last = line()
    published = replace(last, lineage=None, replaces=(1, 3), replays=ReplayedEpochs("orders~v2", 1, 3, "c"))
    cases = {
        "a publication": (published, "epoch 4, which published orders~v2 (12 rows), was set aside"),
        "a full refresh": (replace(last, replaces=(1, 3)), "epoch 4, a full refresh (12 rows), was set aside"),
        "a batch": (last, ""),
        "a decision": (replace(last, lineage=None, digest=Digest(0)), ""),
    }
    found = {what: said(after_a_cut(aside), "A196") for what, (aside, _) in cases.items()}
    assert found == {what: words for what, (_, words) in cases.items()}
    assert judge(after_a_cut(published)).exit_code == 1
    assert judge(after_a_cut(published)).verdict is Verdict.EXACTLY_ONCE
    again = with_ledger(after_a_cut(replace(published, number=3)), records=records(replace(third, replaces=(1, 2))))
    assert said(again, "A196") == ""


def test_what_was_read_again_is_compared_without_what_was_published() -> None:
    second, third = line()[1:3]
    published = replace(third, lineage=None, replays=ReplayedEpochs("orders~v2", 1, 2, "c"), written=second.written)
    evidence = said(after_a_cut(second, published), "A181")
    assert "epochs 2..2 have taken their place, with the same rows, but for epoch 3, which published" in evidence
