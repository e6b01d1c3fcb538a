"""What the memory sink does beyond the contract: upserts, mishaps of its store, reading in a notebook."""

import gc
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.audit import audit
from onceonly.errors import ConfigurationError, DestinationError, IdentityError
from onceonly.protocol import DetectsChanges, Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_lab.conformance.scenario import plan
from onceonly_sinks.memory import MemorySink, MemoryStore


def opened(sink: MemorySink, generation: int = 1) -> MemorySink:
    sink.open("orders")
    sink.install(Fence(generation, f"owner-{generation}"))
    return sink


def write(sink: MemorySink, table: pa.Table) -> Receipt:
    epoch = following(sink)
    prepared = sink.prepare(ArrowBatch(table), epoch.number)
    return sink.commit(prepared, Marker("orders", sink.id, fence_of(sink), epoch))


def following(sink: MemorySink) -> Epoch:
    newest = sink.position(None).marker
    return plan(newest.epoch if newest else None, sink.id).epoch


def fence_of(sink: MemorySink) -> Fence:
    fence = sink.fence()
    assert fence
    return fence


def rows(*values: tuple[int | None, int | None, str]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("state", pa.string())])
    return pa.Table.from_pylist([{"id": id_, "at": at, "state": state} for id_, at, state in values], schema)


def states(sink: MemorySink) -> dict[int, str]:
    return {row["id"]: row["state"] for row in sink.rows()}


def test_it_is_a_sink() -> None:
    assert isinstance(MemorySink(), Sink)


def test_two_sinks_without_a_store_share_nothing() -> None:
    first, second = opened(MemorySink()), opened(MemorySink())
    write(first, rows((1, 1, "new")))
    assert second.rows() == []
    assert first.address != second.address


def test_a_marker_is_found_only_where_it_is_the_newest_one_word_for_word() -> None:
    sink = opened(MemorySink())
    first = following(sink)
    write(sink, rows((1, 1, "new")))
    marker = sink.position(None).marker
    assert marker is not None
    assert sink.look_up(marker) is not None
    assert sink.look_up(replace(marker, epoch=replace(marker.epoch, digest=Digest(8, 1, 2)))) is None
    assert sink.look_up(Marker("orders", sink.id, fence_of(sink), following(sink))) is None
    write(sink, rows((2, 2, "new")))
    assert sink.look_up(Marker("orders", sink.id, fence_of(sink), first)) is None


def test_rows_are_read_as_dicts_as_a_table_and_by_epoch() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    write(sink, rows((2, 2, "new"), (3, 3, "new")))
    assert sink.rows()[0] == {"id": 1, "at": 1, "state": "new"}
    assert sink.table().num_rows == 3
    assert sink.table(epoch=2).column("id").to_pylist() == [2, 3]
    with pytest.raises(LookupError, match="no epoch 3"):
        sink.table(epoch=3)


def test_a_store_without_rows_is_an_empty_table() -> None:
    sink = opened(MemorySink())
    assert sink.table().num_rows == 0
    write(sink, rows())
    assert sink.table().column_names == ["id", "at", "state"]


def test_a_closed_sink_still_shows_its_rows() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    sink.close()
    assert len(sink.rows()) == 1


def test_an_upsert_replaces_the_row_of_its_key() -> None:
    sink = opened(MemorySink(key=["id"]))
    write(sink, rows((1, 1, "new"), (2, 1, "new")))
    receipt = write(sink, rows((1, 2, "paid")))
    assert states(sink) == {1: "paid", 2: "new"}
    assert receipt.rows == 1
    assert sink.recount() is None
    assert not sink.capabilities.append_only


def test_a_row_with_a_lower_sequence_does_not_replace() -> None:
    sink = opened(MemorySink(key=["id"], sequence="at"))
    write(sink, rows((1, 5, "paid")))
    write(sink, rows((1, 4, "new")))
    assert states(sink) == {1: "paid"}
    write(sink, rows((1, 6, "sent"), (1, 7, "returned"), (1, 3, "new")))
    assert states(sink) == {1: "returned"}


def test_a_null_sequence_is_refused_and_replaced_where_somebody_left_one() -> None:
    sink = opened(MemorySink(key=["id"], sequence="at"))
    sink.store.append_foreign(rows((1, None, "foreign")))
    with pytest.raises(DestinationError, match=r"E503.*column at: 1 nulls"):
        write(sink, rows((1, None, "new")))
    write(sink, rows((1, 1, "new")))
    assert states(sink) == {1: "new"}


def test_one_change_told_twice_in_an_epoch_is_one() -> None:
    sink = opened(MemorySink(key=["id"], sequence="at"))
    receipt = write(sink, rows((1, 2, "paid"), (1, 2, "paid"), (1, 1, "new"), (1, 1, "other")))
    assert states(sink) == {1: "paid"}
    assert receipt.rows == 4


def test_a_null_key_is_refused_and_counted() -> None:
    sink = opened(MemorySink(key=["id"]))
    with pytest.raises(DestinationError, match=r"E504.*key \(id\) is null: 2"):
        write(sink, rows((1, 1, "new"), (None, 1, "new"), (None, 2, "new")))
    assert sink.rows() == []


@pytest.mark.parametrize("sequence", [None, "at"])
def test_a_key_that_is_not_unique_is_refused(sequence: str | None) -> None:
    sink = opened(MemorySink(key=["id"], sequence=sequence))
    with pytest.raises(DestinationError, match=r"E505.*several rows for one key \(id\)"):
        write(sink, rows((1, 1, "new"), (1, 1, "paid")))


def test_other_columns_are_refused_before_anything_is_written() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    with pytest.raises(DestinationError, match=r"E506.*the batch id string"):
        write(sink, pa.table({"id": ["1"]}))
    assert len(sink.rows()) == 1


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), unique_by=lambda change: change), max_size=5),
)
def test_a_sequenced_upsert_keeps_the_highest_of_each_key(epochs: list[list[tuple[int, int]]]) -> None:
    sink = opened(MemorySink(key=["id"], sequence="at"))
    highest: dict[int, int] = {}
    for changes in epochs:
        write(sink, rows(*((id_, at, "") for id_, at in changes)))
        for id_, at in changes:
            highest[id_] = max(at, highest.get(id_, at))
    assert {row["id"]: row["at"] for row in sink.rows()} == highest


def changes(*values: tuple[int, int, bool | None]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("gone", pa.bool_())])
    return pa.Table.from_pylist([{"id": id_, "at": at, "gone": gone} for id_, at, gone in values], schema)


def test_a_true_in_the_delete_column_removes_the_key_and_the_column_is_not_kept() -> None:
    sink = opened(MemorySink(key="id", delete_flag="gone"))
    write(sink, changes((1, 1, False), (2, 1, False), (3, 1, True)))
    assert sink.rows() == [{"id": 1, "at": 1}, {"id": 2, "at": 1}]
    receipt = write(sink, changes((1, 0, True), (2, 0, True)))
    assert (receipt.rows, sink.rows()) == (2, [])
    assert not sink.position(None).has_rows
    assert sink.recount() is None


def test_a_null_in_the_delete_column_is_refused() -> None:
    sink = opened(MemorySink(key="id", delete_flag="gone"))
    with pytest.raises(DestinationError, match=r"E503.*column gone: 1 nulls"):
        write(sink, changes((1, 1, None), (2, 1, False)))
    with pytest.raises(DestinationError, match=r"E506.*column gone, which delete_flag= names, is not there"):
        write(sink, rows((1, 1, "new")))
    assert sink.rows() == []


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), unique_by=lambda one: one[:2]),
        max_size=5,
    )
)
def test_a_removal_obeys_the_sequence(epochs: list[list[tuple[int, int, bool]]]) -> None:
    sink = opened(MemorySink(key="id", sequence="at", delete_flag="gone"))
    model: dict[int, int] = {}
    for epoch in epochs:
        write(sink, changes(*epoch))
        for id_, at, gone in sorted({id_: (id_, at, gone) for id_, at, gone in sorted(epoch)}.values()):
            if id_ not in model or at >= model[id_]:
                model.pop(id_, None)
                model |= {} if gone else {id_: at}
    assert {row["id"]: row["at"] for row in sink.rows()} == model


@pytest.mark.parametrize(
    "options",
    [
        {"sequence": "at"},
        {"delete_flag": "gone"},
        {"key": ["id", "id"]},
        {"key": "id", "delete_flag": "id"},
        {"key": [""]},
    ],
    ids=str,
)
def test_columns_that_do_not_go_together_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="E110"):
        MemorySink(**options)


def test_an_address_says_that_it_is_an_upsert_and_by_what() -> None:
    sink = MemorySink("it's 100% #1?", key=["id", "a,b&c"], sequence="at", delete_flag="gone")
    found = MemorySink.from_address(sink.address)
    assert (found.id, found.address, found.capabilities) == (sink.id, sink.address, sink.capabilities)
    write(opened(sink), changes((1, 1, False)).append_column("a,b&c", pa.array([1])))
    assert "A119" in [finding.code for finding in audit(None, "orders", [found]).findings]


def test_appended_and_upserted_rows_replay_in_order() -> None:
    store = MemoryStore()
    store.append_foreign(rows((1, 1, "foreign"), (2, 1, "foreign")))
    sink = opened(MemorySink(store=store, key=["id"]))
    write(sink, rows((1, 2, "ours")))
    assert states(sink) == {1: "ours", 2: "foreign"}


def test_foreign_rows_are_seen_but_are_no_disturbance() -> None:
    sink = opened(MemorySink())
    sink.store.append_foreign(rows((1, 1, "foreign")))
    position = sink.position(None)
    assert position.has_rows
    assert position.marker is None
    assert position.disturbances == ()
    assert sink.recount() == {0: 1}


def disturbances(sink: MemorySink, since: Receipt | None) -> list[str]:
    return [found.kind for found in sink.position(since).disturbances if found.fatal]


def test_a_restored_store_is_behind_and_brings_its_old_fence_back() -> None:
    sink = opened(MemorySink(), generation=1)
    first = write(sink, rows((1, 1, "new")))
    sink.install(Fence(2, "owner-2"))
    second = write(sink, rows((2, 1, "new")))

    sink.store.restore(epoch=1)

    assert sink.fence() == Fence(1, "owner-1")
    assert len(sink.rows()) == 1
    reopened = opened(MemorySink(store=sink.store), generation=3)
    assert reopened.position(second).epoch == 1
    assert (
        disturbances(reopened, second) == disturbances(reopened, first) == disturbances(reopened, None) == ["restored"]
    )


def test_a_restored_store_refuses_the_driver_whose_fence_it_lost() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    epoch = following(sink)
    marker = Marker("orders", sink.id, fence_of(sink), epoch)
    sink.store.restore(epoch=0)
    with pytest.raises(DestinationError, match=r"E508.*our fence is gone"):
        sink.commit(None, marker)
    assert sink.rows() == []


def set_back() -> MemorySink:
    """A sink with three epochs of a row each, of which the first one's rows stand."""
    sink = opened(MemorySink())
    for number in (1, 2, 3):
        write(sink, rows((number, 1, "new")))
    sink.store.restore_rows(epoch=1)
    return sink


def test_restored_rows_leave_the_markers_of_later_epochs() -> None:
    sink = set_back()
    assert states(sink) == {1: "new"}
    assert (sink.look().epoch, sink.content_epoch()) == (3, 1)
    assert sink.recount() == {1: 1, 2: 0, 3: 0}
    assert disturbances(sink, None) == ["restored"]


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_sink_that_was_put_at_its_restored_rows_counts_and_tells_on_from_there(cleaned: bool) -> None:
    sink = set_back()
    (receipt,) = [one for marker, one in sink.history() if marker.epoch.number == 3]
    sink.reset_to(Fence(2, "owner-2"), 1)
    if cleaned:
        sink.store.clean_up()
    assert ([marker.epoch.number for marker, _ in sink.history()], sink.recount()) == ([1], {1: 1})
    assert disturbances(sink, receipt) == disturbances(sink, None) == []
    assert sink.external_changes(receipt) == ()
    assert write(sink, rows((2, 1, "again"))).epoch == 2
    assert (states(sink), sink.content_epoch()) == ({1: "new", 2: "again"}, 2)
    sink.store.restore_rows(epoch=0)
    assert (states(sink), sink.content_epoch(), disturbances(sink, None)) == ({}, 0, ["restored"])


def test_cleaning_up_leaves_restored_rows_restored() -> None:
    sink = set_back()
    sink.store.clean_up()
    assert (states(sink), sink.content_epoch()) == ({1: "new"}, None)  # the marker of epoch 1 is gone


def test_restored_rows_are_those_that_an_epoch_has_replaced_and_nobody_brought_since() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    epoch = linked(replace(following(sink), series=2, replaces=(1, 1)))
    prepared = sink.prepare_replacement(ArrowBatch(rows((2, 1, "new"))), 2, (1, 1))
    sink.commit(prepared, Marker("orders", sink.id, fence_of(sink), epoch))
    sink.store.append_foreign(rows((9, 9, "foreign")))
    assert states(sink) == {2: "new", 9: "foreign"}
    sink.store.restore_rows(epoch=1)
    assert states(sink) == {1: "new"}
    assert sink.recount() == {1: 1, 2: 0}


def test_overwritten_rows_are_of_no_epoch_and_do_not_come_back() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    sink.store.overwrite(rows((9, 9, "foreign")))
    assert sink.content_epoch() is None
    with pytest.raises(LookupError, match="no longer has the rows of epoch 1"):
        sink.store.restore_rows(1)
    with pytest.raises(ConfigurationError, match=r"E110.*it has those of no epoch that is known"):
        sink.reset_to(Fence(2, "owner-2"), 1)


def test_what_was_restored_before_our_newest_epoch_is_told_once() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    write(sink, rows((2, 1, "new")))
    sink.store.restore(epoch=1)
    assert disturbances(sink, None) == ["restored"]
    after = write(sink, rows((3, 1, "new")))
    assert disturbances(sink, after) == disturbances(sink, None) == []


def test_a_restore_to_an_epoch_that_never_was_is_refused() -> None:
    with pytest.raises(LookupError, match="epoch 7"):
        MemoryStore().restore(7)


def test_a_recreated_store_is_another_one_and_knows_nothing() -> None:
    sink = opened(MemorySink())
    receipt = write(sink, rows((1, 1, "new")))
    sink.store.recreate()
    assert sink.fence() is None
    position = opened(MemorySink(store=sink.store)).position(receipt)
    assert (position.marker, position.has_rows) == (None, False)
    assert position.identity != receipt.identity
    assert [found.kind for found in position.disturbances] == ["recreated"]


def test_what_others_did_is_told_without_a_fence() -> None:
    sink = opened(MemorySink())
    first = write(sink, rows((1, 1, "new")))
    sink.store.overwrite(rows())
    second = write(sink, rows((2, 1, "new")))
    reader = MemorySink(store=sink.store)
    reader.open("orders")
    assert isinstance(reader, DetectsChanges)
    told = {since: [found.kind for found in reader.external_changes(since)] for since in (first, second)}
    assert told == {first: ["overwritten"], second: []}


def test_an_overwrite_leaves_markers_and_shows_in_the_recount() -> None:
    sink = opened(MemorySink())
    receipt = write(sink, rows((1, 1, "new"), (2, 1, "new")))
    sink.store.overwrite(rows((9, 9, "foreign")))
    assert states(sink) == {9: "foreign"}
    assert disturbances(sink, receipt) == ["overwritten"]
    assert sink.recount() == {0: 1, 1: 0}
    [(marker, recorded)] = sink.history()
    assert (marker.epoch.number, recorded.rows) == (1, 2)


def test_cleaning_up_forgets_old_markers_and_keeps_rows_and_recount() -> None:
    sink = opened(MemorySink())
    for number in range(1, 4):
        write(sink, rows((number, 1, "new")))
        sink.install(Fence(number + 1, f"owner-{number + 1}"))
    sink.store.clean_up()
    assert [marker.epoch.number for marker, _ in sink.history()] == [3]
    assert sink.recount() == {1: 1, 2: 1, 3: 1}
    assert len(sink.rows()) == 3
    assert fence_of(sink).generation == 4


def test_a_store_is_found_by_its_address_until_it_is_gone() -> None:
    sink = opened(MemorySink("orders-out"))
    write(sink, rows((1, 1, "new")))
    address = sink.address
    found = MemorySink.from_address(address)
    found.open("orders")
    assert (found.id, len(list(found.history()))) == ("orders-out", 1)
    del sink, found
    gc.collect()
    with pytest.raises(DestinationError, match=r"E508.*no such store"):
        MemorySink.from_address(address)


def test_two_sinks_on_one_store_keep_their_own_epochs() -> None:
    store = MemoryStore()
    left, right = opened(MemorySink("left", store)), opened(MemorySink("right", store))
    write(left, rows((1, 1, "left")))
    write(right, rows((2, 1, "right")))
    assert left.recount() == right.recount() == {1: 1}
    assert len(left.rows()) == 2


def test_an_abandoned_preparation_cannot_be_committed() -> None:
    sink = opened(MemorySink())
    epoch = following(sink)
    prepared = sink.prepare(ArrowBatch(rows((1, 1, "new"))), epoch.number)
    prepared.abandon()
    with pytest.raises(RuntimeError, match="abandoned"):
        sink.commit(prepared, Marker("orders", sink.id, fence_of(sink), epoch))
    assert sink.position(None).marker is None


def test_rows_prepared_by_another_sink_are_refused() -> None:
    class Elsewhere:
        rows = 1

        def abandon(self) -> None: ...

    sink = opened(MemorySink())
    with pytest.raises(TypeError, match="Elsewhere"):
        sink.commit(Elsewhere(), Marker("orders", sink.id, fence_of(sink), following(sink)))


def test_reading_the_position_before_installing_is_refused() -> None:
    sink = MemorySink()
    sink.open("orders")
    with pytest.raises(DestinationError, match=r"E508.*our fence is gone"):
        sink.position(None)


def test_a_refused_epoch_names_where_the_store_stands() -> None:
    sink = opened(MemorySink())
    write(sink, rows((1, 1, "new")))
    gap: Any = plan(following(sink), sink.id).epoch
    with pytest.raises(IdentityError, match=r"E207.*is at epoch 1, but it once confirmed epoch 2"):
        sink.commit(None, Marker("orders", sink.id, fence_of(sink), gap))
