"""A whole history as text: read with the number of the line that is wrong, appended to line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onceonly_lab.history.entry import Entry
from onceonly_lab.history.header import Header


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
        kept = replace(self, header=replace(self.header, again=again))
        path.write_text(kept.text, encoding="utf-8")


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
    for number, text in enumerate(lines, 1):
        read = Header.from_json if number == 1 else Entry.from_json
        try:
            yield read(json.loads(text))
        except ValueError as wrong:
            raise UnreadableHistory(f"line {number}: {wrong}") from None
