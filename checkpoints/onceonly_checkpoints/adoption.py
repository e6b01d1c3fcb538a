"""What an operator accepted by name: a value that rules ask, and people read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from onceonly_checkpoints.jsonform import known, present
from onceonly_checkpoints.slices import Slice

_ACCEPTING = ("accept-loss", "accept-change")


@dataclass(frozen=True, slots=True)
class Adoption:
    """One decision of an operator; it covers what it names and nothing else.

    Attributes:
        kind: what is accepted, as the command's option says it: ``accept-loss``, ``drop-sink``, ...
        sinks: ids of the sinks that it names; empty where it is not about single sinks.
        first: the first epoch that it names; 0 for none.
        last: the last epoch that it names; 0 for none.
        versions: of each sink, in the same order, up to which changes by others are taken; where nothing counts them,
            a name for what was seen of them. Empty where that is not meant.
        offsets: the range of the source that it names; ``None`` for none.
        reason: why, in the operator's words.
        who: who said so, as the operating system knows them.
        at_ms: when, milliseconds since 1970; 0 where that is not known.
    """

    kind: str
    sinks: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    versions: tuple[str, ...] = ()
    offsets: Slice | None = None
    reason: str = ""
    who: str = ""
    at_ms: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "kind", "sinks", "epochs", "versions", "offsets", "reason", "who", "at_ms")
        first, last = value.get("epochs", (0, 0))
        return cls(
            kind=value["kind"],
            sinks=tuple(value.get("sinks", ())),
            first=first,
            last=last,
            versions=tuple(value.get("versions", ())),
            offsets=Slice.from_json(value["offsets"]) if "offsets" in value else None,
            reason=value.get("reason", ""),
            who=value.get("who", ""),
            at_ms=value.get("at_ms", 0),
        )

    def to_json(self) -> dict[str, Any]:
        """Field names to values; ``epochs`` is ``[first, last]``."""
        return present(
            kind=self.kind,
            sinks=list(self.sinks),
            epochs=[self.first, self.last] if self.first or self.last else None,
            versions=list(self.versions),
            offsets=self.offsets.to_json() if self.offsets else None,
            reason=self.reason,
            who=self.who,
            at_ms=self.at_ms or None,
        )

    def accepts(self, sink: str) -> bool:
        """Whether it says of this sink: rows of older epochs are gone or changed, and that is known."""
        return self.kind in _ACCEPTING and sink in self.sinks

    @property
    def words(self) -> str:
        """For people: ``accept-loss of epochs 3..5 in postgres:orders: disk gone (by ann)``."""
        what = self.kind
        if self.first or self.last:
            what += f" of epoch {self.first}" if self.first == self.last else f" of epochs {self.first}..{self.last}"
        if self.versions:
            pairs = zip(self.sinks, self.versions, strict=False)
            what += f" {', '.join(f'{sink} at version {version}' for sink, version in pairs)}"
        elif self.sinks:
            what += f"{' in' if self.last else ''} {', '.join(self.sinks)}"
        if self.reason:
            what += f": {self.reason}"
        return f"{what} (by {self.who})" if self.who else what
