"""One line of a history: what one actor did, was answered, or saw."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from onceonly_lab.history.jsonfields import Reader, decoded, flag, integer, line, many, mapping, number, sparse, text
from onceonly_lab.history.values import Mark, Range, Row, read_slice

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
        found = sparse(self)
        if self.slice is not None:
            found["slice"] = {part.partition: [part.start, part.end] for part in self.slice}
        return found

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
}
