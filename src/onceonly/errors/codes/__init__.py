"""The catalogue of codes: the texts of each error and warning.

There is one entry each, in the order of their families. Codes are stable, and texts are snapshot-tested. The texts are
in one Markdown file per family beside this one. The messages, ``onceonly explain`` and the pages of the documentation
are all made from them. They are read when the first code is looked up: importing this costs executors nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

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


_NUMBERED: Mapping[str, Family] = {
    "E1": Family.CONFIGURATION,
    "E2": Family.IDENTITY,
    "E3": Family.OUTCOME,
    "E4": Family.FENCED,
    "E5": Family.DESTINATION,
    "E6": Family.CHECKPOINT,
    "W7": Family.WARNINGS,
}
"""How codes begin, by their family."""

FAMILIES = tuple(Family)
"""All of them, in the order of the codes."""

_HEADING = re.compile(r"^## ([EW]\d{3})$", re.MULTILINE)
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


class Catalogue(Mapping[str, Entry]):
    """Every code with its texts, read from the files of the families at the first look-up."""

    def __getitem__(self, code: str) -> Entry:
        """The texts of a code. :class:`KeyError` without such a code."""
        return self._entries[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return {code: entry for family in FAMILIES for code, entry in parse(text_of(family))}


def text_of(family: str) -> str:
    """The file of a family. See :data:`FAMILIES`."""
    return (files(__name__) / f"{family}.md").read_text(encoding="utf-8")


def parse(text: str) -> Iterator[tuple[str, Entry]]:
    """Codes and their entries, in the order of a family's file.

    Raises:
        ValueError: an entry has another form: what happened, then three labelled paragraphs, then perhaps background.
    """
    parts = _HEADING.split(text)
    for code, body in zip(parts[1::2], parts[2::2], strict=True):
        what, *rest = body.strip().split("\n\n")
        labelled, more = rest[: len(_LABELS)], rest[len(_LABELS) :]
        if [part.startswith(label) for part, label in zip(labelled, _LABELS, strict=False)] != [True] * len(_LABELS):
            raise ValueError(f"{code}: what happened is followed by {', '.join(_LABELS)}in this order")
        matter, cause, remedy = (part.removeprefix(label) for part, label in zip(labelled, _LABELS, strict=True))
        yield code, Entry(_one_line(what), _one_line(matter), _one_line(cause), remedy, "\n\n".join(more))


def _one_line(paragraph: str) -> str:
    return " ".join(paragraph.split("\n"))


CATALOGUE: Mapping[str, Entry] = Catalogue()
"""Every code, in the order of the families."""
