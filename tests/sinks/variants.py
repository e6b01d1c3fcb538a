"""Which claims a variant of a sink can change: ``make test`` asks it for those, ``make slow`` for all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TypeVar

import pytest

from onceonly_lab.conformance import CLAIMS, SinkConformance, SinkHarness

Variant = TypeVar("Variant", bound=type[SinkConformance])

BOTH_WAYS = ["driver", pytest.param("executors", marks=pytest.mark.slow)]
"""For a test that is about neither way of the rows: what executors can change is tried by the suite, below."""

EXECUTORS = {
    "nothing_is_visible_before_the_commit": "tasks have written when prepare ends",
    "an_abandoned_preparation_leaves_nothing": "what tasks have written is taken away",
    "a_batch_that_breaks_off_leaves_nothing": "tasks have ended when the action fails",
    "duplicate_attempts_are_counted_once": "two attempts of a task have written",
    "a_receipt_says_what_was_committed": "tasks count the rows",
    "what_a_lost_driver_prepared_never_appears": "what tasks wrote outlives its driver",
    "a_driver_that_hangs_with_a_preparation_holds_nobody_up": "what tasks wrote lies beside another's",
    "a_zombie_cannot_sweep_its_successor_away": "a sweep removes what tasks wrote",
    "sweeping_leaves_what_was_committed": "a sweep removes what tasks wrote",
    "a_row_that_the_destination_refuses_is_refused_with_a_code": "a refusal comes from a task, or from the commit",
}
"""Rows are written by tasks before the commit, beside the target; test_type_table.py has values encoded by them."""

BESIDE = {
    "nothing_is_visible_before_the_commit": "rows wait in another relation",
    "a_batch_that_breaks_off_leaves_nothing": "rows wait in another relation",
    "a_zombie_fenced_between_prepare_and_commit_writes_nothing": "rows enter the target in the commit",
    "a_replayed_epoch_writes_nothing": "rows enter the target in the commit",
    "a_gap_is_refused": "rows enter the target in the commit",
    "a_receipt_says_what_was_committed": "rows are counted where they wait",
    "a_row_that_the_destination_refuses_is_refused_with_a_code": "the commit is refused, not the loading",
    "a_target_that_is_replaced_after_prepare_takes_nothing_in_silence": "nothing of the target is locked before",
    "nothing_leaves_before_an_epoch_that_replaces_is_committed": "rows leave and come in other statements",
}
"""Rows wait beside a Postgres table; the commit brings them in."""

_CUT = "the_cut_of_a_batch_decides_nothing"

UPSERT = {
    "recount_equals_the_committed_rows": "rows that were replaced cannot be counted",
    "markers_of_replaced_epochs_stand": "rows that were replaced cannot be counted",
    "an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own": "a row is found by its key",
    "rows_that_stand_are_not_replaced_again": "a row is found by its key",
    "rows_of_another_pipeline_stay_or_the_replacement_is_refused": "rows of others are met by key",
    "rows_of_a_stranger_stay_or_the_replacement_is_refused": "rows of others are met by key",
    "another_epoch_under_a_committed_number_is_refused": "the same keys come again without an error",
    "one_of_racing_commits_lands": "the same keys come again without an error",
    "the_address_finds_the_target_again": "the address says the key",
    _CUT: "a later epoch meets the rows of an earlier one",
}
"""Rows are met by key."""

MERGE = {
    **UPSERT,
    "a_marker_comes_back_exactly": "another commit carries the marker",
    "a_receipt_says_what_was_committed": "the log counts other rows",
    "an_empty_epoch_replaces_too": "rows leave by a clause of the merge",
    "a_marker_that_replaces_is_obeyed_however_its_rows_were_prepared": "rows leave by a clause of the merge",
    "a_zombie_fenced_between_prepare_and_commit_writes_nothing": "another commit is conditional",
    "nothing_of_an_older_fence_appears_after_an_install": "another commit is conditional",
    "a_commit_whose_answer_was_lost_is_unknown_and_there_once": "another commit is looked up",
    "our_own_doings_are_no_disturbance": "files leave the table, and we did it",
}
"""Rows enter a Delta table by a MERGE."""

DELETES = {
    "rows_that_the_destination_takes_break_no_rule": "key and flag get a rule",
    _CUT: "a removal meets what stands by its sequence",
    "a_receipt_says_what_was_committed": "a column of the batch is not stored",
    "an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own": "a column of the batch is not stored",
    "a_sink_can_join_a_running_pipeline": "the first rows make the table, without a column of theirs",
}
"""A column of the batch says which rows leave, and is not stored."""

GROWS = {
    "a_first_epoch_with_another_number_is_refused": "the table stands before the first epoch",
    "a_batch_that_breaks_off_leaves_nothing": "a column is added by the first rows",
    "a_zombie_fenced_between_prepare_and_commit_writes_nothing": "the table changes with the rows",
    "our_own_doings_are_no_disturbance": "the table changes, and we did it",
    "a_receipt_says_what_was_committed": "the table keeps its identity as it grows",
    "a_position_names_identity_and_rows": "the table keeps its identity as it grows",
    "one_of_racing_commits_lands": "several would add the column",
}
"""The table lacks a column of the rows."""

DRIVER = {
    "a_row_that_the_destination_refuses_is_refused_with_a_code": "the driver's errors are read",
    "a_locked_target_is_waited_for_or_refused_with_a_code": "the driver's errors are read",
    "a_failure_that_passes_is_no_end": "the driver's errors are read",
    "a_commit_whose_answer_was_lost_is_unknown_and_there_once": "the driver's errors are read",
    "a_batch_that_breaks_off_leaves_nothing": "the driver ends the transaction",
    "a_marker_comes_back_exactly": "the driver quotes parameters",
    "a_receipt_says_what_was_committed": "the driver counts rows",
    "recount_equals_the_committed_rows": "the driver gives types back",
    "one_of_racing_commits_lands": "the database has writers at once",
    "a_driver_is_not_held_up_by_readers": "the database has readers at once",
    "the_marker_survives_maintenance": "the database has another maintenance",
}
"""The base of SQL sinks runs on another driver and database than the tutorial's."""

TOUCHED: Mapping[str, Mapping[str, str]] = {
    "TestMemoryUpsert": {
        **UPSERT,
        "signed_changes_add_up_to_the_rows_of_each_epoch": "rows that replace one another have changes",
    },
    "TestMemoryUpsertWithADeleteColumn": DELETES,
    "TestDeltaAppendThroughExecutors": EXECUTORS,
    "TestDeltaMerge": MERGE,
    "TestDeltaPartitionedWithAnEpochColumn": {
        "a_receipt_says_what_was_committed": "rows of an epoch lie in files of their own",
        "a_sink_can_join_a_running_pipeline": "the first rows make the partitions",
        "recount_equals_the_committed_rows": "a column has the epoch's number",
        "an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own": "files of all partitions leave",
        "a_batch_that_breaks_off_leaves_nothing": "rows are sorted into partitions",
    },
    "TestDeltaMergeByHand": {
        "an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own": "the merge is the user's",
        "a_row_that_the_destination_refuses_is_refused_with_a_code": "a refusal may be the merge's fault",
        "a_receipt_says_what_was_committed": "the merge is the user's",
    },
    "TestDeltaMergeWithADeleteColumn": DELETES,
    "TestDeltaAddingAColumn": GROWS,
    "TestAppendByExecutors": {**EXECUTORS, **BESIDE},
    "TestUpsertThroughTheDriver": {**BESIDE, **UPSERT},
    "TestUpsertByExecutors": {
        "duplicate_attempts_are_counted_once": "two attempts of a task bring the same keys",
        "an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own": "rows leave before those of tasks come",
    },
    "TestApplyThroughTheDriver": {
        **BESIDE,
        "a_target_that_is_replaced_after_prepare_takes_nothing_in_silence": "a function of the user's makes the table",
        "an_empty_epoch_leaves_a_marker": "without rows the function is not called",
        "recount_equals_the_committed_rows": "whose a row is, the function says",
        "an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own": "whose a row is, the function says",
    },
    "TestApplyByExecutors": {
        "duplicate_attempts_are_counted_once": "the function must be shown one attempt",
        "a_batch_that_breaks_off_leaves_nothing": "the function must not be called",
    },
    "TestUpsertWithADeleteColumn": DELETES,
    "TestAddingAColumn": GROWS,
    "TestAnotherDriver": {
        **DRIVER,
        "one_of_racing_installs_owns_the_generation": "a server has writers at once",
        "nothing_of_an_older_fence_appears_after_an_install": "a server has writers at once",
        "looking_up_waits_for_a_commit_that_is_late": "a lock is taken by a read",
    },
    "TestDuckDB": {
        **DRIVER,
        "a_target_that_is_replaced_after_prepare_takes_nothing_in_silence": "the target is a file",
        "the_address_finds_the_target_again": "the target is a file",
    },
    "TestTopicsByColumn": {
        "a_fresh_target_has_no_fence_and_no_marker": "no topic is known before there are rows",
        "another_pipeline_sees_nothing_of_ours": "no topic is known to another pipeline",
        "a_look_shows_the_newest_marker": "no topic is known to another pipeline",
        "a_position_names_identity_and_rows": "topics are known by the newest epoch",
        "recount_equals_the_committed_rows": "topics are known by each epoch",
        "a_receipt_says_what_was_committed": "topics are known by each epoch",
        "a_batch_that_breaks_off_leaves_nothing": "a topic is entered by its first row",
        "what_a_lost_driver_prepared_never_appears": "a topic that no epoch names holds open rows",
    },
}
"""By class of tests: the claims that its variant can change, each with a word why.

A sink's plain variant, which is asked for every claim, is not here.
"""


def asked_for_what_it_changes(variant: Variant) -> Variant:
    """Mark as slow what :data:`TOUCHED` does not name of a class; on it alone, as its base class serves every sink."""
    for claim in CLAIMS:
        if claim.name not in TOUCHED[variant.__name__]:
            name = f"test_{claim.name}"
            setattr(variant, name, pytest.mark.slow(_copy(getattr(variant, name))))
    return variant


def _copy(test: Callable[[SinkConformance, SinkHarness], None]) -> Callable[[SinkConformance, SinkHarness], None]:
    @wraps(test)
    def copy(self: SinkConformance, harness: SinkHarness) -> None:
        test(self, harness)

    return copy
