"""Arguments ``Quality(expect=, quarantine=)`` and ``Dedupe(key=, within=, store=)``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import Duration, checks_arguments, meaningless, misused, unfit
from onceonly.machine.admission import spelled
from onceonly.protocol import HasConstraints, HostsStores, ReplacesRows, Sink
from onceonly.protocol.capabilities import SeenIdsStore
from onceonly.protocol.row_rules import Check
from onceonly.spark.expression_check import text_of
from onceonly_checkpoints.epoch_time import milliseconds

if TYPE_CHECKING:
    from onceonly.quality.spark_dedupe import DedupeConfig
    from onceonly.quality.spark_outputs import Column
    from onceonly.quality.spark_row_rules import Demanded, Expectations

MOST = 100
"""How many expectations a call may have: each is counted in the action that stages the rows, and by name in markers."""

_NAME = re.compile(r'[^\x00-\x1f"\\{}]{1,63}')


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Expectations of each row, and the sink for bad rows.

    A row that breaks an expectation is bad: no other sink gets it, and the quarantine gets it once, in the same epoch.
    With a quarantine, a row that breaks a rule of its destination is bad, too. These rules are read when the query
    starts: limits of a table's columns, and constraints of a Delta table. Others say dead letter queue.

    Args:
        expect: conditions that every good row meets, by name: in Spark SQL or as Columns, on the columns that a row has
            after ``transform=``. Null is not met.
        quarantine: gets bad rows as text: ``reasons`` (a JSON list of objects ``{"by": "expect", "rule": name}``, or by
            a sink's id), ``row`` (the row in JSON) and ``hash`` (64 bits, of the row). A topic gets all of it as JSON
            in ``value``. Without it a bad row stops the query.
        max_bad: most bad rows of an epoch: a number, or a share of them, which lets a hundred through in any case. More
            stop the query, and nothing is written (E522).
        keep_row: whether ``row`` is kept. Otherwise it is null.
        checks: conditions that all good rows of an epoch meet together, by name, in Spark SQL: ``"sum(debit) =
            sum(credit)"``. Null is not met. They are evaluated in the staged rows, before any sink commits.
        on_broken: what becomes of an epoch that breaks a check, also that of an :class:`onceonly.Output`. ``"stop"``:
            it is refused, and nothing is written (E531). ``"quarantine"``: all of its rows are bad, however many.
        keep_for: retention of rows in the quarantine, ``90 days``, by the clock of the epochs. Older ones are removed
            in the transactions of later epochs, 10,000 rows at most in each. Only for a table in Postgres: a topic has
            a retention of its own. Default: unlimited.

    Raises:
        ConfigurationError: E110, an expectation that cannot apply to rows.

    Example:
        ``Quality(expect={"amount": "amount >= 0"}, quarantine=PostgresSink(dsn, table="orders_bad"))``
    """

    expect: Mapping[str, str | Column] = field(default_factory=dict[str, "str | Column"])
    quarantine: Sink | None = None
    max_bad: int | float = 0.01
    keep_row: bool = True
    keep_for: Duration | None = None
    checks: Mapping[str, str] = field(default_factory=dict[str, str])
    on_broken: Literal["stop", "quarantine"] = "stop"

    def __post_init__(self) -> None:
        """Refuse arguments that are invalid for any sinks."""
        check_named("Quality", "expect", self.expect, "amount >= 0")
        check_named("Quality", "checks", self.checks, SUMS)
        if self.on_broken == "quarantine" and self.quarantine is None:
            cause = "without a quarantine= no row is kept"
            raise unfit("Quality", 'on_broken="quarantine"', cause, 'add quarantine=, or leave it: on_broken="stop"')
        most = self.max_bad
        share = isinstance(most, float) and 0 <= most <= 1
        if not share and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
            raise meaningless(
                "Quality", "max_bad", most, "a number of rows (max_bad=500) or a share up to 1.0 (max_bad=0.01)"
            )

    def expectations(self, demanded: Sequence[Demanded] = ()) -> Expectations:
        """Return all expectations and destinations' rules, as the engine computes them."""
        from onceonly.quality.spark_row_rules import Expectation, Expectations

        expect = tuple(Expectation(name, expected) for name, expected in self.expect.items())
        sinks = (self.quarantine.id,) if self.quarantine else ()
        records = self.quarantine is not None and self.quarantine.capabilities.records
        return Expectations(expect, tuple(demanded), sinks, records, self.keep_row)

    @property
    def most(self) -> int | float:
        """Most bad rows of an epoch, as a number or a share."""
        return self.max_bad if self.quarantine else 0

    @property
    def retention_text(self) -> str:
        """Retention of bad rows, in words, or empty without one."""
        return f", for {self.keep_for}" if self.keep_for else ""

    @property
    def text(self) -> str:
        """The expectations in words."""
        return ", ".join(f"{name}: {text_of(expected)}" for name, expected in self.expect.items())

    def demanding(self, sinks: Sequence[Sink]) -> tuple[Sink, ...]:
        """Return the sinks whose destinations' rules apply to good rows."""
        candidates = sinks if self.quarantine else ()
        return tuple(sink for sink in candidates if isinstance(sink, HasConstraints) and sink is not self.quarantine)

    def breaks(self, sinks: Sequence[Sink]) -> str:
        """Describe the expectations and rules that a bad row may break, for a call's sinks."""
        expectation = [f"an expectation ({self.text})"] if self.expect else []
        return " or ".join([*expectation, *(f"a rule of {sink.id}" for sink in self.demanding(sinks))])


def check_kind(quality: Quality | None) -> None:
    """Refuse an argument that is no ``Quality`` (E110)."""
    if not isinstance(quality, Quality | None):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise meaningless(
            "exactly_once", "quality", quality, 'Quality(expect={"amount": "amount >= 0"}, quarantine=sink)'
        )


_OF_ROWS = ("E503", "E504", "E505", "E506", "E517")
"""Codes of a row or a column that a target does not take."""


def refusal_text(quality: Quality | None, refused: OnceOnlyError) -> OnceOnlyError:
    """Replace a destination's refusal of a bad row by one about the quarantine (E524).

    The usual remedy for good rows, a condition that sets them aside, does not help here.
    """
    quarantine = quality.quarantine if quality else None
    if quarantine is None or refused.code not in _OF_ROWS or refused.details.get("sink") != quarantine.id:
        return refused
    columns = "a text value" if quarantine.capabilities.records else "texts reasons and row and a hash of 64 bits"
    return refuse("E524", sink=quarantine.id, reason=refused.what, columns=columns)


def keeping(quality: Quality | None) -> None:
    """Set the retention of a quarantine (E110: it cannot remove rows, or the period is invalid)."""
    if quality is None or quality.keep_for is None:
        return
    quarantine, period = quality.quarantine, milliseconds(quality.keep_for) or 0
    if quarantine is None:
        cause = "without a quarantine= no row is kept"
        raise unfit("Quality", f"keep_for={quality.keep_for!r}", cause, "add quarantine=, or leave keep_for= out")
    if not (isinstance(quarantine, ReplacesRows) and quarantine.expire_after(period)):
        raise unfit(
            "Quality",
            f"keep_for={quality.keep_for!r}",
            f"{quarantine.id} removes no row by its age",
            "a table of Postgres as quarantine; or leave keep_for= out: a topic has retention.ms, and out of a Delta "
            'table you may delete rows yourself where it is DeltaSink(..., external_changes="deletes")',
        )


def check(quality: Quality | None, sinks: Sequence[Sink], *, limited: bool = False, checked: bool = False) -> None:
    """Refuse expectations that do not fit the sinks of good rows (E110).

    ``limited``: rows have a limit of time. ``checked``: an epoch that breaks a check of an output is set aside.
    """
    if quality is None:
        return
    expect = quality.expect
    if not (expect or quality.checks or limited or checked or quality.demanding(sinks)):
        without = "as no sink knows constraints of its destination" if quality.quarantine else "where no quarantine= is"
        raise meaningless("Quality", "expect", expect, f'conditions by name, {{"amount": "amount >= 0"}}, {without}')
    if (named := _sink_on_same_target(quality.quarantine, sinks)) is not None:
        raise misused(
            f"Quality(quarantine=) is the target of {named}, too.",
            "invalid rows have other columns, and need a table without valid rows",
            "give the quarantine a table or a topic that no other sink of the query writes to",
        )


SUMS = "sum(debit) = sum(credit)"
"""A check, as an example."""


def check_named(owner: str, option: str, conditions: object, example: str) -> None:
    """Refuse what is not a condition by name (E110)."""
    if not isinstance(conditions, Mapping) or len(conditions) > MOST:
        expected = f'up to {MOST} conditions by name, {{"{example.split(maxsplit=1)[0]}": "{example}"}}'
        raise meaningless(owner, option, conditions, expected)
    for name in conditions:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            expected = "names of up to 63 characters, without quotes, backslashes and braces"
            raise meaningless(owner, option, name, expected)
        if option == "checks":
            Check(name, conditions[name])


def _sink_on_same_target(quarantine: Sink | None, sinks: Sequence[Sink]) -> str | None:
    """Return the id of a sink of good rows that has the quarantine's target."""
    if not isinstance(quarantine, Sink):
        return None
    where = spelled(quarantine)
    return next((sink.id for sink in sinks if sink.id != quarantine.id and spelled(sink) == where), None)


# ---- Deduplicate rows that a producer sent twice: ``Dedupe(key=, within=, store=)``.


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """Deduplicate rows by id: one within a time reaches the sinks.

    For producers that send twice. Retries after a crash or a restart do not need it. Of several such rows in one batch
    one passes, the same in each replay. Later ones within the time are counted and dropped. The ids are committed with
    their rows. Spark's ``dropDuplicatesWithinWatermark`` keeps them in the query's state: a new checkpoint loses it.

    Args:
        key: the row's id: a column after ``transform=``, or Spark SQL on one row (``"payload.id"``). Several
            if the id has parts. Texts, whole numbers, decimals, times, bytes. A row without one is bad.
        within: how long an id is known, ``"7 days"``, from the row that passed, by the engine's clock of the batches,
            not the rows' own times.
        store: the table of ids, for nothing else: ``pg.table("orders_seen")`` or ``DeltaSink("/lake/orders_seen")``. It
            is made with the first epoch. It has 16 bytes and a time for each id, which leave after ``within``. Delta
            has no index: each look-up reads the ids that are known.

    Raises:
        ConfigurationError: E110 an argument is not understood. E122 no ids can be kept there.

    Example:
        ``exactly_once(pg, dedupe=Dedupe(key="event_id", within="7 days", store=pg.table("orders_seen")))``
    """

    key: str | Sequence[str]
    within: str
    store: Sink
    keeper: SeenIdsStore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the arguments, and find the sink of ids."""
        if not self.parts or not all(isinstance(part, str) and part.strip() for part in self.parts):  # pyright: ignore[reportUnnecessaryIsInstance]
            expected = 'a column or SQL on one row, key="event_id", or several of them'
            raise meaningless("Dedupe", "key", self.key, expected, required=True)
        seconds, rest = divmod(milliseconds(self.within) or 0, 1000)
        if not seconds or rest:
            expected = 'a time in whole seconds: "7 days", "12 hours", "30 minutes"'
            raise meaningless("Dedupe", "within", self.within, expected, required=True)
        object.__setattr__(self, "keeper", _keeper(self.store, seconds))

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
        from onceonly.quality.spark_dedupe import DedupeConfig

        return DedupeConfig(self.parts, self.keeper.id, self.keeper.lookup)

    def with_id_expectation(self, quality: Quality | None) -> Quality:
        """Add the expectation of an id: without one, a repetition cannot be recognised."""
        name = f"a known {self.named}" if _SHORT.fullmatch(self.named) else "a known id"
        expectation = {name: " AND ".join(f"({part}) IS NOT NULL" for part in self.parts)}
        return replace(quality, expect={**quality.expect, **expectation}) if quality else Quality(expect=expectation)


_SHORT = re.compile(r"[\w., ]{1,48}")
"""What can stand in the name of an expectation as it is."""


def _keeper(keep: object, seconds: int) -> SeenIdsStore:
    store = keep.seen_ids_store(seconds) if isinstance(keep, HostsStores) else None
    if store is None:
        what = "store= is missing" if keep is None else f"store={keep!r} cannot hold ids and be asked for them"
        raise refuse("E122", problem=what, next=_STORE_REMEDY)
    return store


_STORE_REMEDY = 'name a table: store=pg.table("orders_seen") or store=DeltaSink("/lake/orders_seen")'


def check_dedupe(dedupe: Dedupe | None, sinks: Sequence[Sink]) -> None:
    """Refuse an argument that is no ``Dedupe`` (E110), and a table of ids that gets rows, too (E122)."""
    if dedupe is None:
        return
    if not isinstance(dedupe, Dedupe):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        call = 'Dedupe(key="event_id", within="7 days", store=pg.table("orders_seen"))'
        raise meaningless("exactly_once", "dedupe", dedupe, call)
    store = dedupe.keeper
    for sink in sinks:
        if sink is dedupe.store or spelled(sink) == spelled(store):
            remedy = 'name a table of its own: Dedupe(..., store=pg.table("orders_seen"))'
            raise refuse("E122", problem=f"{store.id} takes rows in the same call", next=remedy)
