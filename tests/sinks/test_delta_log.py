"""The durable form of a marker and the rules over log entries: pure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.errors import DestinationError
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_lab.conformance.scenario import plan
from onceonly_sinks.delta import log
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.marker import Note, application_id, pack, unpack

APP = application_id("orders", "delta:rows")
ID = "6ab09a05-55b2-4f04-b8f0-9ecb3a94bc6c"


def note(app: str = APP, pipeline: str = "orders", **changes: Any) -> Note:
    marker = Marker(pipeline, "delta:rows", Fence(3, "me"), plan(None, "delta:rows").epoch)
    fields: dict[str, Any] = {
        "app": app,
        "fence": Fence(3, "me"),
        "epoch": 1,
        "marker": marker,
        "at": None,
        "read": 4,
        "judged": 4,
        "rows": 3,
        "mode": "append",
        "identity": ID,
        "token": "t",
    }
    return Note(**(fields | changes))


def commit(operation: str, *actions: dict[str, Any], text: str | None = None, **parameters: Any) -> str:
    info = {"operation": operation, "operationParameters": parameters, "timestamp": 1, "userMetadata": text}
    return "\n".join(json.dumps(action) for action in ({"commitInfo": info}, *actions))


ADD = {"add": {"path": "a", "dataChange": True, "stats": '{"numRecords":2}'}}
REMOVE = {"remove": {"path": "a", "dataChange": True}}
SAME = {"add": {"path": "b", "dataChange": False, "stats": '{"numRecords":2}'}}
MOVED = {"remove": {"path": "a", "dataChange": False}}


def judged(*commits: str, held_at: int = 5) -> list[tuple[str, bool]]:
    entries = [log.parse(version, text, APP) for version, text in enumerate(commits, start=6)]
    return [(found.kind, found.fatal) for found in log.disturbances(entries, ID, held_at, ChangePolicy.APPENDS)]


@given(st.integers(0, 2**23 - 1), st.integers(0, 2**40 - 1))
def test_a_packed_version_holds_both_numbers_in_a_signed_long(generation: int, epoch: int) -> None:
    packed = pack("s", generation, epoch)
    assert unpack(packed) == (generation, epoch)
    assert 0 <= packed < 2**63


@given(st.tuples(st.integers(0, 2**23 - 1), st.integers(0, 2**40 - 1)), st.integers(0, 2**40 - 1))
def test_a_higher_generation_is_greater_than_every_epoch_of_a_lower_one(one: tuple[int, int], epoch: int) -> None:
    generation, earlier = one
    if generation + 1 < 2**23:
        assert pack("s", generation + 1, epoch) > pack("s", generation, earlier)


@pytest.mark.parametrize(("generation", "epoch"), [(2**23, 0), (0, 2**40), (-1, 0)])
def test_what_does_not_fit_is_refused(generation: int, epoch: int) -> None:
    with pytest.raises(DestinationError) as refused:
        pack("s", generation, epoch)
    assert refused.value.code == "E512"


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_application_ids_of_different_sinks_differ(a: str, b: str, c: str, d: str) -> None:
    assert (application_id(a, b) == application_id(c, d)) == ((a, b) == (c, d))


@given(pipeline=st.text(), token=st.text())
def test_a_note_is_read_back_from_a_commit_as_it_was_written(pipeline: str, token: str) -> None:
    app = application_id(pipeline, "delta:rows")
    written = note(app, pipeline, token=token)
    entry = log.parse(1, commit("WRITE", ADD, text=written.text), app)
    assert entry.note == written


def test_characters_that_end_a_line_elsewhere_do_not_cut_a_commit_in_two() -> None:
    written = note(token="a\u2028b\x85c\x1ed")
    text = json.dumps({"commitInfo": {"operation": "WRITE", "userMetadata": written.text}}, ensure_ascii=False)
    assert log.parse(1, text, APP).note == written


def test_the_note_of_another_sink_is_not_ours() -> None:
    other = application_id("orders", "delta:rows2")
    assert log.parse(1, commit("WRITE", text=note(other).text), APP).note is None
    assert log.parse(1, commit("WRITE", text=note(APP + "2").text), APP).note is None


@pytest.mark.parametrize("text", [None, "", "nightly", "{", "[]", '{"app": 1}', json.dumps({"app": APP}), APP])
def test_somebody_elses_metadata_is_no_note(text: str | None) -> None:
    assert log.parse(1, commit("WRITE", text=text), APP).note is None


def test_a_note_of_a_newer_format_is_refused_and_not_overlooked() -> None:
    newer = json.loads(note().text) | {"onceonly": 2}
    with pytest.raises(DestinationError) as refused:
        log.parse(1, commit("WRITE", text=json.dumps(newer)), APP)
    assert refused.value.code == "E508"


def test_a_fence_repeats_the_marker_and_says_where_its_rows_are() -> None:
    first = note().repeated(Fence(4, "you"), version=7, judged=8, token="u")
    second = first.repeated(Fence(5, "us"), version=9, judged=9, token="v")
    assert (second.marker, second.at, second.read, second.judged, second.epoch) == (note().marker, 7, 4, 9, 1)
    assert not first.brings_epoch
    written, repeated = note().receipt("delta:rows", 7), second.receipt("delta:rows", 9)
    assert written == repeated


def test_rows_are_counted_less_those_a_deletion_vector_hides() -> None:
    hidden = {"add": {"path": "b", "stats": '{"numRecords":5}', "deletionVector": {"cardinality": 2}}}
    assert log.parse(1, commit("WRITE", ADD, hidden), APP).rows == 5


def test_rows_of_a_file_without_statistics_are_not_known() -> None:
    assert log.parse(1, commit("WRITE", ADD, {"add": {"path": "b"}}), APP).rows is None
    assert log.parse(1, commit("OPTIMIZE"), APP).rows == 0


def test_appends_and_rewrites_of_others_are_nobodys_business() -> None:
    assert judged(commit("OPTIMIZE", SAME, MOVED), commit("VACUUM END"), commit("SET TBLPROPERTIES")) == []
    assert judged(commit("WRITE", ADD), commit("", ADD)) == [("appended", False)]


@pytest.mark.parametrize(
    "operation", ["WRITE", "CREATE OR REPLACE TABLE AS SELECT", "ROW TRACKING UNBACKFILL", "REORG"]
)
def test_files_that_a_known_operation_writes_again_without_a_change_are_nobodys_business(operation: str) -> None:
    """Spark's writer says so by the option dataChange=false, which is Delta's documented compaction by hand."""
    assert judged(commit(operation, SAME, MOVED)) == []


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("DELETE", "deleted"),
        ("TRUNCATE", "deleted"),
        ("UPDATE", "overwritten"),
        ("MERGE", "overwritten"),
        ("", "unknown"),
        ("FROBNICATE", "unknown"),
    ],
)
def test_rows_that_others_removed_stop_the_pipeline(operation: str, kind: str) -> None:
    assert judged(commit(operation, REMOVE)) == [(kind, True)]


@pytest.mark.parametrize("rung", list(ChangePolicy), ids=lambda rung: rung.word)
@pytest.mark.parametrize("actions", [(REMOVE,), (ADD, REMOVE), (SAME, MOVED)], ids=["removes", "replaces", "rewrites"])
def test_an_unknown_operation_that_takes_files_away_is_let_pass_on_no_rung(
    rung: ChangePolicy, actions: tuple[dict[str, Any], ...]
) -> None:
    entry = log.parse(7, commit("FROBNICATE", *actions), APP)
    (found,) = log.disturbances([entry], ID, 5, rung)
    assert (found.kind, found.fatal, found.allowed, found.at) == ("unknown", True, False, 7)
    assert "FROBNICATE" in found.detail


def file(path: str, rows: int | None, hidden: int = 0) -> dict[str, Any]:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    vector = {"storageType": "u", "pathOrInlineDv": f"{hidden}", "cardinality": hidden} if hidden else None
    return {"path": path, "dataChange": True, "stats": stats, "deletionVector": vector}


@pytest.mark.parametrize(
    ("removes", "adds", "metrics", "effect", "taken"),
    [
        ([file("a", 5)], [file("b", 3)], {}, Effect.DELETED, 2),
        ([file("a", 5)], [file("b", 6)], {}, Effect.CHANGED, -1),
        ([file("a", None)], [file("b", 3)], {}, Effect.CHANGED, None),
        ([file("a", None)], [file("b", 3)], {"numCopiedRows": "3", "numDeletedRows": "2"}, Effect.DELETED, 2),
        ([file("a", None)], [file("b", 3)], {"num_copied_rows": 2, "num_deleted_rows": 3}, Effect.CHANGED, 3),
        ([file("a", None)], [], {}, Effect.DELETED, None),
        ([file("a", 5)], [file("a", 5, 2)], {}, Effect.DELETED, 2),
        ([file("a", 5, 1)], [file("a", 5, 4)], {}, Effect.DELETED, 3),
        ([file("a", 5, 4)], [file("a", 5, 1)], {}, Effect.CHANGED, -3),
    ],
)
def test_a_delete_is_one_if_its_rows_only_shrink(
    removes: list[dict[str, Any]],
    adds: list[dict[str, Any]],
    metrics: dict[str, Any],
    effect: Effect,
    taken: int | None,
) -> None:
    actions = [{"remove": remove} for remove in removes] + [{"add": add} for add in adds]
    info = {"commitInfo": {"operation": "DELETE", "operationMetrics": metrics}}
    entry = log.parse(6, "\n".join(json.dumps(one) for one in (info, *actions)), APP)
    assert (entry.effect, entry.removed_rows) == (effect, taken)


@pytest.mark.parametrize(
    ("parameters", "fatal"),
    [
        ({"version": 3}, True),
        ({"version": "4"}, True),
        ({"version": 5}, False),
        ({"version": 9}, False),
        ({"timestamp": "x"}, True),
    ],
)
def test_a_restore_is_fatal_unless_it_goes_back_to_our_newest_rows_at_most(
    parameters: dict[str, Any], fatal: bool
) -> None:
    assert judged(commit("RESTORE", ADD, REMOVE, **parameters)) == [("restored", fatal)]


def test_another_table_id_is_a_recreation_and_the_same_one_is_not() -> None:
    replaced = {"metaData": {"id": "another"}}
    assert judged(commit("CREATE OR REPLACE TABLE", replaced, REMOVE)) == [("recreated", True)]
    assert judged(commit("SET TBLPROPERTIES", {"metaData": {"id": ID}})) == []


def test_our_own_removals_are_no_disturbance() -> None:
    assert judged(commit("MERGE", ADD, REMOVE, text=note(mode="merge").text)) == []
