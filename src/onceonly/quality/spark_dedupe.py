"""Drop rows with known ids in the action that stages the rows.

All rows of one id meet in one task. It keeps the first of them by its hash, the same in every replay. For that row
executors look the id up in the store of ids. Only the ids go to Python and over the network, never the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceonly.protocol import AsOf, Estimate
from onceonly.protocol.batch import Trim
from onceonly.protocol.capabilities import AT, ID, Lookup
from onceonly.quality.local_dedupe import Judged, judge
from onceonly.quality.row_ids import NoText, id_of
from onceonly.quality.spark_outputs import DividedBatch, OutputSpec, ResolvedOutput
from onceonly.quality.tally import Tally, tally
from onceonly.spark import digest, expression_check, frames
from onceonly.spark.batch import columns_refused
from onceonly_checkpoints.digests import SEEN, Digest, OutputDigest, column_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Observation

_MOST_HERE = 16 * 1024 * 1024
"""Bytes in Arrow form of a batch that was expected to have few rows, from which on Spark does it after all."""

_ID, _MEETS, _HASH, _PLACE, _REPEATED = (
    f"onceonly {name}" for name in ("id", "meets", "hash of the row", "place", "repeated")
)
_OFFERED = "offered"


@dataclass(frozen=True, slots=True)
class DedupeConfig:
    """Key of a row's id in Spark SQL, and the sink and lookup of known ids."""

    key: tuple[str, ...]
    sink: str
    lookup: Callable[[AsOf], Lookup]

    def wanted(self, pipeline: str, rows: DataFrame) -> OutputSpec:
        """Return the output of ids. Their time is that of the epoch, once it is known.

        Raises:
            ConfigurationError: E121, the key is not an expression on a row.
        """
        try:
            made = (id_of(rows, self.key).alias(ID), _clock(0))
            return OutputSpec(SEEN, (self.sink,), None, made, said=f"key={[*self.key]!r}")
        except NoText as error:
            cause, way = "a value of this type has more than one text", f'give one: key="CAST({error.part} AS STRING)"'
            raise expression_check.refusal(self._what, pipeline, str(error), cause, way) from error
        except Exception as error:  # of Spark's many classes: what it says is what the user needs
            raise expression_check.unread(self._what, pipeline, rows, error) from error

    @property
    def _what(self) -> str:
        return f'Dedupe(key="{", ".join(self.key)}")'


def _clock(clock_ms: int) -> Column:
    from pyspark.sql import functions as f

    return f.timestamp_millis(f.lit(clock_ms)).alias(AT)


# ---- The batch.


class DedupingBatch(DividedBatch):
    """Spark's micro-batch, without rows whose id was seen before the moment of :meth:`as_of`.

    Before :meth:`as_of` all rows are there. A run for Spark's state alone looks no id up. ``lookup`` runs on executors.
    Without it all rows are kept.
    """

    def __init__(
        self,
        rows: DataFrame,
        outputs: Sequence[ResolvedOutput],
        estimate: Estimate,
        leave_out: frozenset[str] = frozenset(),
        without: Callable[[Trim], DataFrame] | None = None,
        *,
        repeats: DedupeConfig,
        lookup: Lookup | None = None,
    ) -> None:
        super().__init__(rows, outputs, estimate, leave_out, without)
        self._rows = rows
        self._repeats = repeats
        self._lookup = lookup
        self._dropped: Callable[[], tuple[Digest, int]] | None = None

    def as_of(self, as_of: AsOf) -> DedupingBatch:
        """Return the batch without repeated rows: of each id unknown at that moment the first row stays.

        Raises:
            DestinationError: the store of ids does not answer.
        """
        timed = [_at(output, as_of.clock_ms) if output.wanted.name == SEEN else output for output in self._outputs]
        return self._like(self._rows, timed, self._repeats.lookup(as_of))

    def trimmed(self, trim: Trim) -> DedupingBatch:
        """Return the batch without the rows that a trim leaves out."""
        if self._without is None:
            raise TypeError("this batch cannot be trimmed")
        return self._like(self._without(trim), self._outputs, self._lookup)

    def _like(self, rows: DataFrame, outputs: Sequence[ResolvedOutput], lookup: Lookup | None) -> DedupingBatch:
        said = (rows, outputs, self._estimate, self._leave_out)
        return DedupingBatch(*said, repeats=self._repeats, lookup=lookup)

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Yield rows as any batch with outputs.

        Raises:
            TooLargeForDriver: more rows than Spark collects to a driver.
            DestinationError: the store of ids does not answer an executor.
        """
        with columns_refused(self.session):
            judged = self._judged_here()
            yield from super().arrow() if judged is None else self._counted_here(*judged)

    def write(self, directory: str) -> None:
        """Write as any batch.

        Raises:
            DestinationError: the store of ids does not answer an executor.
        """
        with columns_refused(self.session):
            super().write(directory)

    def outputs(self) -> tuple[OutputDigest, ...]:
        """Return outputs, and counts of dropped rows, from the action that staged them."""
        found = super().outputs()
        if self._dropped is None:
            return found
        repeated, offered = self._dropped()
        return tuple(replace(one, repeated=repeated, offered=offered) if one.name == SEEN else one for one in found)

    # ---- few rows

    def _judged_here(self) -> tuple[Judged, Tally] | None:
        """Run the plan's one action and deduplicate in the driver, if rows are few and it can hash them."""
        if self._lookup is None or not self._few:
            return None
        hashing = digest.hashing_rows(self._rows.schema, self._leave_out)
        counted = tally(self._df.schema, self._leave_out, self._summed)
        if hashing is None or counted is None:
            return None
        pieces: list[pa.RecordBatch] = []
        size, own = 0, range(len(self._rows.columns))
        for piece in self._brought(self._df):
            pieces.append(piece)
            size += piece.nbytes
            if size > _MOST_HERE:
                return None
        return judge(pieces, lambda piece: hashing(piece.select(own)), self._lookup), counted

    def _counted_here(self, judged: Judged, counted: Tally) -> Iterator[pa.RecordBatch]:
        for piece in judged.rows:
            counted.add(piece)
            yield frames.cast(piece, self._schema)
        self._digest = lambda: digest.from_metrics(counted.values, self._leave_out)
        self._values = lambda: counted.values
        left_out = tuple(sorted(self._leave_out))
        self._dropped = lambda: (replace(judged.repeated, left_out=left_out), judged.offered)

    # ---- any number of rows

    def _computed(self) -> DataFrame:
        if self._lookup is None:
            return self._df
        rows, counted = self._without_repeats(self._lookup)
        self._dropped = lambda: (
            digest.from_metrics(counted.get, self._leave_out, _REPEATED),
            counted.get[_OFFERED],
        )
        return rows

    def _without_repeats(self, lookup: Lookup) -> tuple[DataFrame, Observation]:
        """Return the rows of one attempt, and counts taken before any is dropped."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        wide, names = self._df, self._df.columns
        id_ = f.col(digest.quote(column_of(SEEN))).getField(ID)
        hashed = digest.row_hash(self._rows.schema, self._leave_out)
        # An observation counts a row twice where a task before a shuffle is run again, so all is counted behind it.
        placed = _placed(wide.select("*", id_.alias(_ID), hashed.alias(_HASH)), self._tasks)
        asked = _asking(lookup)(f.when(_own(_PLACE) == 1, _own(_ID)))
        repeated = _own(_ID).isNotNull() & ((_own(_PLACE) > 1) | asked)
        judged = placed.select("*", repeated.alias(_REPEATED))
        is_repeated = _own(_REPEATED)
        sums = digest.sums(f.when(is_repeated, _own(_HASH)), f.when(is_repeated, 1), _REPEATED)
        counted = Observation()
        observed = judged.observe(counted, f.count(f.lit(1)).alias(_OFFERED), *sums)
        return observed.where(~is_repeated).select(*map(digest.quote, names)), counted


def _at(one: ResolvedOutput, clock_ms: int) -> ResolvedOutput:
    id_, *_ = one.wanted.select
    wanted = replace(one.wanted, select=(id_, _clock(clock_ms)))
    return replace(one, wanted=wanted, column=wanted.column())


def _own(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(digest.quote(name))


def _placed(rows: DataFrame, tasks: int) -> DataFrame:
    """Number the rows of each id from 1, by hash, since rows of a replay come in another order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Rows without an id are nobody's repetition, and may be many: one task must not have them all.
    spread = rows.select("*", f.coalesce(_own(_ID), f.unhex(f.hex(_own(_HASH)))).alias(_MEETS))
    together = spread.repartition(tasks, _own(_MEETS))
    window = Window.partitionBy(_own(_MEETS)).orderBy(_own(_HASH))
    return together.select("*", f.row_number().over(window).alias(_PLACE))


def _asking(lookup: Lookup) -> Callable[[Column], Column]:
    """Return a function that looks ids up as a column. A null id is unknown."""
    import pandas as pd
    from pyspark.sql import functions as f

    def known(pieces: Iterator[pd.Series[Any]]) -> Iterator[pd.Series[Any]]:
        import pandas as pd

        waiting: deque[pd.Series[Any]] = deque()

        def ids() -> Iterator[Sequence[bytes]]:
            for piece in pieces:
                waiting.append(piece)
                yield [bytes(one) for one in piece if one is not None]

        for found in lookup(ids()):
            piece = waiting.popleft()
            yield pd.Series([one is not None and bytes(one) in found for one in piece], dtype=bool)

    # PySpark reads from the annotations that it is called piece by piece; as texts they name nothing that it finds.
    known.__annotations__ = {"pieces": Iterator[pd.Series], "return": Iterator[pd.Series]}
    functions: Any = f  # its overloads leave this form out
    udf = functions.pandas_udf(known, "boolean")
    # Not what it is given alone: asked again it may answer otherwise, so it must not be computed twice.
    column: Callable[[Column], Column] = udf.asNondeterministic()
    return column
