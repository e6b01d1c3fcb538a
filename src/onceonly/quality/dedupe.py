"""``Dedupe(key=, within=, keep=)``: rows that a producer sent twice, as the user says what makes them one."""

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
    """A sink that holds ids and can be asked for them."""


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """What makes two rows one: of rows with the same id, at most one within a time reaches any sink.

    For producers that send twice; what a crash or a restart would write again needs none of it. Of several such rows
    in one batch one is let through, the same in each replay; after that those that come within the time are counted,
    and go nowhere. The ids are committed with the rows that brought them. SQS and Pub/Sub do it over five and ten
    minutes by themselves, Spark's ``dropDuplicatesWithinWatermark`` in the state of the query, which a new checkpoint
    loses.

    Args:
        key: the row's id: a column that it has after ``before=``, or Spark SQL on one row (``"payload.id"``); several
            where the id has parts. Texts, whole numbers, decimals, times, bytes. A row without one is bad.
        within: for how long an id is known, ``"7 days"``, from the row that was let through on, by the engine's clock
            of the batches and not the rows' own times.
        keep: the table that ids are kept in, which nothing else is written to: ``pg.table("orders_seen")``. It is made
            with the first epoch; 16 bytes and a time for each id, which leave after ``within``.

    Raises:
        ConfigurationError: E110 an argument is not understood; E122 no ids can be kept there.

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
        """What makes the id."""
        if isinstance(self.key, str):
            return (self.key,)
        return tuple(self.key) if isinstance(self.key, Sequence) else ()  # pyright: ignore[reportUnnecessaryIsInstance]

    @property
    def named(self) -> str:
        """What makes the id, in words."""
        return ", ".join(self.parts)

    @property
    def repeats(self) -> DedupeConfig:
        """Which rows are repeated, as the engine finds out."""
        return DedupeConfig(self.parts, self.keeper.id, self.keeper.lookup)

    def beside(self, quality: Quality | None) -> Quality:
        """What is expected of each row, and that it has an id: of one without, nobody can say whether it came twice."""
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
    """Refuse what is no Dedupe, and a table for ids that gets rows as well.

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
