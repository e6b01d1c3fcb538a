"""The simulated checkpoint does what a real one was seen to do when it is damaged."""

from __future__ import annotations

import pytest

from onceonly_lab.model.spark import REFUSALS, Checkpoint, Damage, Planned, Refused, damaged

RECORDS = 9


def run(checkpoint: Checkpoint, *cuts: int) -> Checkpoint:
    """Plan and commit batches of these lengths."""
    holding = None
    for cut in cuts:
        checkpoint, planned = list(checkpoint.next(RECORDS, cut, holding))[-1]
        checkpoint, holding = checkpoint.commit(planned.batch_id), planned.batch_id
    return checkpoint


THREE = run(Checkpoint("the checkpoint", "query"), 2, 2, 2)


def restarted(damage: Damage) -> tuple[Checkpoint, Planned]:
    """What a query is handed first when it starts after the damage, with as many records as it may take."""
    after = damaged(THREE, damage)
    assert after is not None
    return after, list(after.next(RECORDS, RECORDS, None))[-1][1]


def test_an_undamaged_checkpoint_goes_on_with_the_next_batch():
    assert next(THREE.next(RECORDS, 1, None))[1] == Planned(3, 6, 7, 4, first=False)


def test_a_crash_before_the_commit_log_replays_the_batch_with_its_clock():
    planned, batch = next(THREE.next(RECORDS, 1, None))
    assert list(planned.next(RECORDS, 5, None)) == [(planned, batch)]


@pytest.mark.parametrize("damage", [Damage.COMMIT_REMOVED, Damage.ROLLED_BACK])
def test_without_its_newest_commit_entry_the_batch_is_replayed_identically(damage):
    after, batch = restarted(damage)
    assert (batch.batch_id, batch.start, batch.end, batch.clock) == (2, 4, 6, THREE.entries[2].clock)
    assert after.query == THREE.query


def test_without_its_newest_entries_the_batch_id_comes_back_with_other_content():
    _, batch = restarted(Damage.CUT_OFF)
    assert (batch.batch_id, batch.start, batch.end) == (2, 4, 9)
    assert batch.clock not in {entry.clock for entry in THREE.entries}


def test_rolled_back_by_two_an_older_batch_is_replayed():
    _, batch = restarted(Damage.ROLLED_BACK_TWO)
    assert (batch.batch_id, batch.start, batch.end) == (1, 2, 4)


def test_a_deleted_checkpoint_gives_a_new_query_that_reads_everything_again():
    after, batch = restarted(Damage.DELETED)
    assert after.query != THREE.query
    assert (batch.batch_id, batch.start, batch.end, batch.first) == (0, 0, 9, True)


def test_a_copy_goes_on_beside_the_original():
    after, batch = restarted(Damage.COPIED)
    assert (after.query, batch.batch_id, batch.start) == (THREE.query, 3, 6)
    assert batch.clock != list(THREE.next(RECORDS, RECORDS, None))[-1][1].clock


@pytest.mark.parametrize("damage", REFUSALS)
def test_the_engine_itself_refuses_what_it_cannot_read(damage):
    after = damaged(THREE, damage)
    assert after is not None
    with pytest.raises(Refused, match=REFUSALS[damage]):
        list(after.next(RECORDS, 1, None))


@pytest.mark.parametrize("damage", list(Damage))
def test_an_empty_checkpoint_has_nothing_to_lose(damage):
    assert damaged(Checkpoint("the checkpoint", "query"), damage) is None


def test_of_two_queries_on_one_checkpoint_the_later_one_is_stopped():
    planned, batch = next(THREE.next(RECORDS, 1, 2))
    with pytest.raises(Refused, match="another query"):
        list(planned.next(RECORDS, 1, 2))
    with pytest.raises(Refused, match="another query"):
        planned.commit(batch.batch_id).commit(batch.batch_id)
