"""Expectations and quarantine of rows: ``Quality(expect=, quarantine=)``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.machine.admission import spelled
from onceonly.protocol import Demanding, Expires, Sink
from onceonly.quality.spark_expectations import Expectation, Expectations
from onceonly.spark.expression_check import text_of
from onceonly_checkpoints.period import milliseconds

if TYPE_CHECKING:
    from onceonly.quality.spark_outputs import Column
    from onceonly.quality.spark_row_rules import Demanded

MOST = 100
"""How many expectations a call may have: each is counted in the action that stages the rows, and by name in markers."""

_LEAST_MS = 1000
"""A time for which rows are kept is no shorter."""

_NAME = re.compile(r'[^\x00-\x1f"\\{}]{1,63}')


@runtime_checkable
class DemandingSink(Sink, Demanding, Protocol):
    """A sink that reads its destination's rules."""


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Expectations of each row, and the sink for bad rows.

    A row that breaks an expectation is bad: no other sink gets it, and the quarantine gets it once, in the same epoch.
    With a quarantine, a row that breaks a rule of its destination is bad, too. These rules are read when the query
    starts: limits of a table's columns, and constraints of a Delta table. Kafka Connect calls such a place a dead
    letter queue. Delta pipelines call such conditions expectations.

    Args:
        expect: conditions that every good row meets, by name: in Spark SQL or as Columns, on the columns that a row has
            after ``before=``. Null is not met.
        quarantine: gets bad rows as text: ``reasons`` (a JSON list of objects ``{"by": "expect", "rule": name}``, or by
            a sink's id), ``row`` (the row in JSON) and ``hash`` (64 bits, of the row). A topic gets all of it as JSON
            in ``value``. Without it a bad row stops the query.
        max_bad: most bad rows of an epoch: a number, or a share of them, which lets a hundred through in any case. More
            stop the query, and nothing is written (E522).
        values: whether ``row`` is kept. Otherwise it is null.
        keep: retention of rows in the quarantine, ``90 days``, by the clock of the epochs. Older ones are removed in
            the transactions of later epochs, 10,000 rows at most in each. Only for a table in Postgres: a topic has a
            retention of its own. Default: unlimited.

    Raises:
        ConfigurationError: E110, an expectation that cannot apply to rows.

    Example:
        ``Quality(expect={"amount": "amount >= 0"}, quarantine=PostgresSink(dsn, table="orders_bad"))``
    """

    expect: Mapping[str, str | Column] = field(default_factory=dict[str, "str | Column"])
    quarantine: Sink | None = None
    max_bad: int | float = 0.01
    values: bool = True
    keep: str | None = None

    def __post_init__(self) -> None:
        """Refuse arguments that are invalid for any sinks."""
        _check_expect(self.expect)
        most = self.max_bad
        share = isinstance(most, float) and 0 <= most <= 1
        if not share and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
            raise _meaningless("max_bad", most, "a number of rows (max_bad=500) or a share up to 1.0 (max_bad=0.01)")

    def expectations(self, demanded: Sequence[Demanded] = ()) -> Expectations:
        """Return all expectations and destinations' rules, as the engine computes them."""
        expect = tuple(Expectation(name, expected) for name, expected in self.expect.items())
        sinks = (self.quarantine.id,) if self.quarantine else ()
        records = self.quarantine is not None and self.quarantine.capabilities.records
        return Expectations(expect, tuple(demanded), sinks, records, self.values)

    @property
    def most(self) -> int | float:
        """Most bad rows of an epoch, as a number or a share."""
        return self.max_bad if self.quarantine else 0

    @property
    def kept(self) -> str:
        """Retention of bad rows, in words, or empty without one."""
        return f", for {self.keep}" if self.keep else ""

    @property
    def text(self) -> str:
        """The expectations in words."""
        return ", ".join(f"{name}: {text_of(expected)}" for name, expected in self.expect.items())

    def demanding(self, sinks: Sequence[Sink]) -> tuple[DemandingSink, ...]:
        """Return the sinks whose destinations' rules apply to good rows."""
        asked = sinks if self.quarantine else ()
        return tuple(sink for sink in asked if isinstance(sink, DemandingSink) and sink is not self.quarantine)

    def breaks(self, sinks: Sequence[Sink]) -> str:
        """Describe the expectations and rules that a bad row may break, for a call's sinks."""
        expectation = [f"an expectation ({self.text})"] if self.expect else []
        return " or ".join([*expectation, *(f"a rule of {sink.id}" for sink in self.demanding(sinks))])


def check_kind(quality: Quality | None) -> None:
    """Refuse an argument that is no ``Quality``.

    Raises:
        ConfigurationError: E110.
    """
    if not isinstance(quality, Quality | None):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise _meaningless("quality", quality, 'Quality(expect={"amount": "amount >= 0"}, quarantine=sink)')


_OF_ROWS = ("E503", "E504", "E505", "E506", "E517")
"""Codes of a row or a column that a target does not take."""


def refusal_text(quality: Quality | None, refused: OnceOnlyError) -> OnceOnlyError:
    """Replace a destination's refusal of a bad row by one about the quarantine (E524).

    The usual remedy for good rows, a condition that sets them aside, does not help here.
    """
    kept = quality.quarantine if quality else None
    if kept is None or refused.code not in _OF_ROWS or refused.details.get("sink") != kept.id:
        return refused
    columns = "a text value" if kept.capabilities.records else "texts reasons and row and a hash of 64 bits"
    return refuse("E524", sink=kept.id, reason=refused.what, columns=columns)


def keeping(quality: Quality | None) -> None:
    """Set the retention of a quarantine.

    Raises:
        ConfigurationError: E110, it cannot remove any rows, or the period is invalid.
    """
    if quality is None or quality.keep is None:
        return
    kept, period = quality.quarantine, milliseconds(quality.keep) or 0
    if kept is None:
        raise _unkept(quality, "without a quarantine= no row is kept", "add quarantine=, or leave keep= out")
    if period < _LEAST_MS:
        raise _unkept(quality, "keep= is a time", 'say "90 days", "12 hours" or "30 minutes"')
    if not isinstance(kept, Expires):
        raise _unkept(
            quality,
            f"{kept.id} removes no row by its age",
            "a table of Postgres as quarantine; or leave keep= out: a topic has retention.ms, and out of a Delta table "
            'you may delete rows yourself where it is DeltaSink(..., foreign="deletes")',
        )
    kept.keep_for(period)


def _unkept(quality: Quality, cause: str, way: str) -> Exception:
    return refuse("E110", problem=f"Quality(keep={quality.keep!r}) cannot be.", cause=cause, next=way)


def check(quality: Quality | None, sinks: Sequence[Sink]) -> None:
    """Refuse expectations that do not fit the sinks of good rows.

    Raises:
        ConfigurationError: E110.
    """
    if quality is None:
        return
    expect = quality.expect
    if not expect and not quality.demanding(sinks):
        without = "as no sink says what its destination demands" if quality.quarantine else "where no quarantine= is"
        raise _meaningless("expect", expect, f'conditions by name, {{"amount": "amount >= 0"}}, {without}')
    if (named := _beside(quality.quarantine, sinks)) is not None:
        raise refuse(
            "E110",
            problem=f"Quality(quarantine=) is the target of {named}, too.",
            cause="bad rows have columns of their own, and a table of good rows is no place to keep them apart",
            next="give the quarantine a table or a topic that no other sink of the query writes to",
        )


def _check_expect(expect: object) -> None:
    if not isinstance(expect, Mapping) or len(expect) > MOST:
        raise _meaningless("expect", expect, f'up to {MOST} conditions by name, {{"amount": "amount >= 0"}}')
    for name in expect:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _meaningless("expect", name, "names of up to 63 characters, without quotes, backslashes and braces")


def _beside(quarantine: Sink | None, sinks: Sequence[Sink]) -> str | None:
    """Return the id of a sink of good rows that has the quarantine's target."""
    if not isinstance(quarantine, Sink):
        return None
    where = spelled(quarantine)
    return next((sink.id for sink in sinks if sink.id != quarantine.id and spelled(sink) == where), None)


def _meaningless(argument: str, value: object, wanted: str) -> Exception:
    call = "exactly_once" if argument == "quality" else "Quality"
    return refuse(
        "E110",
        problem=f"{call}({argument}={value!r}) is not understood.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}",
    )
