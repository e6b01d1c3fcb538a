"""Deduplicate rows that a producer sent twice: ``Dedupe(key=, within=, keep=)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.machine.admission import spelled
from onceonly.protocol import Keeps, Remembers, Sink
from onceonly.quality.quality import Quality
from onceonly.quality.spark_dedupe import DedupeConfig
from onceonly_checkpoints.period import milliseconds


@runtime_checkable
class SeenIdsSink(Sink, Remembers, Protocol):
    """A sink that holds ids and answers lookups."""


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """Deduplicate rows by id: of rows with the same id, at most one within a time reaches any sink.

    For producers that send twice. Retries after a crash or a restart need none of it. Of several such rows in one batch
    one passes, the same in each replay. Later ones within the time are counted and dropped. The ids are committed with
    the rows that brought them. SQS and Pub/Sub deduplicate over five and ten minutes by themselves. Spark's
    ``dropDuplicatesWithinWatermark`` does it in the state of the query, which a new checkpoint loses.

    Args:
        key: the row's id: a column that it has after ``before=``, or Spark SQL on one row (``"payload.id"``). Several
            if the id has parts. Texts, whole numbers, decimals, times, bytes. A row without one is bad.
        within: how long an id is known, ``"7 days"``, from the row that passed on, by the engine's clock of the batches
            and not the rows' own times.
        keep: the table of ids, for nothing else: ``pg.table("orders_seen")``. It is made with the first epoch. It has
            16 bytes and a time for each id, which leave after ``within``.

    Raises:
        ConfigurationError: E110 an argument is not understood. E122 no ids can be kept there.

    Example:
        ``exactly_once(pg, dedupe=Dedupe(key="event_id", within="7 days", keep=pg.table("orders_seen")))``
    """

    key: str | Sequence[str]
    within: str
    keep: Sink
    keeper: SeenIdsSink = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the arguments, and find the sink of ids."""
        if not self.parts or not all(isinstance(part, str) and part.strip() for part in self.parts):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _meaningless("key", self.key, 'a column or SQL on one row, key="event_id", or several of them')
        seconds, rest = divmod(milliseconds(self.within) or 0, 1000)
        if not seconds or rest:
            raise _meaningless("within", self.within, 'a time in whole seconds: "7 days", "12 hours", "30 minutes"')
        object.__setattr__(self, "keeper", _keeper(self.keep, seconds))

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the id."""
        if isinstance(self.key, str):
            return (self.key,)
        return tuple(self.key) if isinstance(self.key, Sequence) else ()  # pyright: ignore[reportUnnecessaryIsInstance]

    @property
    def named(self) -> str:
        """Parts of the id, in words."""
        return ", ".join(self.parts)

    @property
    def repeats(self) -> DedupeConfig:
        """Key and lookup by which the engine finds repeated rows."""
        return DedupeConfig(self.parts, self.keeper.id, self.keeper.lookup)

    def beside(self, quality: Quality | None) -> Quality:
        """Add the expectation of an id: without one, a repetition cannot be recognised."""
        name = f"a known {self.named}" if _SHORT.fullmatch(self.named) else "a known id"
        known = {name: " AND ".join(f"({part}) IS NOT NULL" for part in self.parts)}
        return replace(quality, expect={**quality.expect, **known}) if quality else Quality(expect=known)


_SHORT = re.compile(r"[\w., ]{1,48}")
"""What can stand in the name of an expectation as it is."""


def _keeper(keep: object, seconds: int) -> SeenIdsSink:
    if not isinstance(keep, Keeps):
        what = "keep= is missing" if keep is None else f"keep={keep!r} cannot hold ids and be asked for them"
        raise refuse("E122", problem=what, next=_WAY)
    found = keep.keeper(seconds)
    if not isinstance(found, SeenIdsSink):
        raise refuse("E122", problem=f"keep={keep!r} cannot be asked for ids", next=_WAY)
    return found


_WAY = 'name a table of Postgres: Dedupe(..., keep=pg.table("orders_seen"))'


def check(dedupe: Dedupe | None, sinks: Sequence[Sink]) -> None:
    """Refuse an argument that is no ``Dedupe``, and a table of ids that gets rows, too.

    ``sinks`` are those of the call without the one of ids.

    Raises:
        ConfigurationError: E110, E122.
    """
    if dedupe is None:
        return
    if not isinstance(dedupe, Dedupe):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        call = 'Dedupe(key="event_id", within="7 days", keep=pg.table("orders_seen"))'
        raise _meaningless("dedupe", dedupe, call)
    kept = dedupe.keeper
    for sink in sinks:
        if sink is dedupe.keep or spelled(sink) == spelled(kept):
            way = 'name a table of its own: Dedupe(..., keep=pg.table("orders_seen"))'
            raise refuse("E122", problem=f"{kept.id} takes rows in the same call", next=way)


def _meaningless(argument: str, value: object, wanted: str) -> Exception:
    call = "exactly_once" if argument == "dedupe" else "Dedupe"
    return refuse(
        "E110",
        problem=f"{call}({argument}={value!r}) is not understood.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}",
    )
