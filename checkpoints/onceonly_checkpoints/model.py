"""Values of sources, offsets and operators' adoptions, with their JSON form.

Frozen and pure.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args, get_origin, get_type_hints

from onceonly_checkpoints.strenum import StrEnum

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- The one durable form: JSON objects without absent members, which nobody reads who does not know all.
#
# A design that comes later adds members. An object without them keeps its text, and with it every hash over it; a
# reader that meets a member it does not know stops, since what it leaves aside might be what matters.


class UnreadableMarker(ValueError):
    """A stored marker, receipt or record cannot be understood by this version."""


OPTIONAL: Mapping[str, Any] = {"optional": True}
"""Metadata of a field without a default that is left out while it is ``None``, empty or 0."""

ALWAYS: Mapping[str, Any] = {"always": True}
"""Metadata of a field that is there with its default, too."""

BY_NAME: Mapping[str, Any] = {"by_name": True}
"""Metadata of pairs that are an object."""


class Record:
    """Base of frozen dataclasses that are kept. A member that has the default of its field is left out.

    A field that comes later needs a default: so an older text is read, and hashed, as before.
    """

    __slots__ = ()
    RENAMED: ClassVar[Mapping[str, str]] = {}
    """Members with another name than their field."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`. Raises :class:`UnreadableMarker` for an unknown member."""
        return cls(**values_of(cls, value))

    def to_json(self) -> dict[str, Any]:
        """Members to values, nested, in the order of the fields."""
        return members_of(self)


def members_of(record: Record) -> dict[str, Any]:
    """The members of a record, in their JSON form."""
    values = ((member, getattr(record, member.field)) for member in _members(cast("Any", type(record))))
    return {member.name: member.spell(value) for member, value in values if member.always or value != member.absent}


def values_of(record: type[Record], value: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record's fields, by the names of these. Inverse of :func:`members_of`."""
    members = _members(cast("Any", record))
    if strange := sorted(set(value) - {member.name for member in members}):
        raise UnreadableMarker(f"unknown member {', '.join(strange)}: a newer version wrote it")
    return {
        member.field: member.read(value[member.name])
        if member.name in value or member.absent is MISSING
        else member.absent
        for member in members
    }


class SpanRecord(Record):
    """Base of records with fields ``first`` and ``last``, which are member ``epochs``: ``[first, last]``."""

    __slots__ = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`. Raises :class:`UnreadableMarker` for an unknown member."""
        members = {name: member for name, member in value.items() if name != "epochs"}
        bounds = dict(zip(("first", "last"), value.get("epochs", ()), strict=False))
        return cls(**values_of(cls, members | bounds))

    def to_json(self) -> dict[str, Any]:
        """Members to values, nested."""
        members = members_of(self)
        first, last = members.pop("first", 0), members.pop("last", 0)
        return {**members, "epochs": [first, last]} if first or last else members


@dataclass(frozen=True, slots=True)
class _Member:
    """A field as a member. ``absent``: the value of one that is not there, ``MISSING`` for one that must be."""

    field: str
    name: str
    absent: Any
    always: bool
    read: Callable[[Any], Any]
    spell: Callable[[Any], Any]


@cache
def _members(record: Any) -> tuple[_Member, ...]:
    hints = get_type_hints(record)
    return tuple(_member(part, record.RENAMED, hints[part.name]) for part in fields(record))


def _member(part: Field[Any], renamed: Mapping[str, str], hint: Any) -> _Member:
    name, by_name = renamed.get(part.name, part.name), "by_name" in part.metadata
    absent = _EMPTY.get(get_origin(hint) or hint) if "optional" in part.metadata else part.default
    read, spell = (_pairs, dict) if by_name else (_reader(hint), _plain)
    return _Member(part.name, name, absent, "always" in part.metadata, read, spell)


_EMPTY: Mapping[Any, Any] = {str: "", int: 0, tuple: ()}
"""What stands for nothing. All else may be ``None``."""


def _pairs(value: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(value.items()))


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what makes a value of a type from its JSON form."""
    readers = [_reader(part) for part in get_args(hint) if part not in (type(None), ...)]
    if get_origin(hint) is tuple:
        if ... in get_args(hint):
            return lambda values: tuple(readers[0](value) for value in values)
        return lambda values: tuple(read(value) for read, value in zip(readers, values, strict=True))
    if type(None) in get_args(hint) and len(readers) == 1:
        return readers[0]
    read: Callable[[Any], Any] | None = getattr(hint, "from_json", None)
    return read or (lambda value: value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Enum):
        return value.value
    return value.to_json() if hasattr(value, "to_json") else value


# ---- How a notebook shows our values: a bare table, readable without style or script, and small in a saved file.


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """An HTML table in which every cell is escaped text."""
    width = max(1, len(columns))
    above = [f"<tr><th colspan={width}>{_text(title)}</th></tr>"] if title else []
    head = [_row("th", columns)] if columns else []
    return f"<table>{''.join([*above, *head, *(_row('td', row) for row in rows)])}</table>"


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values. A row without a name is a heading over both columns."""
    made = (
        f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>"
        if name
        else f"<tr><th colspan=2>{_text(value)}</th></tr>"
        for name, value in rows
    )
    return f"<table>{''.join(made)}</table>"


def words(text: str) -> str:
    """A paragraph of text."""
    return f"<p>{_text(text)}</p>"


_WIDTH = 80


def one_line(text: str) -> str:
    """A text in ``<>`` for ``repr()``, in one line of 80 characters at most."""
    return f"<{text}>" if len(text) <= _WIDTH - 2 else f"<{text[: _WIDTH - 5]}...>"


def shorten_list(names: Sequence[str], most: int = 8, separator: str = ", ") -> str:
    """The first names of a list: ``id, day and 14 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{separator.join(names[:most])}{more}"


def position_text(position: Iterable[tuple[str, object]]) -> str:
    """Coordinates in words: ``version 12``."""
    return ", ".join(f"{name} {value}" for name, value in position)


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{_text(cell)}</{kind}>' for cell in cells)}</tr>"


def _text(value: object) -> str:
    return html.escape("" if value is None else str(value))


# ---- The nouns of a source: offsets, the slice of a batch, input files, identity; frozen values with one JSON form.
#
# Every ``to_json`` returns plain JSON types; ``from_json`` is its exact inverse. ``text`` is the canonical one-line
# spelling (sorted keys, no blanks) that is hashed and compared.


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: object) -> str:
    """Spell a JSON value in its one canonical form."""
    return _CANONICAL.encode(value)


def _canonical_offset(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return canonical(json.loads(text))
    except ValueError:
        # A source may log offsets that are not JSON. They are opaque: equal only to the letter.
        return text


def parse_offset(text: str | None) -> Any:
    """An offset as JSON where it is JSON, else its text."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """The engine's offsets of all sources at one moment, in source order.

    ``entries`` are ``(source id, canonical offset text)`` per source. The text is ``None`` if the engine wrote ``-``,
    which means that the source had no offset yet.
    """

    entries: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, offsets: Mapping[str, str | None]) -> Self:
        """Build from raw offset texts by source id, in source order."""
        return cls(tuple((source, _canonical_offset(text)) for source, text in offsets.items()))

    @classmethod
    def from_json(cls, value: Iterable[tuple[str, str | None]]) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls.of(dict(value))

    def to_json(self) -> list[list[str | None]]:
        """``[[source id, offset text or null], ...]``: a list, since stores reorder the keys of an object."""
        return [list(entry) for entry in self.entries]

    @property
    def text(self) -> str:
        """Canonical spelling, including source order."""
        return canonical([list(entry) for entry in self.entries])

    @property
    def parsed(self) -> dict[str, Any]:
        """Offsets by source id, those that are JSON as values."""
        return {source: parse_offset(text) for source, text in self.entries}

    @property
    def sources(self) -> tuple[str, ...]:
        """Source ids in order."""
        return tuple(source for source, _ in self.entries)

    @property
    def unset(self) -> bool:
        """Whether no source had an offset yet."""
        return all(text is None for _, text in self.entries)


@dataclass(frozen=True, slots=True)
class Slice(Record):
    """Input range of one micro-batch: from ``start`` (exclusive of earlier input) to ``end``."""

    start: SourceOffsets
    end: SourceOffsets

    @property
    def text(self) -> str:
        """Canonical spelling."""
        return f"{self.start.text}->{self.end.text}"

    @property
    def empty(self) -> bool:
        """Whether start and end are equal (a no-data batch)."""
        return self.start == self.end


@dataclass(frozen=True, slots=True)
class InputFile(Record):
    """One file that a file source assigned to a slice.

    Attributes:
        path: URI as the engine logged it.
        modified_ms: modification time, milliseconds since 1970.
        log_offset: the file source's own log offset that brought it in.
    """

    path: str
    modified_ms: int
    log_offset: int
    source: str = field(default="0", metadata=ALWAYS)


class SourceKind(StrEnum):
    """How far a source's offsets are understood. The identity of the first two begins with their value and a colon."""

    FILES = "files"
    """Files of a directory: offsets count entries of a log in the checkpoint; elsewhere they are void."""
    KAFKA = "kafka"
    """Topics: offsets are those of the brokers. Cluster id and topic ids follow as JSON."""
    OTHER = "other"
    """A source that has a name of another kind, such as a Delta table's id."""
    UNNAMED = "unnamed"
    """A source that has no name, or could not be asked."""

    def named(self, name: str) -> str:
        """The text of an identity of one of the first two kinds."""
        return f"{self}:{name}"


_NAMED_KINDS = {str(kind): kind for kind in (SourceKind.FILES, SourceKind.KAFKA)}
"""Kinds that an identity names."""


@dataclass(frozen=True, slots=True)
class SourceIdentity(Record):
    """Identity of the origin that offsets refer to.

    Attributes:
        source: source id in the offset log.
        identity: stable name of the origin (input path, Delta table id). Without one (``None``), equal ranges of two
            lineages cannot be proven to be the same data.
        inputs: hash of the file list of the slice, for sources that read files.
    """

    source: str
    identity: str | None = field(metadata=OPTIONAL)
    inputs: str | None = None

    @property
    def kind(self) -> SourceKind:
        """Kind of the source, by the beginning of its identity."""
        if self.identity is None:
            return SourceKind.UNNAMED
        kind, colon, _ = self.identity.partition(":")
        return _NAMED_KINDS.get(kind, SourceKind.OTHER) if colon else SourceKind.OTHER

    @property
    def name(self) -> str:
        """The identity without its kind, empty if there is none."""
        identity, of_a_kind = self.identity or "", self.kind in _NAMED_KINDS.values()
        return identity.partition(":")[2] if of_a_kind else identity

    @property
    def folder(self) -> str:
        """Directory that a source of files reads, as Spark spells it, empty for other sources."""
        return self.name.partition("[")[2].removesuffix("]") if self.kind is SourceKind.FILES else ""


# ---- What an operator accepted by name: a value that rules ask, and people read.


class AdoptionKind(StrEnum):
    """Kind of adoption, as in the command, in markers and in the ledger."""

    ACCEPT_LOSS = "accept-loss"
    ACCEPT_DUPLICATES = "accept-duplicates"
    ACCEPT_STATE_LOSS = "accept-state-loss"
    ACCEPT_CHANGE = "accept-change"
    KEEP_RECOMPUTED_STATE = "keep-recomputed-state"
    SAME_DATA = "same-data"
    CONTINUE = "continue"
    START = "start"
    FROM_CHECKPOINT = "from-checkpoint"
    DROP_SINK = "drop-sink"
    REPLACE_ROWS = "replace-rows"
    RETIRE_WRITER = "retire-writer"
    RESET_PANES = "reset-panes"
    REBUILD_PANES = "rebuild-panes"

    @classmethod
    def from_json(cls, text: str) -> AdoptionKind:
        """The kind of this name. Raises :class:`UnreadableMarker` for an unknown one, which a newer version decided."""
        try:
            return cls(text)
        except ValueError:
            raise UnreadableMarker(f"an adoption of kind {text!r}: a newer version wrote it") from None


_ACCEPTING = frozenset({AdoptionKind.ACCEPT_LOSS, AdoptionKind.ACCEPT_CHANGE})


@dataclass(frozen=True, slots=True)
class Adoption(SpanRecord):
    """One decision of an operator. It covers only the sinks, epochs and ranges that it names.

    Attributes:
        sinks: ids of the sinks that it names, empty if it is not about single sinks.
        first: the first epoch that it names, 0 for none.
        last: the last epoch that it names, 0 for none.
        versions: for each sink, in the same order, the version up to which foreign changes are accepted. If nothing
            counts them, a name for the changes seen. Empty if they are not accepted.
        offsets: the range of the source that it names.
        who: the operator, by the name in the operating system.
        at_ms: time of the decision, milliseconds since 1970, 0 if unknown.
        rows: number of rows that it gives up, 0 if unknown.
    """

    kind: AdoptionKind
    sinks: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    versions: tuple[str, ...] = ()
    offsets: Slice | None = None
    reason: str = ""
    who: str = ""
    at_ms: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        # Kinds are compared by identity; a plain text would cover what a kind covers, and no more.
        object.__setattr__(self, "kind", AdoptionKind(self.kind))

    def accepts(self, sink: str) -> bool:
        """Whether it accepts that rows of older epochs are gone or changed in this sink."""
        return self.kind in _ACCEPTING and sink in self.sinks

    @property
    def words(self) -> str:
        """For people: ``accept-loss of epochs 3..5 in postgres:orders: disk gone (by ann)``."""
        what = self.kind.value
        if self.first or self.last:
            what += f" of epoch {self.first}" if self.first == self.last else f" of epochs {self.first}..{self.last}"
        if self.rows:
            what += f" ({self.rows} row{'' if self.rows == 1 else 's'})"
        if self.versions:
            pairs = zip(self.sinks, self.versions, strict=False)
            what += f" {', '.join(f'{sink} at version {version}' for sink, version in pairs)}"
        elif self.sinks:
            what += f"{' in' if self.last else ''} {', '.join(self.sinks)}"
        if self.reason:
            what += f": {self.reason}"
        return f"{what} (by {self.who})" if self.who else what
