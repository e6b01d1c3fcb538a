"""Compute outputs of a batch as columns, in the staging action.

A row has a column for each output: a structure of the output's columns, null where the output does not want the row.
So nothing is computed twice, and a row that two outputs want is one row. A function that returns several DataFrames
would be several plans, each computed for itself, without a link between their rows. Flink's side outputs are row by
row, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.protocol import Estimate
from onceonly.protocol.batch import Trim
from onceonly.quality.tally import Tally, tally
from onceonly.spark import determinism, digest, expression_check, frames
from onceonly.spark.batch import SparkBatch
from onceonly.spark.detect import engine_for
from onceonly.spark.engine import QueryPlan
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import BAD, MOST_SAID, OutputDigest, column_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as Column  # noqa: PLC0414  for those who see no PySpark
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Rows and columns that an output selects from a batch.

    Attributes:
        where: a condition on a row, in SQL or as a Column, or ``None`` for every row.
        select: its columns, in SQL or as Columns. Empty for all of the row's.
        reasons: possible names in its part ``reasons``, which only output ``bad`` has.
        said: its arguments in the call.
    """

    name: str
    sinks: tuple[str, ...]
    where: str | Column | None = None
    select: tuple[str | Column, ...] = ()
    reasons: tuple[str, ...] = ()
    said: str = ""

    def of(self, rows: DataFrame) -> DataFrame:
        """Return its rows as a DataFrame of their own, to inspect the plan. Never run."""
        return (rows if self.where is None else rows.where(self.where)).select(*self._parts())

    def column(self) -> Column:
        """Build the structure that each row has for it."""
        from pyspark.sql import functions as f

        return f.when(condition(self.where), f.struct(*self._parts())).alias(column_of(self.name))

    def part(self, name: str) -> Column:
        """Return one of its columns in a row."""
        from pyspark.sql import functions as f

        return f.struct(*self._parts()).getField(name)

    def _parts(self) -> list[Column]:
        from pyspark.sql import functions as f

        return [f.expr(one) if isinstance(one, str) else one for one in self.select or ("*",)]


def condition(said: str | Column | None) -> Column:
    """Build a condition on a row. Every row meets ``None``."""
    from pyspark.sql import functions as f

    said = f.lit(True) if said is None else said
    return f.expr(said) if isinstance(said, str) else said


@dataclass(frozen=True, slots=True)
class ResolvedOutput:
    """An output resolved in the plan of a batch, once per run and columns.

    Attributes:
        schema: fingerprint of its columns.
        columns: its columns in Arrow form, with a mark on each type that Arrow lacks. A structure carries one as a
            whole.
        left_out: columns that its digest omits, as those of ``Written``.
        column: the structure that each row has for it. It names columns and no batch, so it is reused. Building it
            takes a hundred calls into the JVM.
    """

    wanted: OutputSpec
    schema: str
    columns: pa.Schema
    left_out: frozenset[str]
    column: Column

    @property
    def summed(self) -> digest.Summed:
        """Sums for its digest."""
        name = self.wanted.name
        return digest.Summed(column_of(name), self.left_out, name == BAD, self.wanted.reasons)

    def counted(self, values: Mapping[str, Any]) -> OutputDigest:
        """Read its figures from the metrics of a finished action."""
        one, wanted = self.summed, self.wanted
        found, filtered = digest.from_metrics(values, one.left_out, one.within), digest.filtered(values, one.within)
        said = wanted.said if len(wanted.said) <= MOST_SAID else ""
        return OutputDigest(
            wanted.name, wanted.sinks, self.schema, found, filtered, digest.reasons(values, one), said=said
        )


def resolve(
    plan: QueryPlan,
    pipeline: str,
    rows: DataFrame,
    outputs: Sequence[OutputSpec],
    left_out: frozenset[str] = frozenset(),
) -> tuple[ResolvedOutput, ...]:
    """Resolve outputs over the rows: a few hundred calls into the JVM each, so not for each batch.

    ``rows`` are a batch without outputs or, before the start, the stream, of which less is known. The digest of the
    rows omits ``left_out``.

    Raises:
        ConfigurationError: E120, an output has the name of a column. E121, an expression is not one on a row.
    """
    taken = {name.lower() for name in rows.columns}
    for output in outputs:
        if (column := column_of(output.name)).lower() in taken:
            raise _taken(pipeline, output.name, column)
    return tuple(_resolved(plan, pipeline, rows, output, left_out) for output in outputs)


def _taken(pipeline: str, name: str, column: str) -> OnceOnlyError:
    """Make the error for an output and a column of one name. Outputs other than onceonly's own have the user's name."""
    if column != name:
        problem, cause = f'the rows of "{pipeline}" have a column "{column}"', "onceonly adds a column of that name"
        way = f'rename it: before=lambda df: df.withColumnRenamed("{column}", "{name}")'
        return refuse("E120", problem=problem, because=cause, next=way)
    problem = f'output "{name}" of "{pipeline}" has the name of a column'
    other = f'Output(sink, name="{name}_rows")'
    way = f'give it another name: {other}; in a Route: {{"{name}": {other}}}'
    return refuse("E120", problem=problem, next=way)


def _resolved(
    plan: QueryPlan, pipeline: str, rows: DataFrame, wanted: OutputSpec, left_out: frozenset[str]
) -> ResolvedOutput:
    what = f'Output "{wanted.name}"'
    try:
        shown = wanted.of(rows)
        column = wanted.column()
        wide = rows.select("*", column)
        held: Any = wide.schema[column_of(wanted.name)].dataType
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise expression_check.unread(what, pipeline, rows, error) from error
    # A structure calls a part without a name of its own after its place.
    if unnamed := next((name for name, part in zip(shown.columns, held.names, strict=True) if name != part), None):
        cause, way = "an expression in select= without AS", f'name it: select=["{unnamed} AS name"]'
        raise expression_check.refusal(what, pipeline, f"{unnamed} has no name", cause, way)
    names = [name.lower() for name in shown.columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        reason, cause = f"two of its columns are called {twice}", "select= gives one name twice; case does not count"
        raise expression_check.refusal(what, pipeline, reason, cause, f'rename one of them: "... AS {twice}_2"')
    if beyond := beyond_a_row(rows, wide):
        raise expression_check.beyond(what, pipeline, beyond)
    columns = frames.arrow_schema(shown)
    unsteady = frozenset[str]() if rows.isStreaming else determinism.look(plan, shown).left_out
    if wanted.name == BAD and left_out:
        # One text holds all columns of a row, those as well that another order of the same rows may change.
        unsteady = frozenset(shown.columns) - {"reasons"}
    return ResolvedOutput(wanted, chain.fingerprint(shown.dtypes), columns, unsteady, column)


_BEYOND = re.compile(
    r"catalyst\.(?:plans\.logical\.(Window|Generate|Aggregate|Expand)|expressions\.(\w*Subquery|Exists))\""
)


def beyond_a_row(rows: DataFrame, wide: DataFrame) -> str | None:
    """Describe an added expression that reads more than one row, or gives another value in another run."""
    engine = engine_for(rows)
    # Of a stream as well: what is added is computed in the callback, where a clock is the run's own.
    before, after = engine.analysed(rows, started=True), engine.analysed(wide, started=True)
    if (unstable := after.nondeterministic()) and not before.nondeterministic():
        return f"{unstable} gives another value in each run"
    known, found = (_BEYOND.findall(plan.text() or "") for plan in (before, after))
    more = [
        node or expression
        for node, expression in found
        if found.count((node, expression)) > known.count((node, expression))
    ]
    return f"it looks at other rows as well ({more[0]})" if more else None


class DividedBatch(SparkBatch):
    """Spark's micro-batch with its outputs.

    The digest of the rows omits ``leave_out``. ``without`` applies a trim to the rows.
    """

    def __init__(
        self,
        rows: DataFrame,
        outputs: Sequence[ResolvedOutput],
        estimate: Estimate,
        leave_out: frozenset[str] = frozenset(),
        without: Callable[[Trim], DataFrame] | None = None,
    ) -> None:
        self._outputs = tuple(outputs)
        self._values: Callable[[], Mapping[str, Any]] = dict
        super().__init__(_wide(rows, self._outputs), estimate, leave_out, without)
        self._schema = _named(self._schema, self._outputs)

    @property
    def estimate(self) -> Estimate:
        """Expected size if each output wants every row: the share of bad rows is unknown."""
        own, names = self._estimate, {column_of(output.wanted.name) for output in self._outputs}
        narrow = schema_width([one for one in self._schema if one.name not in names], TEXT_BYTES) or 1
        return own if own.size is None else Estimate(own.rows, own.size * widened(narrow, self._outputs) // narrow)

    @property
    def dataframe(self) -> DataFrame:
        """The observed rows with a column for each output. Every access starts a new attempt."""
        observed = self._engine.observed(self._computed(), self._leave_out, self._summed)
        self._digest = lambda: digest.from_metrics(observed.get(), self._leave_out)
        self._values = observed.get
        return observed.dataframe

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Yield wide rows as they arrive at the driver. Digest and outputs exist after the last one.

        Raises:
            TooLargeForDriver: more rows than Spark collects to a driver.
        """
        counted = tally(self._df.schema, self._leave_out, self._summed) if self._few else None
        if counted is None:
            return (frames.cast(batch, self._schema) for batch in self._brought(self.dataframe))
        return self._counted(counted)

    def _counted(self, counted: Tally) -> Iterator[pa.RecordBatch]:
        self._digest, self._values = None, dict
        for batch in self._brought(self._computed()):
            counted.add(batch)
            yield frames.cast(batch, self._schema)
        self._digest = lambda: digest.from_metrics(counted.values, self._leave_out)
        self._values = lambda: counted.values

    def _computed(self) -> DataFrame:
        """Return the wide rows of a new attempt."""
        return self._df

    @property
    def _summed(self) -> tuple[digest.Summed, ...]:
        return tuple(output.summed for output in self._outputs)

    def outputs(self) -> tuple[OutputDigest, ...]:
        """Return the outputs, counted in the action that staged them."""
        values = self._values()
        return tuple(output.counted(values) for output in self._outputs)

    def trimmed(self, trim: Trim) -> DividedBatch:
        """Return the batch without the rows that a trim leaves out, with its outputs."""
        if self._without is None:
            raise TypeError("this batch cannot be trimmed")
        return DividedBatch(self._without(trim), self._outputs, self._estimate, self._leave_out)


def widened(narrow: int, outputs: Sequence[ResolvedOutput]) -> int:
    """Estimate bytes of a wide row in Arrow form if each output wants it, from those of the row (``narrow``).

    In output ``bad`` the row is a text with the names of its columns, about twice as long.
    """
    aside = any(output.summed.sets_aside for output in outputs)
    return narrow + 2 * narrow * aside + sum(schema_width(output.columns, TEXT_BYTES) for output in outputs)


def _named(schema: pa.Schema, outputs: Sequence[ResolvedOutput]) -> pa.Schema:
    """Mark each part of an output in the schema of wide rows with the type that it represents."""
    import pyarrow as pa

    for output in outputs:
        at = schema.get_field_index(column_of(output.wanted.name))
        schema = schema.set(at, pa.field(column_of(output.wanted.name), pa.struct(list(output.columns))))
    return schema


def _wide(rows: DataFrame, outputs: Sequence[ResolvedOutput]) -> DataFrame:
    return rows.select("*", *[output.column for output in outputs])
