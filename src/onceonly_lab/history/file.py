"""Read a history file: header and lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly_lab.history.entry import Entry, Reader, decoded, flag, integer, line, many, mapping, sparse, text
from onceonly_lab.strenum import StrEnum

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- The first line of a history: what was run, and what is promised about it.

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
        output: the output that it gets, ``bad`` for a quarantine; empty: all good rows.
        once: it takes the first row of a key, and none of those that come later.
    """

    sink: str
    ordered: bool = False
    whole: bool = True
    keeps: bool = True
    output: str = ""
    once: bool = False

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
        document = mapping(value)
        if document.get("history") != FORMAT:
            raise ValueError(f"not a history of version {FORMAT}: 'history' is {document.get('history')!r}")
        return cls(**decoded({name: cell for name, cell in document.items() if name != "history"}, _HEADER, ("sinks",)))

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the version first."""
        return {"history": FORMAT, **sparse(self)}

    @property
    def text(self) -> str:
        """The line, without its end."""
        return line(self.to_json())


_PROMISE: dict[str, Reader] = {
    "sink": text,
    "ordered": flag,
    "whole": flag,
    "keeps": flag,
    "output": text,
    "once": flag,
}
_HEADER: dict[str, Reader] = {
    "sinks": many(Promise.from_json),
    "run": text,
    "seed": integer,
    "deterministic": flag,
    "requires": many(Situation),
    "refusals": many(text),
    "again": many(text),
}


# ---- A whole history as text: read with the number of the line that is wrong, appended to line by line.


class UnreadableHistory(ValueError):
    """A history cannot be understood; the text says which line and why."""


@dataclass(frozen=True, slots=True)
class History:
    """A whole run."""

    header: Header
    entries: tuple[Entry, ...]

    @property
    def text(self) -> str:
        """The file: one line each."""
        return "\n".join([self.header.text, *(entry.text for entry in self.entries), ""])

    def keep(self, path: Path, *again: str) -> None:
        """Write the file.

        Args:
            path: where.
            again: arguments of ``onceonly lab`` that run the same once more; none where nothing does.

        Raises:
            OSError: it cannot be written.
        """
        history = replace(self, header=replace(self.header, again=again))
        path.write_text(history.text, encoding="utf-8")


def parse(text: str) -> History:
    """Read a history from its text.

    Raises:
        UnreadableHistory: with the number of the line, from 1, and what is wrong there.
    """
    lines = text.split("\n")
    if lines.pop():
        raise UnreadableHistory(f"line {len(lines) + 1}: cut off before its end")
    if not lines:
        raise UnreadableHistory("line 1: the history is empty")
    header, *entries = _parsed(lines)
    return History(header, tuple(entries))


def load(path: Path) -> History:
    """Read a history from its file.

    Raises:
        UnreadableHistory: with the file, the number of the line, from 1, and what is wrong there.
        OSError: the file cannot be read.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as wrong:
        raise UnreadableHistory(f"{path}: not UTF-8 from byte {wrong.start} on") from None
    except UnreadableHistory as wrong:
        raise UnreadableHistory(f"{path}: {wrong}") from None


def _parsed(lines: Iterable[str]) -> Iterator[Any]:
    for number, json_line in enumerate(lines, 1):
        read = Header.from_json if number == 1 else Entry.from_json
        try:
            yield read(json.loads(json_line))
        except ValueError as wrong:
            raise UnreadableHistory(f"line {number}: {wrong}") from None
