"""One line of a history: action, answer or observation, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from onceonly_lab.strenum import StrEnum

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- JSON to the fields of a frozen value and back; what is wrong is said by the name of the field.

T = TypeVar("T")

Reader = Callable[[Any], Any]
"""Makes a value of its JSON form, or raises ``ValueError`` saying what it wants."""


def line(value: Mapping[str, Any]) -> str:
    """Spell an object in one line, fields in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sparse(value: Any) -> dict[str, Any]:
    """Fields of a frozen dataclass to JSON values, without those that are at their default."""
    cells = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
    return {name: _plain(cell) for name, (cell, default) in cells.items() if cell != default}


def _plain(cell: Any) -> Any:
    if isinstance(cell, tuple):
        return [_plain(item) for item in cell]
    return cell.to_json() if hasattr(cell, "to_json") else cell


def decoded(cells: Mapping[str, Any], readers: Mapping[str, Reader], required: tuple[str, ...]) -> dict[str, Any]:
    """Read every field of an object.

    Args:
        cells: the object.
        readers: how to read a field, by name.
        required: fields that must be there.

    Raises:
        ValueError: a field is unknown, missing, or not what it should be.
    """
    unknown = sorted(cells.keys() - readers.keys())
    missing = [name for name in required if name not in cells]
    if unknown or missing:
        raise ValueError(f"unknown field {unknown[0]!r}" if unknown else f"no {missing[0]!r}")
    return {name: _read(name, readers[name], cell) for name, cell in cells.items()}


def _read(name: str, reader: Reader, cell: Any) -> Any:
    try:
        return reader(cell)
    except ValueError as wrong:
        raise ValueError(f"{name!r}: {wrong}") from None


def exactly(kind: type[T], words: str) -> Callable[[Any], T]:
    """A reader of one JSON type; ``true`` is not an integer."""

    def read(value: Any) -> T:
        if type(value) is not kind:
            raise ValueError(f"wants {words}, not {value!r}")
        return value

    return read


text = exactly(str, "a text")
integer = exactly(int, "an integer")
flag = exactly(bool, "true or false")


def number(value: Any) -> float:
    """Read a number.

    Raises:
        ValueError: not one.
    """
    if type(value) not in (int, float):
        raise ValueError(f"wants a number, not {value!r}")
    return float(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """Read an object.

    Raises:
        ValueError: not one.
    """
    if not isinstance(value, dict):
        raise ValueError(f"wants an object, not {value!r}")
    return value


def maybe(reader: Callable[[Any], T], value: Any) -> T | None:
    """Read a value that may be ``null``."""
    return None if value is None else reader(value)


def many(reader: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """A reader of a list, of which ``reader`` reads each item."""

    def read(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError(f"wants a list, not {value!r}")
        return tuple(reader(item) for item in value)

    return read


# ---- The small values in a history: a row, an epoch that is vouched for, a range of the source.


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as far as the lab looks at it.

    Attributes:
        identity: unique in the input.
        epoch: the epoch that the row itself names (a column, a header, its file); ``None`` where it names none.
        key: rows of one key have an order; ``None`` without one.
        value: fingerprint of everything else in the row; ``None`` where it was not taken.
    """

    identity: str
    epoch: int | None = None
    key: str | None = None
    value: str | None = None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`."""
        cells = value if isinstance(value, list) else []
        if not 1 <= len(cells) <= 4:
            raise ValueError(f"wants [identity, epoch, key, value], not {value!r}")
        identity, epoch, key, fingerprint = (*cells, None, None, None)[:4]
        return cls(text(identity), maybe(integer, epoch), maybe(text, key), maybe(text, fingerprint))

    def to_json(self) -> list[str | int | None]:
        """``[identity, epoch, key, value]``, cut after the last that is known."""
        cells: list[str | int | None] = [self.identity, self.epoch, self.key, self.value]
        while cells[-1] is None:
            cells.pop()
        return cells


@dataclass(frozen=True, slots=True)
class MarkTime:
    """What a marker says of time, in whatever unit the pipeline counts.

    Attributes:
        noted: up to when all rows of its writer are there; ``None`` before the first word.
        lower: up to when all rows of the dataset are there.
        turn: how often the position was put back.
    """

    noted: int | None = None
    lower: int | None = None
    turn: int = 0

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(**decoded(mapping(value), _MARK_TIME, ()))

    def to_json(self) -> dict[str, Any]:
        """Field names to values, without those at their default."""
        return sparse(self)


@dataclass(frozen=True, slots=True)
class Mark:
    """One epoch that a sink (its marker) or the ledger (its record) vouches for.

    Attributes:
        epoch: its number.
        generation: who wrote it; ``None`` where the reader cannot tell.
        count: rows it vouches for; ``None`` where the reader cannot tell.
        digest: their fingerprint, in any spelling that is equal for equal rows.
        filtered: rows of the epoch that it says the sink does not want; ``None`` where it tells of no outputs.
        bad: rows of the epoch that it says are bad and in another sink; ``None`` where it tells of no outputs.
        time: what it says of time; ``None`` where it says nothing, or the reader cannot tell.
        windows: rows that its open windows hold, where none of them closes; ``None`` where it has none.
    """

    epoch: int
    generation: int | None = None
    count: int | None = None
    digest: str | None = None
    filtered: int | None = None
    bad: int | None = None
    time: MarkTime | None = None
    windows: int | None = None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(**decoded(mapping(value), _MARK, ("epoch",)))

    def to_json(self) -> dict[str, Any]:
        """Field names to values, without those at their default."""
        return sparse(self)


BAD = "bad"
"""The output of rows that are bad: they are in no other."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one output of a batch holds, as the program that computed it says.

    Attributes:
        output: its name, or :data:`BAD`.
        rows: identities, sorted.
    """

    output: str
    rows: tuple[str, ...]

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(**decoded(mapping(value), _PART, ("output", "rows")))

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {"output": self.output, "rows": list(self.rows)}


@dataclass(frozen=True, slots=True)
class Range:
    """What a slice takes of one source partition: offsets from ``start`` up to, not including, ``end``."""

    partition: str
    start: int
    end: int


def read_slice(value: Any) -> tuple[Range, ...]:
    """Inverse of the JSON form of a slice: ``{partition: [start, end]}``.

    Raises:
        ValueError: not one.
    """
    return tuple(Range(partition, *_ends(ends)) for partition, ends in mapping(value).items())


def _ends(value: Any) -> tuple[int, int]:
    ends = many(integer)(value)
    if len(ends) != 2:
        raise ValueError(f"wants [start, end], not {value!r}")
    return ends[0], ends[1]


_MARK_TIME: dict[str, Reader] = {"noted": integer, "lower": integer, "turn": integer}
_MARK: dict[str, Reader] = {
    "epoch": integer,
    "generation": integer,
    "count": integer,
    "digest": text,
    "filtered": integer,
    "bad": integer,
    "time": MarkTime.from_json,
    "windows": integer,
}
_PART: dict[str, Reader] = {"output": text, "rows": many(text)}


# ---- One line of a history: what one actor did, was answered, or saw.

LEDGER = "ledger"
"""The ``sink`` of entries that are about the ledger: its records are read as markers."""

RESTORE = "restore"
"""The ``fault`` after which a sink or the ledger may have lost what it held: a backup, a RESTORE, a re-creation."""


class Kind(StrEnum):
    """What an entry is."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"
    READ = "read"
    FAULT = "fault"
    KILL = "kill"
    START = "start"


OUTCOMES = (Kind.OK, Kind.FAIL, Kind.INFO)
"""The answers to an ``invoke``: it happened, it did not, nobody can say."""


class Op(StrEnum):
    """What was invoked or answered."""

    INPUT = "input"
    GOLDEN = "golden"
    ASSERTION = "assertion"
    OFFER = "offer"
    INSTALL = "install"
    STAGE = "stage"
    PREPARE = "prepare"
    EXECUTE = "execute"
    COMMIT = "commit"
    LOOK_UP = "look_up"
    RECORD = "record"
    READ = "read"
    SETTLE = "settle"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: what one actor did, was answered, or saw.

    Attributes:
        actor: whose line it is.
        kind: what it is.
        op: what was invoked or answered; ``None`` for ``start``, ``kill``, ``fault`` and ``read``.
        incarnation: which start of the actor, from 1; 0 for actors that are never restarted.
        time: seconds since the run began; ``None`` until recorded. For people: no rule looks at it.
        sink: sink id, or :data:`LEDGER`.
        epoch: number of the epoch.
        slice: what it reads of the source, by partition.
        replaces: of a commit, first and last of the epochs whose rows leave with it; ``None`` for none.
        rows: what it holds; of a read, in the sink's own order.
        count: rows in the bytes, where the rows themselves are not listed.
        digest: fingerprint of the rows, in any spelling that is equal for equal rows.
        generation: in whose name.
        manifest: the staged bytes.
        markers: of a read, the epochs that the sink vouches for; ``None`` if it was not asked.
        final: of a read, that nothing was going on any more.
        leaks: of a read, open transactions, locks and staging that nobody will end or remove.
        fault: what was broken, and where: ``commit.sent:kill``, ``restore``.
        code: code of a refusal.
        anomaly: of an assertion, the verdict where it does not hold.
        note: anything for people.
        outputs: of a staging, what some sinks get instead of all rows; ``None`` where all get all.
    """

    actor: str
    kind: Kind
    op: Op | None = None
    incarnation: int = 0
    time: float | None = None
    sink: str | None = None
    epoch: int | None = None
    slice: tuple[Range, ...] | None = None
    rows: tuple[Row, ...] | None = None
    count: int | None = None
    digest: str | None = None
    generation: int | None = None
    manifest: str | None = None
    markers: tuple[Mark, ...] | None = None
    final: bool = False
    leaks: tuple[str, ...] = ()
    fault: str | None = None
    code: str | None = None
    anomaly: str | None = None
    note: str = ""
    replaces: tuple[int, int] | None = None
    outputs: tuple[Part, ...] | None = None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Inverse of :meth:`to_json`.

        Raises:
            ValueError: not an entry.
        """
        entry = cls(**decoded(mapping(value), _ENTRY, ("actor", "kind")))
        if (entry.op is None) == (entry.kind in (Kind.INVOKE, *OUTCOMES)):
            raise ValueError(f"{entry.kind} {'without' if entry.op is None else 'with'} an 'op'")
        if entry.kind is Kind.READ and entry.sink is None:
            raise ValueError("a read without a 'sink'")
        return entry

    def to_json(self) -> dict[str, Any]:
        """Field names to values, without those at their default."""
        document = sparse(self)
        if self.slice is not None:
            document["slice"] = {part.partition: [part.start, part.end] for part in self.slice}
        return document

    @property
    def text(self) -> str:
        """The line, without its end."""
        return line(self.to_json())


_ENTRY: dict[str, Reader] = {
    "actor": text,
    "kind": Kind,
    "op": Op,
    "incarnation": integer,
    "time": number,
    "sink": text,
    "epoch": integer,
    "slice": read_slice,
    "rows": many(Row.from_json),
    "count": integer,
    "digest": text,
    "generation": integer,
    "manifest": text,
    "markers": many(Mark.from_json),
    "final": flag,
    "leaks": many(text),
    "fault": text,
    "code": text,
    "anomaly": text,
    "note": text,
    "replaces": _ends,
    "outputs": many(Part.from_json),
}
