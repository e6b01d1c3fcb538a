"""What a user may say to the Postgres sink, checked when it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Estimate
from onceonly_sinks.postgres.upsert import Merge

Mode = Literal["append", "upsert"]
Via = Literal["auto", "driver", "executors"]

DRIVER_LIMIT = 64 * 1024 * 1024
"""Bytes of a batch in Arrow form that go through the driver; more go through executors."""


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options.

    Attributes:
        merge: append or upsert.
        epoch_column: ``auto``, a column's name, or ``None``.
        via: which way rows go.
        driver_limit: see :data:`DRIVER_LIMIT`.
    """

    merge: Merge
    epoch_column: str | None
    via: Via
    driver_limit: int

    @classmethod
    def check(
        cls,
        *,
        mode: Mode | None,
        key: str | Sequence[str] | None,
        sequence: str | None,
        epoch_column: str | None,
        via: Via,
        driver_limit: int,
    ) -> Self:
        """Check what belongs together.

        Raises:
            ConfigurationError: E110.
        """
        columns = (key,) if isinstance(key, str) else tuple(key or ())
        mode = mode or ("upsert" if columns else "append")
        if mode not in ("append", "upsert"):
            raise _wrong(f"mode={mode!r}", "mode= is append or upsert", "PostgresSink(..., key='id') upserts")
        if mode == "upsert" and not columns:
            raise _wrong("mode='upsert' without key=", "an upsert finds its row by the key", "add key='id'")
        if mode == "append" and (columns or sequence):
            raise _wrong("mode='append' with key= or sequence=", "an append never looks for a row", "leave mode= out")
        if len(set(columns)) != len(columns) or not all(columns) or sequence in columns or sequence == "":
            raise _wrong(f"key={key!r}, sequence={sequence!r}", "a column is named twice or empty", "name each once")
        if via not in ("auto", "driver", "executors"):
            raise _wrong(f"via={via!r}", "via= is auto, driver or executors", "leave it out")
        if driver_limit < 0 or epoch_column == "":
            problem = f"driver_limit={driver_limit!r}, epoch_column={epoch_column!r}"
            raise _wrong(problem, "driver_limit= counts bytes, epoch_column= names a column", "correct or leave out")
        return cls(Merge(columns, sequence), epoch_column, via, driver_limit)

    def through_driver(self, size: Estimate) -> bool:
        """Whether a batch of about this size goes through the driver; an unknown size does not."""
        if self.via != "auto":
            return self.via == "driver"
        return size.size is not None and size.size <= self.driver_limit

    @property
    def limit(self) -> int | None:
        """Bytes after which the driver gives up; ``None``: never."""
        return self.driver_limit if self.via == "auto" else None

    def described(self, id_: str, default_id: str) -> dict[str, str]:
        """What an address must say so that the sink reads back what this one wrote."""
        epoch_column = "" if self.epoch_column == "auto" else self.epoch_column or "-"
        return {
            "id": "" if id_ == default_id else id_,
            "key": ",".join(name.replace("%", "%25").replace(",", "%2C") for name in self.merge.key),
            "sequence": self.merge.sequence or "",
            "epoch_column": epoch_column,
        }


def from_described(said: Mapping[str, str]) -> dict[str, str | tuple[str, ...] | None]:
    """Keyword arguments from what an address says; the inverse of :meth:`Options.described`."""
    key = tuple(name.replace("%2C", ",").replace("%25", "%") for name in said.get("key", "").split(",") if name)
    epoch_column = said.get("epoch_column", "auto")
    return {
        "id": said.get("id"),
        "key": key or None,
        "sequence": said.get("sequence"),
        "epoch_column": None if epoch_column == "-" else epoch_column,
    }


def _wrong(problem: str, cause: str, next_: str) -> OnceOnlyError:
    return refuse("E110", problem=f"PostgresSink cannot work with {problem}.", cause=cause, next=next_)
