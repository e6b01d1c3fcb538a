"""The catalogue of codes: the texts of each error and warning.

There is one entry each, in the order of their families. Codes are stable, and texts are snapshot-tested. The texts are
in one Markdown file per family beside this one. The messages, ``onceonly explain`` and the pages of the documentation
are all made from them. They are read when the first code is looked up: importing this costs executors nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import TypeVar

from onceonly_checkpoints.strenum import StrEnum


class Family(StrEnum):
    """Subjects of codes, in their order: ``E1xx`` to ``E6xx``, then ``W7xx``. Each is the name of its file."""

    CONFIGURATION = "configuration"
    IDENTITY = "identity"
    OUTCOME = "outcome"
    FENCED = "fenced"
    DESTINATION = "destination"
    CHECKPOINT = "checkpoint"
    WARNINGS = "warnings"

    @classmethod
    def of(cls, code: str) -> Family | None:
        """The family of a code. ``None`` where none has such codes."""
        return _NUMBERED.get(code[:2])


FAMILIES = tuple(Family)
"""All of them, in the order of the codes."""

_NUMBERED: Mapping[str, Family] = dict(zip(("E1", "E2", "E3", "E4", "E5", "E6", "W7"), FAMILIES, strict=True))
"""How codes begin, by their family."""

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_LABELS = ("Why it matters: ", "Likely cause: ", "Next: ")


@dataclass(frozen=True, slots=True)
class Entry:
    """The texts of one code. ``{name}`` is a detail that the raising code must give.

    Attributes:
        what: what happened, the first line of the message.
        matter: why it matters, and the work that was not done.
        remedy: the next command or change, only if it applies. One remedy per line.
        more: background for the code's page, for which a message has no room. Empty if there is none.
    """

    what: str
    matter: str
    cause: str
    remedy: str
    more: str = ""


T = TypeVar("T")


class Catalogue(Mapping[str, T]):
    """The texts of each code, read at the first look-up. ``read`` yields them in their order."""

    def __init__(self, read: Callable[[], Iterator[tuple[str, T]]]) -> None:
        self._read = read

    def __getitem__(self, code: str) -> T:
        """The texts of a code. :class:`KeyError` without such a code."""
        return self._entries[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @cached_property
    def _entries(self) -> dict[str, T]:
        return dict(self._read())


def text_of(name: str, package: str = __name__) -> str:
    """The file of a family, or of that name in another package."""
    return (files(package) / f"{name}.md").read_text(encoding="utf-8")


def parse(text: str) -> Iterator[tuple[str, Entry]]:
    """Codes and their entries, in the order of a family's file.

    Raises:
        ValueError: an entry has another form: what happened, then three labelled paragraphs, then perhaps background.
    """
    for code, (what, matter, cause, remedy, *more) in sections(text, *_LABELS):
        yield code, Entry(one_line(what), one_line(matter), one_line(cause), remedy, "\n\n".join(more))


def sections(text: str, *labels: str) -> Iterator[tuple[str, list[str]]]:
    """Headings and paragraphs of a file of texts.

    The paragraphs after the first begin with these labels, which are taken away. Raises ``ValueError``: one of them
    does not.
    """
    parts = _HEADING.split(text)
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        first, *rest = body.strip().split("\n\n")
        labelled, more = rest[: len(labels)], rest[len(labels) :]
        if [part.startswith(label) for part, label in zip(labelled, labels, strict=False)] != [True] * len(labels):
            raise ValueError(f"{heading}: what happened is followed by {', '.join(labels)}in this order")
        yield heading, [first, *(part.removeprefix(label) for part, label in zip(labelled, labels, strict=True)), *more]


def one_line(paragraph: str) -> str:
    """A paragraph without the ends of its lines."""
    return " ".join(paragraph.split("\n"))


CATALOGUE = Catalogue(lambda: (entry for family in FAMILIES for entry in parse(text_of(family))))
"""Every code, in the order of the families."""
