"""Read a quarantine: reasons of its rows by epoch, and rows."""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from onceonly.errors import refuse
from onceonly.protocol import Readable, Sink
from onceonly.protocol.capabilities import Span
from onceonly_checkpoints.digests import OutputDigest
from onceonly_checkpoints.epoch import Epoch


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was set aside. ``row`` is JSON, or ``None`` if values are not kept. ``hash`` has 64 bits.

    Each reason is an object with ``by`` and ``rule``.
    """

    epoch: int
    reasons: tuple[Mapping[str, str], ...]
    row: str | None
    hash: int | None

    @classmethod
    def of(cls, epoch: int, kept: Mapping[str, Any]) -> BadRow | None:
        """Decode a bad row from a sink's columns or record, or return ``None`` if it is neither."""
        try:
            parts = kept if "reasons" in kept and "hash" in kept else _of_record(kept["value"])
            reasons, row = parts["reasons"], parts.get("row")
            listed = json.loads(reasons) if isinstance(reasons, str) else reasons
            said = row if row is None or isinstance(row, str) else json.dumps(row, ensure_ascii=False)
            return cls(epoch, tuple(listed), said, parts["hash"])
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the broken rules."""
        return tuple(dict.fromkeys(reason.get("rule", "") for reason in self.reasons))

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        return {"epoch": self.epoch, "reasons": list(self.reasons), "row": self.row, "hash": self.hash}


_DECODER = json.JSONDecoder()
_NAME = re.compile(r'[\s{,]*("(?:[^"\\]|\\.)*")\s*:\s*')


def _of_record(value: bytes | str) -> Mapping[str, Any]:
    """Parse a record. An object in it stays text, as a parser rounds a decimal to a double.

    Raises:
        ValueError: it is no JSON.
    """
    text = value.decode() if isinstance(value, bytes) else value
    found: dict[str, Any] = {}
    at = 0
    while name := _NAME.match(text, at):
        said, at = _DECODER.raw_decode(text, name.end())
        found[json.loads(name[1])] = text[name.end() : at] if isinstance(said, dict) else said
    return found


def set_aside(epochs: Iterable[Epoch], reason: str | None = None) -> tuple[tuple[Epoch, OutputDigest], ...]:
    """Return the epochs with bad rows, or with rows that broke a given rule, each with its output of bad rows."""
    found = ((epoch, epoch.bad) for epoch in epochs)
    return tuple((one, bad) for one, bad in found if bad and count(bad, reason))


def count(bad: OutputDigest, reason: str | None = None) -> int:
    """Count bad rows of an epoch, or those that broke a given rule."""
    return dict(bad.reasons).get(reason, 0) if reason else bad.digest.rows


def in_all(aside: Iterable[tuple[Epoch, OutputDigest]]) -> tuple[int, Mapping[str, int]]:
    """Count bad rows of these epochs, in total and by broken rule, the most frequent first."""
    rows, reasons = 0, Counter[str]()
    for _, bad in aside:
        rows += bad.digest.rows
        reasons.update(dict(bad.reasons))
    return rows, dict(reasons.most_common())


def newest(aside: Sequence[tuple[Epoch, OutputDigest]], limit: int, reason: str | None = None) -> Span | None:
    """Return the fewest newest epochs that, by their markers, hold so many rows."""
    first = last = 0
    for epoch, bad in reversed(aside):
        first, last = epoch.number, last or epoch.number
        limit -= count(bad, reason)
        if limit <= 0:
            break
    return (first, last) if last else None


def rows_of(sink: Sink, span: Span, limit: int, reason: str | None = None) -> tuple[BadRow, ...]:
    """Return the newest rows of these epochs in a quarantine, oldest first.

    The sink is opened. ``span`` is the first and last epoch. At most ``limit`` rows are in memory. With ``reason`` only
    rows that broke that rule.

    Raises:
        ConfigurationError: E110, its rows cannot be read by epoch.
        DestinationError: it does not answer.
    """
    found = sink.read_rows(span) if isinstance(sink, Readable) else None
    if found is None:
        raise _unreadable(sink)
    wanted = (one for one in _parsed(found) if not reason or reason in one.rules)
    return tuple(sorted(heapq.nlargest(limit, wanted, key=attrgetter("epoch")), key=attrgetter("epoch")))


def _parsed(found: Iterator[tuple[int, Mapping[str, Any]]]) -> Iterator[BadRow]:
    for epoch, kept in found:
        # What is in another form was put there by somebody else.
        if (row := BadRow.of(epoch, kept)) is not None:
            yield row


def _unreadable(sink: Sink) -> Exception:
    able = isinstance(sink, Readable)
    rows = "a topic or table that was made anew, shares its numbers with another sink, or mixes epochs in its files"
    return refuse(
        "E110",
        problem=f"Rows of {sink.id} cannot be shown by epoch.",
        cause=f"the target does not tell which epoch brought a row: {rows}" if able else "such a sink is only written",
        next=f"look at columns reasons and row where they lie: {sink.address}",
    )
