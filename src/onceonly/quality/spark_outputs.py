"""Compute outputs of a batch as columns, in the staging action.

A row has a column for each output: a structure of the output's columns, null where the output does not want the row.
So nothing is computed twice, and a row that two outputs want is one row. A function that returns several DataFrames
would be several plans, each computed for itself, without a link between their rows. Flink's side outputs are row by
row, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column as Column  # noqa: PLC0414  for those who see no PySpark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.protocol import Batch, Estimate
from onceonly.protocol.batch import Bound, Notes, Paned, Trim
from onceonly.protocol.row_rules import BrokenCheck
from onceonly.protocol.row_times import Clock
from onceonly.runtime.staged_outputs import Pick
from onceonly.spark import digest, expression_check, fingerprint, frames
from onceonly.spark.batch import SparkBatch
from onceonly.spark.detect import engine_for
from onceonly.spark.engine import QueryPlan
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import BAD, MOST_SAID, Digest, OutputDigest, column_of

if TYPE_CHECKING:
    from typing_extensions import Self

# ---- Count rows with outputs in the driver, as digest metrics.
#
# For few rows Spark takes longer to compile than to read.

Hashing = Callable[[pa.RecordBatch], Digest]


@dataclass(frozen=True, slots=True)
class _Part:
    summed: digest.Summed
    hashing: Hashing


class Tally:
    """Count the metrics of ``digest.metrics``. ``values`` has those so far, by name."""

    def __init__(self, names: Sequence[str], hashing: Hashing, parts: Sequence[_Part]) -> None:
        self._names = list(names)
        self._hashing = hashing
        self._parts = tuple(parts)
        self.values: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch) -> None:
        """Count a piece of wide rows, in Spark's own types."""
        compute: Any = pc
        good = None
        for part in self._parts:
            if part.summed.sets_aside:
                good = rows.column(part.summed.within).is_null()
        self._sum(self._hashing((rows if good is None else rows.filter(good)).select(self._names)))
        for part in self._parts:
            column: Any = rows.column(part.summed.within)
            output_rows = _parts_of(column)
            self._sum(part.hashing(output_rows), part.summed.within)
            neither = column.is_null() if good is None else compute.and_(good, column.is_null())
            self.values[digest.metric("filtered", part.summed.within)] += neither.true_count
            for reason in part.summed.reasons:
                matches = compute.match_substring(output_rows.column("reasons"), digest.spelled(reason))
                self.values[digest.metric_name(reason)] += matches.true_count

    def _sum(self, row_digest: Digest, within: str = "") -> None:
        for name, value in (("rows", row_digest.rows), ("high", row_digest.high), ("low", row_digest.low)):
            self.values[digest.metric(name, within)] += value


def tally(schema: StructType, leave_out: frozenset[str], summed: Sequence[digest.Summed]) -> Tally | None:
    """Start an empty tally with the arguments of ``digest.metrics``, or ``None`` if only Spark can hash the rows."""
    apart = {summed_output.within for summed_output in summed}
    row_schema = StructType([field for field in schema.fields if field.name not in apart])
    hashing = digest.hashing(row_schema, leave_out)
    parts: list[_Part] = []
    for output in summed:
        kind: Any = schema[output.within].dataType
        hashed = digest.hashing(kind, output.left_out)
        if hashed is None:
            return None
        parts.append(_Part(output, hashed))
    return Tally(row_schema.names, hashing, parts) if hashing else None


def _parts_of(column: Any) -> pa.RecordBatch:
    """Return the rows that have a structure, as rows of its parts."""
    there = column.drop_null()
    return pa.RecordBatch.from_arrays(there.flatten(), names=[field.name for field in column.type])


# ---- Compute outputs of a batch as columns, in the staging action.


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Rows and columns that an output selects from a batch.

    Attributes:
        select: its columns. Empty for all of the row's.
        reasons: possible names in its part ``reasons``, which only output ``bad`` has.
    """

    name: str
    sinks: tuple[str, ...]
    where: str | Column | None = None
    select: tuple[str | Column, ...] = ()
    reasons: tuple[str, ...] = ()
    definition: str = ""

    def of(self, rows: DataFrame) -> DataFrame:
        """Return its rows as a DataFrame of their own, to inspect the plan. Never run."""
        return (rows if self.where is None else rows.where(self.where)).select(*self._parts())

    def column(self) -> Column:
        """Build the structure that each row has for it."""
        return f.when(condition(self.where), f.struct(*self._parts())).alias(column_of(self.name))

    def part(self, name: str) -> Column:
        """Return one of its columns in a row."""
        return f.struct(*self._parts()).getField(name)

    def _parts(self) -> list[Column]:
        return [
            f.expr(expression) if isinstance(expression, str) else expression for expression in self.select or ("*",)
        ]


def condition(expression: str | Column | None) -> Column:
    """Build a condition on a row. Every row meets ``None``."""
    expression = f.lit(True) if expression is None else expression
    return f.expr(expression) if isinstance(expression, str) else expression


@dataclass(frozen=True, slots=True)
class ResolvedOutput:
    """An output resolved in the plan of a batch, once per run and columns.

    Attributes:
        columns: its columns in Arrow form, with a mark on each type that Arrow lacks. A structure carries one as a
            whole.
        left_out: columns that its digest omits, as those of ``Written``.
        column: the structure that each row has for it. It names columns and no batch, so it is reused. Building it
            takes a hundred calls into the JVM.
    """

    spec: OutputSpec
    schema: str
    columns: pa.Schema
    left_out: frozenset[str]
    column: Column

    @property
    def narrow(self) -> Column:
        """As ``column``, but for bad rows only whether the row is one."""
        return condition(self.spec.where) if self.spec.name == BAD else self.column

    @property
    def summed(self) -> digest.Summed:
        """Sums for its digest."""
        name = self.spec.name
        return digest.Summed(column_of(name), self.left_out, name == BAD, self.spec.reasons)

    def counted(self, values: Mapping[str, Any]) -> OutputDigest:
        """Read its figures from the metrics of a finished action."""
        summed, spec = self.summed, self.spec
        row_digest = digest.from_metrics(values, summed.left_out, summed.within)
        filtered = digest.filtered(values, summed.within)
        text = spec.definition if len(spec.definition) <= MOST_SAID else ""
        return OutputDigest(
            spec.name, spec.sinks, self.schema, row_digest, filtered, digest.reasons(values, summed), definition=text
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
    rows omits ``left_out``. Raises E120: an output has the name of a column. E121: an expression is not one on a row.
    """
    column_names = {name.lower() for name in rows.columns}
    for output in outputs:
        if (column := column_of(output.name)).lower() in column_names:
            raise _name_conflict(pipeline, output.name, column)
    return tuple(_resolved(plan, pipeline, rows, output, left_out) for output in outputs)


def _name_conflict(pipeline: str, name: str, column: str) -> OnceOnlyError:
    """Make the error for an output and a column of one name. Outputs other than onceonly's own have the user's name."""
    if column != name:
        problem, cause = f'the rows of "{pipeline}" have a column "{column}"', "onceonly adds a column of that name"
        remedy = f'rename it: transform=lambda df: df.withColumnRenamed("{column}", "{name}")'
        return refuse("E120", problem=problem, because=cause, next=remedy)
    problem = f'output "{name}" of "{pipeline}" has the name of a column'
    other = f'Output(sink, name="{name}_rows")'
    remedy = f'give it another name: {other}; in a Route: {{"{name}": {other}}}'
    return refuse("E120", problem=problem, next=remedy)


def _resolved(
    plan: QueryPlan, pipeline: str, rows: DataFrame, spec: OutputSpec, left_out: frozenset[str]
) -> ResolvedOutput:
    what = f'Output "{spec.name}"'
    try:
        shown = spec.of(rows)
        column = spec.column()
        wide = rows.select("*", column)
        held: Any = wide.schema[column_of(spec.name)].dataType
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise expression_check.unread(what, pipeline, rows, error) from error
    # A structure calls a part without a name of its own after its place.
    if unnamed := next((name for name, part in zip(shown.columns, held.names, strict=True) if name != part), None):
        cause, remedy = "an expression in select= without AS", f'name it: select=["{unnamed} AS name"]'
        raise expression_check.refusal(what, pipeline, f"{unnamed} has no name", cause, remedy)
    names = [name.lower() for name in shown.columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        reason, cause = f"two of its columns are called {twice}", "select= gives one name twice; case does not count"
        raise expression_check.refusal(what, pipeline, reason, cause, f'rename one of them: "... AS {twice}_2"')
    if objection := beyond_a_row(rows, wide):
        raise expression_check.not_row_by_row(what, pipeline, objection)
    columns = frames.arrow_schema(shown)
    unsteady = frozenset[str]() if rows.isStreaming else fingerprint.look(plan, shown).left_out
    if spec.name == BAD and left_out:
        # One text holds all columns of a row, those as well that another order of the same rows may change.
        unsteady = frozenset(shown.columns) - {"reasons"}
    return ResolvedOutput(spec, chain.fingerprint(shown.dtypes), columns, unsteady, column)


_NOT_ROW_BY_ROW = re.compile(
    r"catalyst\.(?:plans\.logical\.(Window|Generate|Aggregate|Expand)|expressions\.(\w*Subquery|Exists))\""
)


def beyond_a_row(rows: DataFrame, wide: DataFrame) -> str | None:
    """Describe an added expression that reads more than one row, or gives another value in another run."""
    engine = engine_for(rows)
    # Of a stream as well: what is added is computed in the callback, where a clock is the run's own.
    before, after = engine.analysed(rows, started=True), engine.analysed(wide, started=True)
    if (unstable := after.nondeterministic()) and not before.nondeterministic():
        return f"{unstable} gives another value in each run"
    old_matches, new_matches = (_NOT_ROW_BY_ROW.findall(plan.text() or "") for plan in (before, after))
    more = [
        node or expression
        for node, expression in new_matches
        if new_matches.count((node, expression)) > old_matches.count((node, expression))
    ]
    return f"it looks at other rows as well ({more[0]})" if more else None


class Checking(Protocol):
    """Checks over the rows of an epoch. ``aside`` makes its outputs if all rows are bad because of some of them."""

    @property
    def aside(self) -> Callable[[Sequence[str]], tuple[ResolvedOutput, ...]]:
        """Makes the outputs."""
        ...

    def broken(self, output: Callable[[str | None], Batch], session: SparkSession) -> tuple[BrokenCheck, ...]:
        """Return the checks that staged rows do not meet."""
        ...


@dataclass(slots=True)
class Forecast:
    """Whether rows of a run's next batch may be bad: some of the last one were. ``parts`` are the outputs' columns."""

    parts: StructType
    bad: bool = False


# Makes the batch of an epoch whose good rows go through windows. They are a room above this one.
Windowing = Callable[["DividedBatch", Bound, Clock | None, Notes], Paned]


class DividedBatch(SparkBatch):
    """Spark's micro-batch with its outputs. The digest omits ``leave_out``. ``without`` applies a trim to the rows."""

    def __init__(
        self,
        rows: DataFrame,
        outputs: Sequence[ResolvedOutput],
        estimate: Estimate,
        leave_out: frozenset[str] = frozenset(),
        without: Callable[[Trim], DataFrame] | None = None,
        *,
        checking: Checking | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        super().__init__(rows, estimate, leave_out, without)
        self._checking, self._forecast = checking, forecast
        self.windowing: Windowing | None = None
        self._divide(rows, outputs)

    def _divide(self, rows: DataFrame, outputs: Sequence[ResolvedOutput]) -> None:
        self._rows, self._outputs, self._planned = rows, tuple(outputs), None
        self._schema = pa.schema([*frames.arrow_schema(rows), *map(_named, outputs)])
        self._digest = None
        self._values: Callable[[], Mapping[str, Any]] = dict

    @property
    def _df(self) -> DataFrame:
        """The rows with a column for each output. Spark analyses them once they are asked for."""
        if self._planned is None:
            self._planned = self._rows.select("*", *[output.column for output in self._outputs])
        return self._planned

    @_df.setter
    def _df(self, rows: DataFrame) -> None:
        self._planned = rows

    @property
    def _columns(self) -> StructType:
        """Spark's types of the rows with a column for each output."""
        forecast = self._forecast
        return StructType([*self._rows.schema, *forecast.parts]) if forecast else self._df.schema

    def _like(self, rows: DataFrame, outputs: Sequence[ResolvedOutput]) -> Self:
        batch = copy(self)
        batch._divide(rows, outputs)
        return batch

    @property
    def own_columns(self) -> StructType:
        """Columns of its rows, without those of outputs."""
        return self._rows.schema

    @property
    def good(self) -> Pick:
        """Takes its good rows out of all."""
        aside = tuple(column_of(output.spec.name) for output in self._outputs if output.spec.name == BAD)
        return Pick(None, tuple(self._rows.columns), aside)

    @property
    def checked_in_files(self) -> bool:
        """Whether Spark can read its rows again in files only: from memory some column would be of another type."""
        read_again = self._checking is not None or self.windowing is not None
        return read_again and not _comes_back(self._columns)

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> Paned:
        """Window the good rows, once they are staged. See ``protocol.batch.Bindable``.

        Raises ``TypeError``: there are no windows.
        """
        if self.windowing is None:
            raise TypeError("this batch has no windows")
        return self.windowing(self, to, clock, notes)

    def broken(self, output: Callable[[str | None], Batch]) -> tuple[BrokenCheck, ...]:
        """Return the checks that the staged rows do not meet. Runs a job for each output that has checks."""
        return self._checking.broken(output, self.session) if self._checking else ()

    def aside(self, checks: Sequence[str]) -> Self:
        """Return the batch, with all rows bad because of these checks."""
        return self._like(self._rows, self._checking.aside(checks) if self._checking else self._outputs)

    @property
    def estimate(self) -> Estimate:
        """Expected size if each output wants every row: the share of bad rows is unknown."""
        own, names = self._estimate, {column_of(output.spec.name) for output in self._outputs}
        narrow = schema_width([field for field in self._schema if field.name not in names], TEXT_BYTES) or 1
        return own if own.size is None else Estimate(own.rows, own.size * widened(narrow, self._outputs) // narrow)

    @property
    def dataframe(self) -> DataFrame:
        """The observed rows with a column for each output. Every access starts a new attempt."""
        observed = self._engine.observed(self._computed(), self._leave_out, self._summed)
        self._digest = lambda: digest.from_metrics(observed.get(), self._leave_out)
        self._values = observed.get
        return observed.dataframe

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Yield wide rows as they arrive. Digest and outputs exist after the last one. Raises as the base class."""
        counted = tally(self._columns, self._leave_out, self._summed) if self._few else None
        if counted is None:
            return (frames.cast(batch, self._schema) for batch in self._brought(self.dataframe))
        return self._counted(counted)

    def _counted(self, counted: Tally) -> Iterator[pa.RecordBatch]:
        self._digest, self._values = None, dict
        for batch in self._wide():
            counted.add(batch)
            yield frames.cast(batch, self._schema)
        self._digest = lambda: digest.from_metrics(counted.values, self._leave_out)
        self._values = lambda: counted.values

    def _wide(self) -> Iterator[pa.RecordBatch]:
        """Yield few wide rows.

        To plan the structure of bad rows takes as long as to run a small batch. As long as none is expected, Spark
        computes whether a row is bad, and the structure for pieces that have such a row.
        """
        at, forecast = self._schema.get_field_index(column_of(BAD)), self._forecast
        if forecast is None or at < 0:
            yield from self._brought(self._df)
        elif forecast.bad:
            forecast.bad = False
            for piece in self._brought(self._df):
                forecast.bad |= piece.column(at).null_count < piece.num_rows
                yield piece
        else:
            for piece in self._brought(self._rows.select("*", *[output.narrow for output in self._outputs])):
                is_bad: Any = piece.column(at)
                if is_bad.true_count:
                    forecast.bad = True
                    yield from self._brought(self._widened(piece))
                else:
                    none_bad = pa.nulls(piece.num_rows, frames.in_arrow(self._columns).field(at).type)
                    yield piece.set_column(at, column_of(BAD), none_bad)

    def _widened(self, piece: pa.RecordBatch) -> DataFrame:
        own = frames.cast(piece.select(range(len(self._rows.columns))), frames.arrow_schema(self._rows))
        return _widen(frames.of_arrow(self.session, pa.Table.from_batches([own])), self._outputs)

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

    def trimmed(self, trim: Trim) -> Self:
        """Return the batch without the rows that a trim leaves out, with its outputs."""
        return self._like(super().trimmed(trim)._df, self._outputs)


def _widen(rows: DataFrame, outputs: Sequence[ResolvedOutput]) -> DataFrame:
    return rows.coalesce(1).select("*", *[output.column for output in outputs])


def forecast(rows: DataFrame, outputs: Sequence[ResolvedOutput]) -> Forecast | None:
    """Expect no bad row, where those of a batch can be computed from its rows in Arrow form alone. Otherwise ``None``.

    What they cannot be computed from is hidden with the rows, as a file's ``_metadata``, or is of another type there.
    """
    if not _comes_back(rows.schema):
        return None
    try:
        wide = _widen(frames.of_arrow(rows.sparkSession, frames.arrow_schema(rows).empty_table()), outputs).schema
    except AnalysisException:
        return None
    return Forecast(StructType(wide.fields[len(rows.columns) :]))


def _comes_back(columns: StructType) -> bool:
    """Whether rows of these columns have the same types after :func:`frames.of_arrow`, collations among them."""

    def types(struct: StructType) -> list[str]:
        return [field.dataType.simpleString() for field in struct.fields]

    try:
        return types(from_arrow_schema(frames.in_arrow(columns), prefer_timestamp_ntz=True)) == types(columns)
    except TypeError:  # a type that Arrow lacks, or Spark
        return False


def widened(narrow: int, outputs: Sequence[ResolvedOutput]) -> int:
    """Estimate bytes of a wide row in Arrow form if each output wants it, from those of the row (``narrow``).

    In output ``bad`` the row is a text with the names of its columns, about twice as long.
    """
    aside = any(output.summed.sets_aside for output in outputs)
    return narrow + 2 * narrow * aside + sum(schema_width(output.columns, TEXT_BYTES) for output in outputs)


def _named(output: ResolvedOutput) -> pa.Field[Any]:
    """Return its column in the schema of wide rows, each part with a mark on the type that it represents."""
    return pa.field(column_of(output.spec.name), pa.struct(list(output.columns)))
