"""What is expected of each row, as columns: a row that breaks an expectation becomes one of output ``bad``.

Delta pipelines call such conditions expectations. One must be true: null does not meet it. So it is with a CHECK of
Delta, and not with one of Postgres.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.spark import digest
from onceonly.spark.outputs import OutputSpec, beyond_a_row, condition, first_line
from onceonly_checkpoints.content import BAD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that every good row meets.

    Attributes:
        name: of it, in reasons.
        expected: the condition, in SQL or as a Column; null is not met.
    """

    name: str
    expected: str | Column

    @property
    def met(self) -> Column:
        """Whether a row meets it: true or false."""
        from pyspark.sql import functions as f

        return f.coalesce(condition(self.expected), f.lit(False))


@dataclass(frozen=True, slots=True)
class Expectations:
    """What is expected of the rows of a batch.

    Attributes:
        expect: the expectations.
        sinks: ids of the sinks that get bad rows; none where no row may be bad.
        records: whether these hold records of a key and a value.
        values: whether a bad row's values are kept.
    """

    expect: tuple[Expectation, ...]
    sinks: tuple[str, ...] = ()
    records: bool = False
    values: bool = True

    def check(self, pipeline: str, rows: DataFrame) -> None:
        """Refuse what is no condition on a row.

        Args:
            pipeline: its name.
            rows: a batch as it is written, without outputs.

        Raises:
            ConfigurationError: E121.
        """
        from pyspark.sql import types as t

        for one in self.expect:
            try:
                kind = rows.select(condition(one.expected)).schema[0].dataType
                wide = rows.select("*", one.met.alias(_MET))
                beyond = beyond_a_row(rows, wide)
            except Exception as error:  # of Spark's many classes: what it says is what the user needs
                raise _no_condition(pipeline, one, first_line(error)) from error
            if not isinstance(kind, t.BooleanType):
                raise _no_condition(pipeline, one, f"it is of type {kind.simpleString()}, and not true or false")
            if beyond:
                raise _no_condition(pipeline, one, beyond)

    def divide(self, rows: DataFrame, outputs: Sequence[OutputSpec]) -> tuple[OutputSpec, ...]:
        """The outputs of good rows alone, and that of bad ones."""
        met = [one.met for one in self.expect]
        good = reduce(and_, met)
        # Good first: what an output computes of a row, an expectation may be there to keep it from.
        narrowed = [replace(one, where=good & condition(one.where)) for one in outputs]
        names = tuple(one.name for one in self.expect)
        return (*narrowed, OutputSpec(BAD, self.sinks, ~good, self._form(rows), names))

    def _form(self, rows: DataFrame) -> tuple[Column, ...]:
        """Texts, so that every destination holds them; of a topic all in one."""
        from pyspark.sql import functions as f

        broken = [
            f.when(~one.met, f.struct(f.lit("expect").alias("by"), f.lit(one.name).alias("rule")))
            for one in self.expect
        ]
        reasons = f.array_compact(f.array(*broken))
        row = f.struct("*") if self.values else None
        hashed = digest.row_hash(rows.schema)
        said = f.to_json(reasons).alias("reasons")
        if not self.records:
            kept = f.lit(None).cast("string") if row is None else f.to_json(row, _WITH_NULLS)
            return said, kept.alias("row"), hashed.alias("hash")
        whole = [reasons.alias("reasons"), *([] if row is None else [row.alias("row")]), hashed.alias("hash")]
        return hashed.cast("string").alias("key"), f.to_json(f.struct(*whole), _WITH_NULLS).alias("value"), said


def _no_condition(pipeline: str, one: Expectation, reason: str) -> Exception:
    return refuse("E121", what=f'Expectation "{one.name}"', query=pipeline, reason=reason)


_MET = "onceonly met"

_WITH_NULLS = {"ignoreNullFields": "false"}
"""Else a column that is null would be one that is not there."""
