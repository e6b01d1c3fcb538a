"""Check destinations' rules on values as columns, in the staging action."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.protocol import row_rules
from onceonly.protocol.row_rules import Condition, Demand, NotNull, Rule
from onceonly.quality.spark_outputs import OutputSpec, condition
from onceonly.spark.digest import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


_UNQUOTED = re.compile(r'[\x00-\x1f"\\{}]')
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Demanded:
    """Rules of a sink's destination for its rows, which ``taken`` selects from a batch (``None``: all)."""

    sink: str
    taken: OutputSpec | None
    rules: tuple[Rule | Condition, ...]

    def reasons(self, rows: DataFrame, expected: Column) -> Iterator[Reason]:
        """Yield reasons why a row cannot go there, one for each rule that Spark can check.

        ``expected``: whether a row meets its expectations. For any other row, expressions of an output or a condition
        may raise.
        """
        from pyspark.sql import functions as f

        taken = self.taken
        shown = rows if taken is None else taken.of(rows)
        kinds = {field.name: field.dataType for field in shown.schema.fields}
        for rule in self.rules:
            if not _can_be_judged(rows, taken, rule):
                continue
            if isinstance(rule, Condition):
                broken = ~f.coalesce(f.expr(rule.sql), f.lit(False))
            else:
                column = f.col(quote(rule.column)) if taken is None else taken.part(rule.column)
                broken = ~satisfied(rule, column, kinds[rule.column])
            if taken is not None or isinstance(rule, Condition):
                asked = expected if taken is None else expected & condition(taken.where)
                broken = f.coalesce(f.when(asked, broken), f.lit(False))
            yield Reason(self._said(rule), _name(rule), broken)

    def _said(self, one: Rule | Condition) -> str:
        said = {"by": self.sink}
        if self.taken is not None:
            said["output"] = self.taken.name
        return json.dumps({**said, "rule": _name(one)}, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a row is bad, in JSON (``said``), with its name in counts (``rule``).

    ``applies`` is true or false: whether the row has it.
    """

    said: str
    rule: str
    applies: Column


def _name(one: Rule | Condition) -> str:
    """Return its name in reasons. Metrics search their text for it, so it has no character that JSON would escape."""
    return _UNQUOTED.sub("?", one.says)[:_LONGEST]


def satisfied(rule: Rule, column: Column, kind: DataType) -> Column:
    """Check whether a column's value meets a rule: true or false, never null."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if not rule.each:
        return _met(rule.demand, column, kind)
    element = kind.elementType if isinstance(kind, t.ArrayType) else kind
    return column.isNull() | f.forall(column, lambda one: _met(rule.demand, one, element))


def _met(demand: Demand, column: Column, kind: DataType) -> Column:
    return column.isNotNull() if isinstance(demand, NotNull) else column.isNull() | _held(demand, column, kind)


def _held(demand: Demand, column: Column, kind: DataType) -> Column:
    """Check a value that is not null."""
    from pyspark.sql import functions as f

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


def _fits(column: Column, kind: DataType, precision: int, scale: int) -> Column:
    from pyspark.sql import functions as f

    # A cast rounds, or finds no room and is null: what does not come back as it was has lost a digit. It is brought
    # back before it is compared, as the type that holds both may be one that Spark does not have.
    back = column.try_cast(f"decimal({precision}, {scale})").try_cast(kind)
    return f.coalesce(back == column, f.lit(False))


def _plain(column: Column) -> Column:
    from pyspark.sql import functions as f

    without_nul = f.instr(column, "\0") == 0
    # Spark 3.5 cannot tell whether a text is UTF-8; there such a row is refused by its destination.
    return without_nul & f.is_valid_utf8(column) if hasattr(f, "is_valid_utf8") else without_nul


def judges(demand: Demand) -> bool:
    """Check whether this Spark can check a demand: 3.5 raises when a cast of a Column does not fit."""
    from pyspark.sql import Column

    return not isinstance(demand, row_rules.Digits) or hasattr(Column, "try_cast")


def _can_be_judged(rows: DataFrame, taken: OutputSpec | None, one: Rule | Condition) -> bool:
    """Check whether Spark can check a rule. A destination checks the others itself.

    A condition is over a table's columns. An output may compute one of them, the rows may lack one, or this session a
    function that it calls.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    if isinstance(one, Rule):
        return judges(one.demand)
    if taken is not None and taken.select:
        return False
    try:
        _ = rows.select(f.expr(one.sql)).schema
    except AnalysisException:
        return False
    return True
