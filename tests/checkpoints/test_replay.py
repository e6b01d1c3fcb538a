"""Replay checkpoints hold what Spark needs to run the recorded batch and no other. Spark is tried elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoints.samples import (
    at,
    commit_text,
    epoch_after,
    file,
    history,
    lineage,
    offsets_text,
    record_of,
    write,
)

from onceonly.replay.replay_files import Origin, plan_files, prepare
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.model import Slice, SourceIdentity, SourceOffsets
from onceonly_checkpoints.spark import logs, offsets
from onceonly_checkpoints.spark.offsets import REPLAY
from onceonly_checkpoints.spark.replay_plan import CannotReplay, MissingInput, StateFrom, Step, plan_steps
from onceonly_checkpoints.storage import LocalStorage

OWN = "11111111-1111-1111-1111-111111111111"
SHUFFLES = {"spark.sql.shuffle.partitions": "7"}


def texts(step: Step, **noted: str) -> dict[str, str]:
    return {each.path: each.text for each in plan_files(step, OWN, SHUFFLES, noted)}


def topic(*ends: int) -> list[EpochRecord]:
    """Epochs of a Kafka source, one batch each."""
    made: list[EpochRecord] = []
    for number, end in enumerate(ends):
        before = made[-1].epoch if made else None
        epoch = epoch_after(before, SourceOffsets.of({"0": f'{{"orders":{{"0":{end}}}}}'}), lineage(number))
        named = replace(epoch, sources=(SourceIdentity("0", 'kafka:{"cluster":"c"}'),))
        made.append(record_of(chain.linked(named)))
    return made


def read(text: str) -> list[str]:
    return [each.path for each in logs.parse_files(text, "0", "log")]


def shown(steps: Sequence[Step]) -> list[tuple[int, int, int]]:
    return [(step.first, step.last, step.batch_id) for step in steps]


def test_a_recorded_batch_is_the_newest_entry_and_the_only_one_without_a_commit() -> None:
    [step] = plan_steps(list(history(6)), 4, 4)
    found = texts(step)
    assert sorted(found) == ["commits/3", "metadata", "offsets/3", "offsets/4", "sources/0/3.compact"]
    assert offsets.parse_offsets(found["offsets/3"]).offsets == at(2)
    entry = offsets.parse_offsets(found["offsets/4"])
    assert (entry.offsets, entry.batch_timestamp_ms, entry.watermark_ms) == (at(3), 1_700_000_000_003, 43)
    assert dict(entry.conf) == SHUFFLES
    assert offsets.parse_query_id(found["metadata"]) == OWN
    assert read(found["sources/0/3.compact"]) == [file(3).path]


def test_the_first_batch_of_a_source_has_nothing_before_it() -> None:
    [step] = plan_steps(list(history(3)), 1, 1)
    assert sorted(texts(step)) == ["metadata", "offsets/0", "sources/0/0.compact"]


def test_epochs_run_one_by_one_and_adoptions_not_at_all() -> None:
    records = list(history(2))
    moved = record_of(epoch_after(records[-1].epoch, at(4), None))
    after = record_of(epoch_after(moved.epoch, at(5), lineage(5)), [file(5)])
    assert shown(plan_steps([*records, moved, after], 1, 4)) == [(1, 1, 0), (2, 2, 2), (4, 4, 4)]


def test_epochs_that_follow_each_other_can_be_one_batch_under_the_clock_of_the_last() -> None:
    steps = plan_steps(list(history(7)), 2, 6, coalesce=3)
    assert shown(steps) == [(2, 4, 4), (5, 6, 6)]
    found = texts(steps[0])
    assert read(found["sources/0/3.compact"]) == [file(number).path for number in (1, 2, 3)]
    assert offsets.parse_offsets(found["offsets/3"]).offsets == at(0)
    assert offsets.parse_offsets(found["offsets/4"]).batch_timestamp_ms == 1_700_000_000_003


def test_epochs_before_and_after_a_jump_or_another_checkpoint_are_never_one_batch() -> None:
    records = list(history(2))
    moved = record_of(epoch_after(records[-1].epoch, at(4), None))
    after = record_of(epoch_after(moved.epoch, at(5), lineage(5)), [file(5)])
    assert shown(plan_steps([*records, moved, after], 1, 4, coalesce=10)) == [(1, 2, 0), (4, 4, 4)]
    other = record_of(epoch_after(after.epoch, at(6), lineage(6, OWN)), [file(6)])
    assert shown(plan_steps([*records, moved, after, other], 4, 5, coalesce=10)) == [(4, 4, 4), (5, 5, 5)]


def test_an_epoch_or_a_file_list_that_is_not_on_record_is_told() -> None:
    records = list(history(4))
    with pytest.raises(CannotReplay, match="holds no epoch 5") as found:
        plan_steps(records, 3, 6)
    assert (found.value.lacking, found.value.first, found.value.last) == (MissingInput.INPUT, 5, 6)
    records[2] = replace(records[2], files=())
    with pytest.raises(CannotReplay, match=r"not known \(1 of 1 log entries\)") as found:
        plan_steps(records, 1, 4)
    assert (found.value.lacking, found.value.first, found.value.last) == (MissingInput.INPUT, 3, 3)


def test_of_a_trimmed_batch_of_files_those_that_were_written_are_read() -> None:
    records = list(history(3))
    offered, last = Slice(at(None), at(3)), records[-1].epoch
    epoch = replace(epoch_after(last, at(3), lineage(0, OWN)), offered=offered)
    records.append(record_of(chain.linked(epoch), [file(number) for number in range(4)]))
    [step] = plan_steps(records, 4, 4)
    assert step.slice == offered
    assert [each.path for each in step.files] == [file(3).path]


def test_of_a_trimmed_batch_of_a_topic_the_offsets_that_were_written_are_read() -> None:
    records = topic(10, 20)
    offered = Slice(records[0].epoch.written.start, SourceOffsets.of({"0": '{"orders":{"0":30}}'}))
    epoch = replace(epoch_after(records[-1].epoch, offered.end, lineage(0, OWN)), offered=offered)
    [step] = plan_steps([*records, record_of(chain.linked(epoch))], 3, 3)
    assert step.slice == Slice(records[-1].epoch.written.end, offered.end)


def test_where_a_topic_began_is_taken_from_the_checkpoint_and_never_from_options() -> None:
    [step] = plan_steps(topic(10, 20), 1, 1)
    with pytest.raises(CannotReplay, match="only the lost checkpoint held"):
        texts(step)
    assert texts(step, **{"0": "\0v1\n{}"})["sources/0/0"] == "\0v1\n{}"
    [later] = plan_steps(topic(10, 20), 2, 2)
    assert "sources/0/0" not in texts(later)


# ---- state


def test_state_is_copied_once_and_goes_on_in_the_replay_checkpoint() -> None:
    steps = plan_steps(list(history(6)), 3, 5, stateful=True)
    assert shown(steps) == [(3, 3, 2), (4, 4, 3), (5, 5, 4)]
    assert [(step.fresh, step.copies_state) for step in steps] == [(True, True), (False, False), (False, False)]
    assert sorted(texts(steps[0])) == ["metadata", "offsets/1", "offsets/2", "sources/0/2.compact"]
    assert sorted(texts(steps[1])) == ["offsets/3", "sources/0/3.compact"]


def test_state_is_grown_by_all_batches_before() -> None:
    steps = plan_steps(list(history(4)), 3, 4, stateful=True, state=StateFrom.BEGINNING)
    assert [(step.batch_id, step.is_requested, step.fresh) for step in steps] == [
        (0, False, True), (1, False, False), (2, True, False), (3, True, False),
    ]  # fmt: skip
    assert not any(step.copies_state for step in steps)


@pytest.mark.parametrize("state", list(StateFrom))
def test_a_batch_that_is_no_epoch_left_a_state_that_nobody_can_grow(state: StateFrom) -> None:
    records = list(history(4))
    late = record_of(epoch_after(records[-1].epoch, at(5), lineage(5)), [file(4), file(5)])
    with pytest.raises(CannotReplay, match="batch 4 of its query is no epoch") as found:
        plan_steps([*records, late], 4, 5, stateful=True, state=state)
    assert (found.value.lacking, found.value.first) == (MissingInput.STATE, 5)


def test_state_is_grown_from_the_first_batch_or_not_at_all() -> None:
    with pytest.raises(CannotReplay, match="first batch on record of its query is batch 1"):
        plan_steps(list(history(4))[1:], 3, 4, stateful=True, state=StateFrom.BEGINNING)
    with pytest.raises(ValueError, match="coalesced"):
        plan_steps(list(history(4)), 3, 4, stateful=True, coalesce=2)


# ---- as files


@pytest.fixture
def original(tmp_path: Path) -> LocalStorage:
    """A checkpoint after six batches that keeps the newest four versions of its state."""
    made = LocalStorage(tmp_path / "ck")
    write(made, metadata=json.dumps({"id": lineage(0).query_id}))
    for number in range(6):
        write(made, **{f"offsets/{number}": offsets_text(f'{{"logOffset":{number}}}')})
        write(made, **{f"commits/{number}": commit_text(number)})
        if number > 1:
            write(made, **{f"state/0/0/{number + 1}.delta": f"state {number + 1}"})
    write(made, **{"state/0/_metadata/metadata": "v1", "state/0/0/left/3_ab.zip": "z"})
    return made


def test_state_is_copied_in_the_version_with_which_the_batch_began(original: LocalStorage, tmp_path: Path) -> None:
    [step] = plan_steps(list(history(6)), 5, 5, stateful=True)
    storage = LocalStorage(tmp_path / "replay")
    prepare(step, storage, Origin(original), query_id=OWN, conf=SHUFFLES, about="ck")
    found = {str(path.relative_to(tmp_path / "replay")) for path in (tmp_path / "replay").rglob("*") if path.is_file()}
    assert found == {
        REPLAY, "metadata", "offsets/3", "offsets/4", "commits/3", "sources/0/4.compact",
        "state/0/0/3.delta", "state/0/0/4.delta", "state/0/0/left/3_ab.zip", "state/0/_metadata/metadata",
    }  # fmt: skip
    assert storage.read("commits/3") == original.read("commits/3")
    assert dict(offsets.offset_entry(storage, 4).conf) == {"a": "1", "b": "2"} | SHUFFLES


@pytest.mark.parametrize(
    ("epoch", "gone", "reason"),
    [(3, "", "no version 2 of its state"), (5, "commits/3", "no commit of batch 3"), (5, "metadata", "cannot be read")],
)
def test_state_that_is_not_kept_is_told(
    original: LocalStorage, tmp_path: Path, epoch: int, gone: str, reason: str
) -> None:
    original.delete(gone or "nothing")
    [step] = plan_steps(list(history(6)), epoch, epoch, stateful=True)
    with pytest.raises(CannotReplay, match=reason) as found:
        prepare(step, LocalStorage(tmp_path / "replay"), Origin(original), query_id=OWN, conf=SHUFFLES, about="ck")
    assert found.value.lacking is MissingInput.STATE


def test_state_of_another_query_is_not_taken(original: LocalStorage, tmp_path: Path) -> None:
    original.delete("metadata")
    write(original, metadata=json.dumps({"id": OWN}))
    [step] = plan_steps(list(history(6)), 5, 5, stateful=True)
    with pytest.raises(CannotReplay, match=f"is of query {OWN}"):
        prepare(step, LocalStorage(tmp_path / "replay"), Origin(original), query_id=OWN, conf=SHUFFLES, about="ck")


def test_the_next_step_leaves_one_file_in_the_log_of_a_source(original: LocalStorage, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "replay")
    for step in plan_steps(list(history(6)), 5, 6, stateful=True):
        prepare(step, storage, Origin(original), query_id=OWN, conf=SHUFFLES, about="ck")
    assert storage.names("sources/0") == ("5.compact",)
    assert offsets.offset_ids(storage) == (3, 4, 5)


def test_settings_of_a_lost_checkpoint_are_those_of_the_session(tmp_path: Path) -> None:
    [step] = plan_steps(list(history(2)), 2, 2)
    storage = LocalStorage(tmp_path / "replay")
    prepare(step, storage, Origin(LocalStorage(tmp_path / "gone")), query_id=OWN, conf=SHUFFLES, about="ck")
    assert dict(offsets.offset_entry(storage, 2).conf) == SHUFFLES
