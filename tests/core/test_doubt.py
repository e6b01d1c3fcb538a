"""For how long an epoch without an answer counts as being written."""

from __future__ import annotations

from dataclasses import replace

from tests.audit.histories import true_facts

from onceonly.doubt import GRACE_S, patience_ms


def records_that_took(*seconds: float):
    facts = true_facts()
    assert facts.ledger is not None
    record = facts.ledger.records[0]
    return [replace(record, phases=(("prepare", took / 2), ("commit", took / 2))) for took in seconds]


def test_an_epoch_may_take_twice_as_long_as_the_slowest_of_the_recent_ones() -> None:
    assert patience_ms(records_that_took(3.0, 10 * GRACE_S, 1.0)) == 20 * GRACE_S * 1000


def test_quick_epochs_leave_the_time_that_was_asked_for() -> None:
    assert patience_ms(records_that_took(0.1, 0.2)) == GRACE_S * 1000
    assert patience_ms(records_that_took(0.1), grace_s=90.0) == 90_000
    assert patience_ms([]) == GRACE_S * 1000
