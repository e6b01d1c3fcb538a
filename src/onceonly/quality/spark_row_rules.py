"""Check expectations and sinks' row rules as columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Batch, row_rules
from onceonly.protocol.row_rules import BrokenCheck, Check, Condition, Demand, NotNull, Rule
from onceonly.quality import quarantine
from onceonly.quality.spark_outputs import OutputSpec, ResolvedOutput, beyond_a_row, condition
from onceonly.spark import expression_check, frames
from onceonly.spark.detect import engine_for
from onceonly.spark.digest import quote
from onceonly_checkpoints.digests import BAD

_UNQUOTED = re.compile(r'[\x00-\x1f"\\{}]')
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Demanded:
    """Rules of a sink's destination for its rows, which ``selection`` picks from a batch (``None``: all)."""

    sink: str
    selection: OutputSpec | None
    rules: tuple[Rule | Condition, ...]

    def reasons(self, rows: DataFrame, expected: Column) -> Iterator[Reason]:
        """Yield reasons why a row cannot go there, one for each rule that Spark can check.

        ``expected``: whether a row meets its expectations. For any other row, expressions of an output or a condition
        may raise.
        """
        spec = self.selection
        shown = rows if spec is None else spec.of(rows)
        kinds = {field.name: field.dataType for field in shown.schema.fields}
        for rule in self.rules:
            if not _can_be_judged(rows, spec, rule):
                continue
            if isinstance(rule, Condition):
                broken = ~f.coalesce(f.expr(rule.sql), f.lit(False))
            else:
                column = f.col(quote(rule.column)) if spec is None else spec.part(rule.column)
                broken = ~satisfied(rule, column, kinds[rule.column])
            if spec is not None or isinstance(rule, Condition):
                guard = expected if spec is None else expected & condition(spec.where)
                broken = f.coalesce(f.when(guard, broken), f.lit(False))
            yield Reason(self._reason_json(rule), _name(rule), broken)

    def _reason_json(self, rule: Rule | Condition) -> str:
        origin = {"by": self.sink}
        if self.selection is not None:
            origin["output"] = self.selection.name
        return json.dumps({**origin, "rule": _name(rule)}, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a row is bad, with its name in counts (``rule``). ``applies``: the row has it."""

    json_text: str
    rule: str
    applies: Column


def _name(rule: Rule | Condition) -> str:
    """Return its name in reasons. Metrics search their text for it, so it has no character that JSON would escape."""
    return _UNQUOTED.sub("?", rule.says)[:_LONGEST]


def satisfied(rule: Rule, column: Column, kind: t.DataType) -> Column:
    """Check whether a column's value meets a rule: true or false, never null."""
    if not rule.each:
        return _met(rule.demand, column, kind)
    element = kind.elementType if isinstance(kind, t.ArrayType) else kind
    return column.isNull() | f.forall(column, lambda entry: _met(rule.demand, entry, element))


def _met(demand: Demand, column: Column, kind: t.DataType) -> Column:
    return column.isNotNull() if isinstance(demand, NotNull) else column.isNull() | _held(demand, column, kind)


def _held(demand: Demand, column: Column, kind: t.DataType) -> Column:
    """Check a value that is not null."""
    match demand:
        case row_rules.NotNull():
            held = column.isNotNull()
        case row_rules.Between(least, most):
            held = column.between(least, most)
        case row_rules.Digits(precision, scale):
            held = _fits(column, kind, precision, scale)
        case row_rules.Characters(most):
            held = f.char_length(column) <= most
        case row_rules.PlainText():
            held = _plain(column)
        case row_rules.Uuid():
            # What "$" stands for may be followed by an end of line.
            held = f.replace(column, f.lit("-"), f.lit("")).rlike(r"\A[0-9a-fA-F]{32}\z")
        case row_rules.OneOf(texts):
            held = column.isin(*texts)
        case row_rules.Bytes(exactly):
            held = f.octet_length(column) == exactly
        case row_rules.Ticks(microseconds):
            held = (f.extract(f.lit("SECOND"), column) * 1_000_000) % microseconds == 0
        case row_rules.AfterEpoch():
            held = column >= f.timestamp_millis(f.lit(1))
        case row_rules.Named(part):
            held = column.getField(part).isNotNull()
    return held


def _fits(column: Column, kind: t.DataType, precision: int, scale: int) -> Column:
    # A cast rounds, or finds no room and is null: what does not come back as it was has lost a digit. It is brought
    # back before it is compared, as the type that holds both may be one that Spark does not have.
    back = column.try_cast(f"decimal({precision}, {scale})").try_cast(kind)
    return f.coalesce(back == column, f.lit(False))


def _plain(column: Column) -> Column:
    without_nul = f.instr(column, "\0") == 0
    # Spark 3.5 cannot tell whether a text is UTF-8; there such a row is refused by its destination.
    return without_nul & f.is_valid_utf8(column) if hasattr(f, "is_valid_utf8") else without_nul


def judges(demand: Demand) -> bool:
    """Check whether this Spark can check a demand: 3.5 raises when a cast of a Column does not fit."""
    return not isinstance(demand, row_rules.Digits) or hasattr(Column, "try_cast")


def _can_be_judged(rows: DataFrame, spec: OutputSpec | None, rule: Rule | Condition) -> bool:
    """Check whether Spark can check a rule. A destination checks the others itself.

    A condition is over a table's columns. An output may compute one of them, the rows may lack one, or this session a
    function that it calls.
    """
    if isinstance(rule, Rule):
        return judges(rule.demand)
    if spec is not None and spec.select:
        return False
    try:
        _ = rows.select(f.expr(rule.sql)).schema
    except AnalysisException:
        return False
    return True


# ---- Check expectations of rows as columns, and divide off bad rows.
#
# A row that breaks an expectation, or a rule of a sink, goes to output ``bad``. Delta pipelines call such conditions
# expectations. One must be true: null does not meet it. That is so for a CHECK of Delta, but not for one of Postgres.


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that every good row meets. Null is not met. ``name`` appears in reasons, beside ``by``.

    ``by_batch``: whether it depends on the batch, as on its clock, and so is no part of the call's definition.
    """

    name: str
    expected: str | Column
    by_batch: bool = False
    by: str = "expect"

    @property
    def reason(self) -> str:
        """Reason for a row that breaks it, in JSON."""
        return json.dumps({"by": self.by, "rule": self.name}, ensure_ascii=False, separators=(",", ":"))

    @property
    def met(self) -> Column:
        """Whether a row meets it, never null."""
        return f.coalesce(condition(self.expected), f.lit(False))


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expectations of a batch's rows.

    ``demanded`` are rules of the destinations of good rows. ``sinks`` get bad rows, empty if no row may be bad.
    ``records``: whether these hold records of a key and a value.
    """

    expect: tuple[Expectation, ...]
    demanded: tuple[Demanded, ...] = ()
    sinks: tuple[str, ...] = ()
    records: bool = False
    values: bool = True

    def check(self, pipeline: str, rows: DataFrame) -> None:
        """Refuse an expectation that is no condition on a row (E121)."""
        for expectation in self.expect:
            what = f'Expectation "{expectation.name}"'
            try:
                kind = rows.select(condition(expectation.expected)).schema[0].dataType
                wide = rows.select("*", expectation.met.alias(_MET))
                objection = beyond_a_row(rows, wide)
            except Exception as error:  # of Spark's many classes: what it says is what the user needs
                raise expression_check.unread(what, pipeline, rows, error) from error
            if not isinstance(kind, t.BooleanType):
                reason, cause = f"it is of type {kind.simpleString()}, and not true or false", "it is no condition"
                remedy = f'give the condition of the value: expect={{"{expectation.name}": "... > 0"}}'
                raise expression_check.refusal(what, pipeline, reason, cause, remedy)
            if objection:
                raise expression_check.not_row_by_row(what, pipeline, objection)

    def divide(self, rows: DataFrame, outputs: Sequence[OutputSpec]) -> tuple[OutputSpec, ...]:
        """Return the outputs narrowed to good rows, and the output of bad ones."""
        expected = reduce(and_, [expectation.met for expectation in self.expect], f.lit(True))
        reasons = [Reason(expectation.reason, expectation.name, ~expectation.met) for expectation in self.expect]
        demanded = [reason for sink_rules in self.demanded for reason in sink_rules.reasons(rows, expected)]
        good = reduce(and_, [~reason.applies for reason in demanded], expected)
        # Good first: what an output computes of a row, an expectation may be there to keep it from.
        narrowed = [replace(output, where=good & condition(output.where)) for output in outputs]
        why = (*reasons, *demanded)
        # ``concat_ws`` leaves nulls out: of what is met nothing is said.
        reason_text = f.concat_ws(",", *[f.when(reason.applies, f.lit(reason.json_text)) for reason in why])
        listed = f.concat(f.lit("["), reason_text, f.lit("]"))
        columns = quarantine.bad_row_columns(rows, listed, records=self.records, values=self.values)
        names = tuple(dict.fromkeys(reason.rule for reason in why))
        expect = {expectation.name: expectation.expected for expectation in self.expect if not expectation.by_batch}
        return (*narrowed, OutputSpec(BAD, self.sinks, ~good, columns, names, definition=f"expect={expect!r}"))


_MET = "onceonly met"


# ---- Check all rows of an epoch together, as they were staged for its sinks.


@dataclass(frozen=True, slots=True)
class EpochChecks:
    """Checks over the staged rows of an epoch. An output without rows has nothing to break one.

    ``aside`` makes the outputs of a batch, if all of its rows are bad because of some checks.
    """

    checks: tuple[Check, ...]
    pipeline: str
    aside: Callable[[Sequence[str]], tuple[ResolvedOutput, ...]] = lambda _: ()

    def check(self, rows: DataFrame, outputs: Sequence[OutputSpec]) -> None:
        """Refuse a check that is no repeatable condition over rows together (E121)."""
        specs = {output.name: output for output in outputs}
        for check in self.checks:
            self._check(check, specs[check.of].of(rows) if check.of else rows)

    def _check(self, check: Check, rows: DataFrame) -> None:
        what = f'Check "{check.name}"'
        try:
            judged = _agg(rows, [check.sql])
            kind = judged.schema[0].dataType
            before, after = (engine_for(rows).analysed(part, started=True) for part in (rows, judged))
        except Exception as error:  # of Spark's many classes: what it says is what the user needs
            if "GROUP" not in expression_check.condition_of(error):
                raise expression_check.unread(what, self.pipeline, rows, error, _TOGETHER) from error
            reason, cause = expression_check.first_line(error), "it is over one row, or over a window"
            remedy = f'give an aggregate over all rows. A condition on each is Quality(expect={{"{check.name}": ...}})'
            raise self._refusal(what, reason, cause, remedy) from error
        if not isinstance(kind, t.BooleanType):
            reason, remedy = f"it is of type {kind.simpleString()}", f'compare it: "{check.sql} = 0"'
            raise self._refusal(what, reason, "it is no condition", remedy)
        unstable = None if before.nondeterministic() else after.nondeterministic()
        beyond, beyond_before = (len(_BEYOND.findall(plan.text() or "")) for plan in (after, before))
        if unstable or beyond > beyond_before:
            reason = f"{unstable} gives another value in each run" if unstable else "it reads or gives other rows"
            raise expression_check.not_row_by_row(what, self.pipeline, reason, _TOGETHER)

    def _refusal(self, what: str, reason: str, cause: str, remedy: str) -> OnceOnlyError:
        return expression_check.refusal(what, self.pipeline, reason, cause, remedy, of=_TOGETHER)

    def broken(self, output: Callable[[str | None], Batch], session: SparkSession) -> tuple[BrokenCheck, ...]:
        """Return the checks that are not true (E121: Spark cannot compute one for these rows)."""
        parts = [(of, output(of or None)) for of in dict.fromkeys(check.of for check in self.checks)]
        return tuple(
            broken
            for of, rows in parts
            if rows.digest().rows
            for broken in self._broken(_staged(rows, session), [check for check in self.checks if check.of == of])
        )

    def _broken(self, rows: DataFrame, checks: Sequence[Check]) -> Iterator[BrokenCheck]:
        try:
            held = _agg(rows, [check.sql for check in checks]).collect()[0]
        except PySparkException as error:
            what = " or ".join(f'Check "{check.name}"' for check in checks)
            cause = "a division by zero, an overflow or a cast that fails, for the rows of this epoch"
            remedy = "let it be null there, which is not true: try_divide, try_sum, try_cast"
            raise self._refusal(what, expression_check.first_line(error), cause, remedy) from error
        for check, is_true in zip(checks, held, strict=True):
            if is_true is not True:
                yield BrokenCheck(check, _values(rows, check.figures))


def _staged(rows: Batch, session: SparkSession) -> DataFrame:
    """Spark's view of staged rows, in files or in the memory of this process."""
    try:
        return rows.dataframe
    except TypeError:
        return frames.of_arrow(session, pa.Table.from_batches([*rows.arrow()], rows.schema)).coalesce(1)


_TOGETHER = "the rows of an epoch together"
_BEYOND = re.compile(r'catalyst\.(?:plans\.logical\.Generate|expressions\.(?:\w*Subquery|Exists))"')


def _agg(rows: DataFrame, expressions: Sequence[str]) -> DataFrame:
    return rows.agg(*[f.expr(expression).alias(str(at)) for at, expression in enumerate(expressions)])


def _values(rows: DataFrame, figures: Sequence[str]) -> tuple[object, ...]:
    try:
        row = _agg(rows, figures).collect()[0] if figures else ()
    except PySparkException:  # a call that means something only where it is
        return ()
    return tuple(row)
