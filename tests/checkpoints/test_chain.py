"""The chain sees any change of anything that an epoch says of itself, and any epoch taken out, doubled or moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoints.samples import at, epoch_after, history, lineage

from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, ResumePoint
from onceonly_checkpoints.model import Adoption, AdoptionKind, InputFile, SourceOffsets

LENGTH = 6


def epochs() -> list[Epoch]:
    return [record.epoch for record in history(LENGTH)]


CHANGES: dict[str, Callable[[Epoch], Epoch]] = {
    "start": lambda e: replace(e, written=replace(e.written, start=at(77))),
    "end": lambda e: replace(e, written=replace(e.written, end=at(77))),
    "source id": lambda e: replace(
        e, written=replace(e.written, end=SourceOffsets.of({"1": e.written.end.entries[0][1]}))
    ),
    "rows": lambda e: replace(e, digest=replace(e.digest, rows=e.digest.rows + 1)),
    "high": lambda e: replace(e, digest=replace(e.digest, high=e.digest.high + 1)),
    "low": lambda e: replace(e, digest=replace(e.digest, low=e.digest.low + 1)),
    "schema": lambda e: replace(e, schema="other"),
    "adoption": lambda e: replace(e, adoption=Adoption(AdoptionKind.START, reason="by hand")),
    "offered": lambda e: replace(e, offered=e.written),
    "watermark": lambda e: replace(e, lineage=e.lineage and replace(e.lineage, watermark_ms=7)),
    "clock": lambda e: replace(e, lineage=e.lineage and replace(e.lineage, batch_timestamp_ms=7)),
    "batch": lambda e: replace(e, lineage=e.lineage and replace(e.lineage, batch_id=77)),
    "sinks": lambda e: replace(e, sinks=e.sinks[:1]),
    "sources": lambda e: replace(e, sources=()),
    "manifest": lambda e: replace(e, manifest="elsewhere#sha256=0"),
    "previous chain": lambda e: replace(e, previous_chain="0" * 64),
    "chain": lambda e: replace(e, chain="0" * 64),
    "number": lambda e: replace(e, number=e.number + 1),
}


def test_an_honest_history_has_no_break() -> None:
    assert chain.first_break(epochs()) is None
    assert all(chain.sound(epoch) for epoch in epochs())


def test_any_change_of_one_epoch_is_found() -> None:
    honest = epochs()
    breaks = {
        (change, index): chain.first_break([*honest[:index], alter(honest[index]), *honest[index + 1 :]])
        for change, alter in CHANGES.items()
        for index in range(LENGTH)
    }
    assert {case: broken for case, broken in breaks.items() if broken != case[1]} == {}


@given(st.integers(0, LENGTH - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_any_other_digest_is_found(index: int, high: int, low: int, rows: int) -> None:
    found = epochs()
    digest = Digest(rows, high, low)
    if digest != found[index].digest:
        found[index] = replace(found[index], digest=digest)
        assert chain.first_break(found) == index


@given(st.integers(1, LENGTH - 2))
def test_an_epoch_taken_out_is_found(index: int) -> None:
    found = epochs()
    del found[index]
    assert chain.first_break(found) == index


@given(st.integers(0, LENGTH - 2))
def test_two_epochs_exchanged_are_found(index: int) -> None:
    found = epochs()
    found[index], found[index + 1] = found[index + 1], found[index]
    assert chain.first_break(found) == max(index, 1)  # what comes before the first is not known


def test_a_change_that_hides_itself_breaks_the_next_link() -> None:
    found = epochs()
    forged = replace(found[2], digest=Digest(999))
    found[2] = chain.linked(forged)
    assert chain.sound(found[2])
    assert chain.first_break(found) == 3


def test_a_part_of_a_history_is_unbroken_and_descends_to_its_last() -> None:
    found = epochs()
    assert chain.descends(found[4], found[2:5])
    assert not chain.descends(found[5], found[2:5])
    assert not chain.descends(found[4], [])


def test_an_adoption_is_a_link_of_its_own() -> None:
    previous = epochs()[-1]
    adopted = epoch_after(previous, at(50), None)
    assert chain.first_break([previous, adopted]) is None
    assert not chain.sound(replace(adopted, adoption=None))
    assert not chain.sound(replace(adopted, adoption=Adoption(AdoptionKind.START, reason="another reason")))
    assert not chain.sound(replace(adopted, carried=None))


def test_columns_are_told_apart_by_name_type_and_order() -> None:
    known = {
        chain.fingerprint(columns)
        for columns in ([("a", "int")], [("a", "long")], [("b", "int")], [("a", "int"), ("b", "int")],
                        [("b", "int"), ("a", "int")], [("ab", "int")], [("a", "bint")])
    }  # fmt: skip
    assert len(known) == 7


def test_a_file_list_is_hashed_whatever_its_order_and_sees_a_file_more() -> None:
    files = [InputFile(f"/in/{name}", 5, 0) for name in "abc"]
    assert chain.inputs(files) == chain.inputs(reversed(files))
    assert chain.inputs(files) != chain.inputs(files[:2])
    assert chain.inputs(files) != chain.inputs([*files[:2], replace(files[2], modified_ms=6)])


def test_a_copy_for_a_sink_that_was_behind_breaks_the_chain_if_it_has_another_clock_or_watermark() -> None:
    epoch = epochs()[-1]
    assert epoch.lineage is not None
    for damaged in (replace(epoch.lineage, watermark_ms=1), replace(epoch.lineage, batch_timestamp_ms=1)):
        assert not chain.sound(replace(epoch, lineage=damaged))
        assert not chain.descends(epoch, [*epochs()[:-1], replace(epoch, lineage=damaged)])


def test_what_stands_goes_through_epochs_without_a_batch_unchanged_and_is_hashed() -> None:
    previous = epochs()[-1]
    once = epoch_after(previous, at(50), None)
    twice = epoch_after(once, at(50), None)
    assert twice.resume_point.lineage == previous.lineage
    assert [one.kind for one in twice.resume_point.accepted] == ["start", "start"]
    assert epoch_after(twice, at(51), lineage(99)).resume_point == ResumePoint(lineage(99))
    assert not chain.sound(replace(twice, carried=replace(twice.resume_point, lineage=lineage(3))))
