"""``Quality(expect=, quarantine=)``: what every row must be, and where those go that are not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.protocol import Sink
from onceonly.spark.quality import Expectation, Expectations

if TYPE_CHECKING:
    from onceonly.spark.outputs import Column

MOST = 100
"""How many expectations a call may have: each is counted in the action that stages the rows, and by name in markers."""

_NAME = re.compile(r'[^\x00-\x1f"\\{}]{1,63}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What is expected of each row, and the sink of those that are bad.

    A row that breaks an expectation is bad: no other sink gets it, and the quarantine gets it once, in the same epoch.
    Kafka Connect calls such a place a dead letter queue, Delta pipelines call such conditions expectations.

    Args:
        expect: conditions that every good row meets, by name: in Spark SQL or as Columns, on the columns that a row has
            after ``before=``. Null is not met.
        quarantine: who gets bad rows, as text: ``reasons`` (a JSON list of objects ``{"by": "expect", "rule": name}``),
            ``row`` (the row in JSON) and ``hash`` (64 bits, of the row). A topic gets all of it as JSON in ``value``.
            Without it a bad row stops the query.
        max_bad: how many rows of an epoch may be bad: a number, or a share of them, which lets a hundred through in any
            case. More stop the query, and nothing is written (E522).
        values: whether ``row`` is kept; else it is null.

    Example:
        ``Quality(expect={"amount": "amount >= 0"}, quarantine=PostgresSink(dsn, table="orders_bad"))``
    """

    expect: Mapping[str, str | Column]
    quarantine: Sink | None = None
    max_bad: int | float = 0.01
    values: bool = True

    @property
    def expectations(self) -> Expectations:
        """What is expected, as the engine computes it."""
        expect = tuple(Expectation(name, expected) for name, expected in self.expect.items())
        sinks = (self.quarantine.id,) if self.quarantine else ()
        records = self.quarantine is not None and self.quarantine.capabilities.records
        return Expectations(expect, sinks, records, self.values)

    @property
    def most(self) -> int | float:
        """How many rows of an epoch may be bad."""
        return self.max_bad if self.quarantine else 0

    @property
    def text(self) -> str:
        """What is expected, in words."""
        return ", ".join(f"{name}: {expected}" for name, expected in self.expect.items())


def check(quality: Quality | None) -> None:
    """Refuse what cannot be expected of rows.

    Raises:
        ConfigurationError: E110.
    """
    if quality is None:
        return
    if not isinstance(quality, Quality):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise _meaningless("quality", quality, 'Quality(expect={"amount": "amount >= 0"}, quarantine=sink)')
    expect, most = quality.expect, quality.max_bad
    if not isinstance(expect, Mapping) or not 0 < len(expect) <= MOST:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _meaningless("expect", expect, f'one to {MOST} conditions by name, {{"amount": "amount >= 0"}}')
    for name in expect:
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _meaningless("expect", name, "names of up to 63 characters, without quotes, backslashes and braces")
    share = isinstance(most, float) and 0 <= most <= 1
    if not share and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
        raise _meaningless("max_bad", most, "a number of rows (max_bad=500) or a share up to 1.0 (max_bad=0.01)")


def _meaningless(argument: str, value: object, wanted: str) -> Exception:
    call = "exactly_once" if argument == "quality" else "Quality"
    return refuse(
        "E110",
        problem=f"{call}({argument}={value!r}) is not understood.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}",
    )
