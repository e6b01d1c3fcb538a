"""Check expectations of rows as columns, and divide off bad rows.

A row that breaks an expectation, or a rule of a sink, goes to output ``bad``. Delta pipelines call such conditions
expectations. One must be true: null does not meet it. That is so for a CHECK of Delta, but not for one of Postgres.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from onceonly.quality import bad_row
from onceonly.quality.spark_outputs import OutputSpec, beyond_a_row, condition
from onceonly.quality.spark_row_rules import Demanded, Reason
from onceonly.spark import expression_check
from onceonly_checkpoints.digests import BAD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that every good row meets. Null is not met. ``name`` appears in reasons."""

    name: str
    expected: str | Column

    @property
    def reason(self) -> str:
        """Reason for a row that breaks it, in JSON."""
        return json.dumps({"by": "expect", "rule": self.name}, ensure_ascii=False, separators=(",", ":"))

    @property
    def met(self) -> Column:
        """Whether a row meets it, never null."""
        from pyspark.sql import functions as f

        return f.coalesce(condition(self.expected), f.lit(False))


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expectations of a batch's rows.

    Attributes:
        demanded: rules of the destinations of good rows.
        sinks: ids of the sinks that get bad rows. Empty if no row may be bad.
        records: whether these hold records of a key and a value.
    """

    expect: tuple[Expectation, ...]
    demanded: tuple[Demanded, ...] = ()
    sinks: tuple[str, ...] = ()
    records: bool = False
    values: bool = True

    def check(self, pipeline: str, rows: DataFrame) -> None:
        """Refuse an expectation that is no condition on a row.

        Raises:
            ConfigurationError: E121.
        """
        from pyspark.sql import types as t

        for one in self.expect:
            what = f'Expectation "{one.name}"'
            try:
                kind = rows.select(condition(one.expected)).schema[0].dataType
                wide = rows.select("*", one.met.alias(_MET))
                beyond = beyond_a_row(rows, wide)
            except Exception as error:  # of Spark's many classes: what it says is what the user needs
                raise expression_check.unread(what, pipeline, rows, error) from error
            if not isinstance(kind, t.BooleanType):
                reason, cause = f"it is of type {kind.simpleString()}, and not true or false", "it is no condition"
                way = f'say what is expected of the value: expect={{"{one.name}": "... > 0"}}'
                raise expression_check.refusal(what, pipeline, reason, cause, way)
            if beyond:
                raise expression_check.beyond(what, pipeline, beyond)

    def divide(self, rows: DataFrame, outputs: Sequence[OutputSpec]) -> tuple[OutputSpec, ...]:
        """Return the outputs narrowed to good rows, and the output of bad ones."""
        from pyspark.sql import functions as f

        expected = reduce(and_, [one.met for one in self.expect], f.lit(True))
        reasons = [Reason(one.reason, one.name, ~one.met) for one in self.expect]
        demanded = [reason for one in self.demanded for reason in one.reasons(rows, expected)]
        good = reduce(and_, [~one.applies for one in demanded], expected)
        # Good first: what an output computes of a row, an expectation may be there to keep it from.
        narrowed = [replace(output, where=good & condition(output.where)) for output in outputs]
        why = (*reasons, *demanded)
        # ``concat_ws`` leaves nulls out: of what is met nothing is said.
        said = f.concat_ws(",", *[f.when(one.applies, f.lit(one.said)) for one in why])
        listed = f.concat(f.lit("["), said, f.lit("]"))
        kept = bad_row.kept(rows, listed, records=self.records, values=self.values)
        names, expect = tuple(dict.fromkeys(one.rule for one in why)), {one.name: one.expected for one in self.expect}
        return (*narrowed, OutputSpec(BAD, self.sinks, ~good, kept, names, said=f"expect={expect!r}"))


_MET = "onceonly met"
