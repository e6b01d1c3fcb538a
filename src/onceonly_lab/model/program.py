"""A user's program around the wrapper: how often it calls for a batch, under which id, with which part of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from onceonly import calls
from onceonly.facts import Refusal
from onceonly_lab.model.parts import PIPELINE, Records
from onceonly_lab.model.spark import Planned


class Program(StrEnum):
    """What a program does with a batch that it is handed; the value says it in words."""

    PLAIN = "hands each batch over once"
    PARTS = "hands each batch over in two parts"
    WRAPPERS = "hands each batch over in two parts, to two wrappers of one name"
    CONSTANT = "hands every batch over as batch 0"

    @property
    def misuses(self) -> bool:
        """Whether it does what Spark never does."""
        return self is not Program.PLAIN

    @property
    def in_parts(self) -> bool:
        """Whether it calls twice for a batch."""
        return self in {Program.PARTS, Program.WRAPPERS}


MISUSED = frozenset({"E103", "E123", "E124"})
"""Codes with which wrong calls are refused."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a wrapper.

    Attributes:
        batch_id: what it is handed.
        planned: the id that the engine set.
        finished: the newest batch that this run has finished; ``None`` if there is none.
        other: whether another wrapper of this name is in use by the same run.
    """

    batch_id: int
    planned: int
    finished: int | None = None
    other: bool = False


def refusal(call: Call) -> str:
    """The code with which the product refuses a call before anything is compared; empty where it does not."""
    found = _entry(call) or calls.decide_call(calls.Call(PIPELINE, call.batch_id, call.planned, call.finished))
    return found.code if found else ""


def _entry(call: Call) -> Refusal | None:
    first, second = (calls.Holder(PIPELINE, wrapper, "query", "run") for wrapper in (1, 2))
    return calls.decide_entry(calls.Entering(second, named=first)) if call.other else None


def parts(program: Program, planned: Planned) -> tuple[Records, Records]:
    """What the first call for a batch brings, and what the second one does; none where there is no second."""
    records = planned.records
    if not program.in_parts or records.bit_count() < 2:
        return records, 0
    first = records & -records
    return first, records & ~first
