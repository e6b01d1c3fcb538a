"""Markers that outlived their target are told from those whose target is there, whoever remembers it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.several import Pipeline
from tests.core.stories import epochs, reading

from onceonly.errors import OnceOnlyError
from onceonly.machine.rewind import RewindRequest
from onceonly.replay import rewind
from onceonly.runtime import sink_gaps
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.memory import MemorySink

A = "memory:a"
WHERE = CommandContext("orders", "")


class Beside(MemorySink):
    """A sink whose markers stand beside its rows, and name the target that they were written for."""

    was: str

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        for marker, receipt in super().history(after):
            yield marker, replace(receipt, identity=self.was)

    def content_epoch(self) -> int | None:
        """Nobody knows whose rows stand in the place of what the markers tell of."""
        return None if self.was != self.store.identity else super().content_epoch()


def sink(root: Path, *, was: str, now: str) -> Beside:
    pipeline = Pipeline(root, ("a",))
    pipeline.driver().writes(1, 2)
    made = Beside(A, pipeline.stores["a"])
    made.was, made.store.identity = was, now
    made.open("orders")
    return made


def receipt(identity: str) -> Receipt:
    return Receipt(A, 2, "chain", identity, (), 10)


def test_a_target_is_gone_where_nobody_remembers_the_one_that_is_there(tmp_path: Path) -> None:
    told = {
        ("table 1", "table 1", ""): {},
        ("table 1", "table 2", ""): {A: "table 2"},
        ("table 1", "", ""): {A: "nothing there"},
        ("table 1", "table 2", "table 1"): {A: "table 2"},
        ("table 1", "table 2", "table 2"): {},  # the ledger knows that it was brought up there
        ("", "table 2", ""): {},  # markers that name no target say nothing
    }
    found = {}
    for at, (was, now, recorded) in enumerate(told):
        made = sink(tmp_path / str(at), was=was, now=now)
        known = {A: receipt(recorded)} if recorded else {}
        found[was, now, recorded] = sink_gaps.stale_sinks([made], {A: 2}, known)
        assert sink_gaps.stale_sinks([made], {A: 0}, known) == {}, "a sink without an epoch has no marker"
    assert found == told


def test_a_rewind_asks_the_ledger_whether_the_target_that_is_there_was_brought_up(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, ("a", "b"))
    pipeline.driver().writes(1, 2, 3)
    pipeline.stores["a"].restore(2)
    found = {}
    for recorded in ("table 2", "table 1"):
        a, b = Beside(A, pipeline.stores["a"]), pipeline.sinks()[1]
        a.was, a.store.identity = "table 1", "table 2"
        for record in pipeline.ledger.epochs("orders"):
            receipts = tuple(
                replace(receipt, identity=recorded) if receipt.sink == A else receipt for receipt in record.receipts
            )
            pipeline.ledger.record(replace(record, receipts=receipts))
        of = rewind.Pipeline("orders", (a, b), pipeline.ledger, WHERE)
        try:
            rewind.plan(of, RewindRequest(2, (A,)))
            found[recorded] = ""
        except OnceOnlyError as refused:
            found[recorded] = refused.code
    assert found == {"table 2": "", "table 1": "E110"}


def test_a_sink_whose_target_is_gone_is_refused_under_the_fence_with_the_way_to_give_its_rows_up(
    tmp_path: Path,
) -> None:
    made = sink(tmp_path, was="table 1", now="table 2")
    two = epochs(10, 20)[1]
    for identity, other in [("table 1", False), ("table 2", True)]:
        said = replace(reading(two, sink=A, identity=identity), receipt=None)
        sink_gaps.demand([made], WHERE, [replace(said, sink="memory:other")])
        if not other:
            sink_gaps.demand([made], WHERE, [said])
            continue
        with pytest.raises(OnceOnlyError) as refused:
            sink_gaps.demand([made], WHERE, [said])
        assert refused.value.code == "E110"
        assert "was created again (table 2)" in str(refused.value)
        assert "--accept-loss 1..2 --sink memory:a" in str(refused.value)
