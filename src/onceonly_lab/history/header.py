"""The first line of a history: what was run, and what is promised about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from onceonly_lab.history.jsonfields import Reader, decoded, flag, integer, line, many, mapping, sparse, text

FORMAT = 1
"""Version of the history format. A reader refuses any other."""


class Situation(StrEnum):
    """What a run can be required to have gone through; a run that did not proves nothing about it."""

    SPLIT = "one sink committed, one not, recovered"
    ZOMBIE = "zombie blocked"
    RESOLVED = "answer lost, resolved as committed"


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised about one sink.

    Attributes:
        sink: sink id.
        ordered: rows of one key stand in the order of the input.
        whole: a read shows an epoch whole or not at all (not so across the partitions of a topic).
        keeps: rows stay once they are there; an upsert replaces them, and is judged by a golden run alone.
    """

    sink: str
    ordered: bool = False
    whole: bool = True
    keeps: bool = True

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(**decoded(mapping(value), _PROMISE, ("sink",)))

    def to_json(self) -> dict[str, Any]:
        """Field names to values, without those at their default."""
        return sparse(self)


@dataclass(frozen=True, slots=True)
class Header:
    """The first line.

    Attributes:
        sinks: the sinks that are judged.
        run: a name for people: the schedule, the level.
        seed: what the run was drawn from.
        deterministic: the plan gives the same rows when it is run again.
        requires: what the run had to go through to be worth something.
        refusals: codes of refusals that are a right answer to the faults of this run.
        again: arguments of ``onceonly lab`` that run the same once more; empty where nothing does.
    """

    sinks: tuple[Promise, ...]
    run: str = ""
    seed: int | None = None
    deterministic: bool = True
    requires: tuple[Situation, ...] = ()
    refusals: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`.

        Raises:
            ValueError: not a header, or one of another version.
        """
        found = mapping(value)
        if found.get("history") != FORMAT:
            raise ValueError(f"not a history of version {FORMAT}: 'history' is {found.get('history')!r}")
        return cls(**decoded({name: cell for name, cell in found.items() if name != "history"}, _HEADER, ("sinks",)))

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the version first."""
        return {"history": FORMAT, **sparse(self)}

    @property
    def text(self) -> str:
        """The line, without its end."""
        return line(self.to_json())


_PROMISE: dict[str, Reader] = {"sink": text, "ordered": flag, "whole": flag, "keeps": flag}
_HEADER: dict[str, Reader] = {
    "sinks": many(Promise.from_json),
    "run": text,
    "seed": integer,
    "deterministic": flag,
    "requires": many(Situation),
    "refusals": many(text),
    "again": many(text),
}
