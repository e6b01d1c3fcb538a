"""Drop rows with known ids in the action that stages the rows.

All rows of one id meet in one task. It keeps the first of them by its hash, the same in every replay. For that row
executors look the id up in the store of ids. Only the ids go to Python and over the network, never the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from onceonly.protocol.batch import AsOf
from onceonly.protocol.capabilities import AT, ID, Lookup
from onceonly.quality.spark_outputs import DividedBatch, OutputSpec, ResolvedOutput, Tally, tally
from onceonly.spark import digest, expression_check, frames
from onceonly.spark.batch import columns_refused
from onceonly_checkpoints.digests import SEEN_IDS, Digest, OutputDigest, column_of

if TYPE_CHECKING:
    import pandas as pd


# ---- Row id for deduplication: sixteen bytes of a hash over its text.


def id_of(rows: DataFrame, key: Sequence[str]) -> Column:
    """Compute the 16 bytes of a row's id, or null if a part of it is null.

    A cryptographic hash of its text: a producer that chooses ids cannot make two of them collide. The text is that of
    the value and not of its type, so a column may become wider. ``NoText``: values of a type have several texts.
    """
    parts = rows.select(*[f.expr(expression).alias(str(at)) for at, expression in enumerate(key)]).schema.fields
    texts = [_text(part.dataType, expression) for expression, part in zip(key, parts, strict=True)]
    # With its length before it, a part ends in one place only: ("a", "bc") is not ("ab", "c").
    marked = [f.concat(f.octet_length(text).cast("string"), f.lit(":"), text) for text in texts]
    id_text = texts[0] if len(texts) == 1 else f.concat(*marked)
    return f.unhex(f.substring(f.sha2(id_text, 256), 1, 32))


class NoText(TypeError):
    """A part of an id, in Spark SQL, is of a type whose values have more than one text."""

    def __init__(self, part: str, words: str) -> None:
        super().__init__(words)
        self.part = part


def _text(kind: t.DataType, expression: str) -> Column:
    column = f.expr(expression)
    match kind:
        case t.StringType() | t.IntegralType() | t.DecimalType() | t.BooleanType() | t.TimestampNTZType():
            return column.cast("string")
        case t.BinaryType():
            return f.hex(column)
        case t.DateType():
            return f.unix_date(column).cast("string")
        case t.TimestampType():
            # As a text it would be another one in another time zone of the session.
            return f.unix_micros(column).cast("string")
        case _:
            raise NoText(expression, f"it is of type {kind.simpleString()}: make a text or a number of it")


# ---- Deduplicate rows by id in the driver.
#
# For few rows Spark takes longer to compile than to read.


def repeated(ids: Sequence[bytes | None], hashes: Sequence[int], known_ids: Collection[bytes]) -> list[bool]:
    """Mark repeated rows: all of a known id, and of any other id all but the one with the lowest hash.

    Rows with one id and one hash are one row twice. Their earliest counts as first.
    """
    first = firsts(ids, hashes)
    return [row_id is not None and (row_id in known_ids or first[row_id] != at) for at, row_id in enumerate(ids)]


def firsts(ids: Sequence[bytes | None], hashes: Sequence[int]) -> dict[bytes, int]:
    """Return the position of each id's first row, with the arguments of :func:`repeated`."""
    positions: dict[bytes, int] = {}
    for at, row_id in enumerate(ids):
        if row_id is not None and (row_id not in positions or hashes[at] < hashes[positions[row_id]]):
            positions[row_id] = at
    return positions


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows without their repetitions, with the digest of these and the number of all rows."""

    rows: tuple[pa.RecordBatch, ...]
    repeated: Digest
    offered: int


def judge(pieces: Sequence[pa.RecordBatch], hashing: digest.HashingRows, lookup: Lookup) -> Judged:
    """Leave out the repeated rows of a batch. ``pieces`` are all of its wide rows.

    ``hashing`` omits the columns that are computed of a row. ``DestinationError``: the store of ids does not answer.
    """
    ids = list(chain.from_iterable(map(_ids, pieces)))
    hashes = [hashing(piece) for piece in pieces]
    numbers: list[Any] = list(chain.from_iterable(piece_hashes.to_pylist() for piece_hashes in hashes))
    known_ids = next(iter(lookup(iter([list(firsts(ids, numbers))]))))
    masks = repeated(ids, numbers, known_ids)
    left: list[pa.RecordBatch] = []
    unique_digest, begin = Digest(0), 0
    for piece, each in zip(pieces, hashes, strict=True):
        mask = pa.array(masks[begin : begin + piece.num_rows], pa.bool_())
        unique_digest += digest.of_hashes(each.filter(mask))
        left.append(piece.filter(pc.invert(mask)))
        begin += piece.num_rows
    return Judged(tuple(left), unique_digest, begin)


def _ids(piece: pa.RecordBatch) -> Sequence[bytes | None]:
    # Unlike a structure's own parts, these are null where it is.
    id_array: Any = pc.struct_field(piece.column(column_of(SEEN_IDS)), [ID])
    listed: list[bytes | None] = id_array.to_pylist()
    return listed


# ---- Drop rows with known ids in the action that stages the rows.

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

    def output_spec(self, pipeline: str, rows: DataFrame) -> OutputSpec:
        """Return the output of ids (E121: the key is not an expression on a row). Their time is the epoch's."""
        try:
            made = (id_of(rows, self.key).alias(ID), self.clock(0))
            return OutputSpec(SEEN_IDS, (self.sink,), None, made, definition=f"key={[*self.key]!r}")
        except NoText as error:
            cause = "a value of this type has more than one text"
            remedy = f'give one: key="CAST({error.part} AS STRING)"'
            raise expression_check.refusal(self._what, pipeline, str(error), cause, remedy) from error
        except Exception as error:  # of Spark's many classes: what it says is what the user needs
            raise expression_check.unread(self._what, pipeline, rows, error) from error

    def clock(self, clock_ms: int) -> Column:
        """Return the time of the ids of an epoch, never null: a table of them may demand that."""
        return f.expr(f"timestamp_millis(coalesce({digest.of_batch(clock_ms, f'({self.key[0]})')}, 0L))").alias(AT)

    @property
    def _what(self) -> str:
        return f'Dedupe(key="{", ".join(self.key)}")'


# ---- The batch.


class DedupingBatch(DividedBatch):
    """Spark's micro-batch, without rows whose id was seen before the moment of :meth:`as_of`.

    Before that all rows are there. A run for Spark's state alone looks no id up. ``lookup`` runs on executors.
    """

    def __init__(self, *arguments: Any, repeats: DedupeConfig, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._repeats = repeats
        self._lookup: Lookup | None = None
        self._dropped: Callable[[], tuple[Digest, int]] | None = None

    def as_of(self, as_of: AsOf) -> DedupingBatch:
        """Return the batch with the first row of each id unknown at that moment (``DestinationError``: no answer)."""
        timed = [self._at(output, as_of.clock_ms) for output in self._outputs]
        batch = self._like(self._rows, timed)
        batch._lookup = self._repeats.lookup(as_of)
        return batch

    def _at(self, output: ResolvedOutput, clock_ms: int) -> ResolvedOutput:
        if output.spec.name != SEEN_IDS:
            return output
        id_, *_ = output.spec.select
        spec = replace(output.spec, select=(id_, self._repeats.clock(clock_ms)))
        return replace(output, spec=spec, column=spec.column())

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Yield rows as any batch with outputs. ``DestinationError``: the store of ids does not answer an executor."""
        with columns_refused(self.session):
            judged = self._judged_here()
            yield from super().arrow() if judged is None else self._counted_here(*judged)

    def write(self, directory: str, shape: Callable[[DataFrame], DataFrame] | None = None) -> None:
        """Write as any batch. ``DestinationError``: the store of ids does not answer an executor."""
        with columns_refused(self.session):
            super().write(directory, shape)

    def outputs(self) -> tuple[OutputDigest, ...]:
        """Return outputs, and counts of dropped rows, from the action that staged them."""
        outputs = super().outputs()
        if self._dropped is None:
            return outputs
        repeated, offered = self._dropped()
        return tuple(
            replace(output, repeated=repeated, offered=offered) if output.name == SEEN_IDS else output
            for output in outputs
        )

    # ---- few rows

    def _judged_here(self) -> tuple[Judged, Tally] | None:
        """Run the plan's one action and deduplicate in the driver, if rows are few and it can hash them."""
        if self._lookup is None or not self._few:
            return None
        hashing = digest.hashing_rows(self._rows.schema, self._leave_out)
        counted = tally(self._columns, self._leave_out, self._summed)
        if hashing is None or counted is None:
            return None
        pieces: list[pa.RecordBatch] = []
        size, own = 0, range(len(self._rows.columns))
        for piece in super()._wide():
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

    def _wide(self) -> Iterator[pa.RecordBatch]:
        return super()._wide() if self._lookup is None else self._brought(self._computed())

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
        wide, names = self._df, self._df.columns
        id_ = f.col(digest.quote(column_of(SEEN_IDS))).getField(ID)
        hashed = digest.row_hash(self._rows.schema, self._leave_out)
        # An observation counts a row twice where a task before a shuffle is run again, so all is counted behind it.
        placed = _placed(wide.select("*", id_.alias(_ID), hashed.alias(_HASH)), self._tasks)
        is_known = _asking(lookup)(f.when(_own(_PLACE) == 1, _own(_ID)))
        repeated = _own(_ID).isNotNull() & ((_own(_PLACE) > 1) | is_known)
        judged = placed.select("*", repeated.alias(_REPEATED))
        is_repeated = _own(_REPEATED)
        sums = digest.sums(f.when(is_repeated, _own(_HASH)), f.when(is_repeated, 1), _REPEATED)
        counted = Observation()
        observed = judged.observe(counted, f.count(f.lit(1)).alias(_OFFERED), *sums)
        return observed.where(~is_repeated).select(*map(digest.quote, names)), counted


def _own(name: str) -> Column:
    return f.col(digest.quote(name))


def _placed(rows: DataFrame, tasks: int) -> DataFrame:
    """Number the rows of each id from 1, by hash, since rows of a replay come in another order."""
    # Rows without an id are nobody's repetition, and may be many: one task must not have them all.
    spread = rows.select("*", f.coalesce(_own(_ID), f.unhex(f.hex(_own(_HASH)))).alias(_MEETS))
    repartitioned = spread.repartition(tasks, _own(_MEETS))
    window = Window.partitionBy(_own(_MEETS)).orderBy(_own(_HASH))
    return repartitioned.select("*", f.row_number().over(window).alias(_PLACE))


def _asking(lookup: Lookup) -> Callable[[Column], Column]:
    """Return a function that looks ids up as a column. A null id is unknown."""
    import pandas as pd

    def are_recorded(pieces: Iterator[pd.Series[Any]]) -> Iterator[pd.Series[Any]]:
        import pandas as pd

        waiting: deque[pd.Series[Any]] = deque()

        def ids() -> Iterator[Sequence[bytes]]:
            for piece in pieces:
                waiting.append(piece)
                yield [bytes(row_id) for row_id in piece if row_id is not None]

        for known_ids in lookup(ids()):
            piece = waiting.popleft()
            yield pd.Series([row_id is not None and bytes(row_id) in known_ids for row_id in piece], dtype=bool)

    # PySpark reads from the annotations that it is called piece by piece; as texts they name nothing that it finds.
    are_recorded.__annotations__ = {"pieces": Iterator[pd.Series], "return": Iterator[pd.Series]}
    functions: Any = f  # its overloads leave this form out
    udf = functions.pandas_udf(are_recorded, "boolean")
    # Not what it is given alone: asked again it may answer otherwise, so it must not be computed twice.
    column: Callable[[Column], Column] = udf.asNondeterministic()
    return column
