"""The variants: which conditions each keeps, and what must therefore be seen. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onceonly_lab.necessity import designs
from onceonly_lab.necessity.designs import Design
from onceonly_lab.necessity.symptoms import Symptom
from onceonly_lab.necessity.world import TAKEN, Function, Reader, isolated, raw

Shows = Mapping[Function, frozenset[Symptom]]


def _shows(always: str, state: str = "", ids: str = "") -> Shows:
    """Symptoms with every F, and what random state, and random ids besides that, add."""
    every, more, most = (frozenset(Symptom(word) for word in words.split()) for words in (always, state, ids))
    return {
        Function.DETERMINISTIC: every,
        Function.RANDOM_STATE: every | more,
        Function.RANDOM_IDS: every | more | most,
    }


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a pipeline.

    Attributes:
        name: what is done, in words.
        drops: the condition that is not kept; empty where all are.
        design: its durable steps.
        shows: what must be seen over all schedules of crashes, and nothing else, for each kind of F.
        reader: what a reader sees.
        retaken: records that a retry takes; other than :data:`TAKEN` where nothing logs an epoch's range.
    """

    name: str
    drops: str
    design: Design
    shows: Shows
    reader: Reader = raw
    retaken: int = TAKEN


_ATOMIC, _ISOLATED, _RANGE, _STORED = (
    "outputs, state and position become durable together",
    "nothing uncommitted is seen",
    "an epoch's range is logged before it is used",
    "results are stored, not computed again",
)

VARIANTS: tuple[Variant, ...] = (
    Variant("append, position saved after", _ATOMIC, designs.saved_after, _shows("DUP TORN", "CHANGED")),
    Variant("append, position saved before", _ATOMIC, designs.saved_before, _shows("LOSS TORN")),
    Variant("upsert row by row, position after", _ISOLATED, designs.upserted, _shows("TORN", "CHANGED", "DUP")),
    Variant(
        "the same, state and position saved apart",
        _ATOMIC,
        designs.upserted_saved_apart,
        _shows("WRONG TORN CHANGED", ids="DUP"),
    ),
    Variant("one transaction for outputs, state, position", "", designs.one_transaction, _shows("")),
    Variant("two stores, output first", _ATOMIC, designs.output_first, _shows("DUP", "CHANGED")),
    Variant("two stores, position first", _ATOMIC, designs.position_first, _shows("LOSS")),
    Variant("sink commit with marker, state apart", _STORED, designs.marked, _shows("", "BROKEN")),
    Variant("the same, epoch's range not logged", _RANGE, designs.marked, _shows("LOSS TORN", "BROKEN"), retaken=3),
    Variant("prepare, decide, commit, roll forward", "", designs.decided_first, _shows("")),
    Variant("the same without the durable decision", _STORED, designs.undecided, _shows("", "BROKEN")),
    Variant("staged, upsert row by row", _ISOLATED, designs.staged(designs.upserted), _shows("TORN")),
    Variant("staged, appended row by row", _ATOMIC, designs.staged(designs.saved_after), _shows("DUP TORN")),
    Variant("staged, sink commit with marker", "", designs.staged(designs.marked), _shows("")),
    Variant("visible rows, raw reader", _ISOLATED, designs.upserted, _shows("TORN", "CHANGED", "DUP")),
    Variant("visible rows, reader filters by epoch", "", designs.upserted, _shows("", ids="DUP CHANGED"), isolated),
    Variant("two sinks with markers, unstaged", _STORED, designs.fanned_out, _shows("", "DISAGREE BROKEN")),
    Variant("two sinks with markers, staged", "", designs.staged(designs.fanned_out), _shows("")),
)
"""In the order in which they are shown."""
