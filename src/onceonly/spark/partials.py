"""The one action over a batch with panes: what its rows give for each key and window, and what they say of time.

Few rows come to the driver, in the columns that are asked for, and are aggregated there: for them Spark takes longer to
shuffle than to read. Many are aggregated by Spark, and only partial results come. Both give the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.panes import kinds
from onceonly.panes.here import Row, key_text, partials_of
from onceonly.panes.spec import INGEST, Definition, Panes
from onceonly.panes.step import Partial, Place
from onceonly.panes.values import Aggregate, Count, Last, Max, Mean, Min, Sum, Value
from onceonly.panes.windows import LEAST, Fixed, Global, Sessions, Sliding, local_days
from onceonly.protocol.batch import Bound
from onceonly.protocol.times import Times
from onceonly.spark import laterows
from onceonly.spark.digest import quote
from onceonly.spark.outputs import beyond_a_row, first_line
from onceonly.spark.stepping import Counted
from onceonly_checkpoints.epochtime import END

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Bring = Callable[["DataFrame"], Iterator["pa.RecordBatch"]]
"""Brings the rows of a DataFrame to the driver."""

_KEY, _TIME, _INPUT, _MARK, _ROW = "k", "t", "i", "m", "row"
_HALF = 32


def kinds_of(pipeline: str, rows: DataFrame, panes: Panes) -> dict[str, str]:
    """Kinds of what panes take of a row and is not the name of a column.

    Args:
        pipeline: its name.
        rows: as they would be written without panes; of a stream as well.
        panes: what the user said.

    Raises:
        ConfigurationError: E121, an expression is not one on a row.
    """
    said = [*panes.expressions, *([panes.marks] if panes.marks else [])]
    texts = [text for text in said if text not in rows.columns]
    if not texts:
        return {}
    try:
        wide = rows.selectExpr("*", *[f"({text}) AS `onceonly {at}`" for at, text in enumerate(texts)])
        found = wide.dtypes[len(rows.columns) :]
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise refuse("E121", what="Panes(...)", query=pipeline, reason=first_line(error)) from error
    if beyond := beyond_a_row(rows, wide):
        raise refuse("E121", what="Panes(...)", query=pipeline, reason=beyond)
    return {text: kind for text, (_, kind) in zip(texts, found, strict=True)}


@dataclass(frozen=True, slots=True)
class Action:
    """What is asked of a batch.

    Attributes:
        rows: the batch, as it would be written without panes.
        definition: of the windows.
        to: what they go on from.
        horizon: rows before it are late; ``None`` where nothing was noted yet.
        keeps_late: whether rows of closed windows are wanted whole.
        bring: brings rows to the driver.
    """

    rows: DataFrame
    definition: Definition
    to: Bound
    horizon: int | None
    keeps_late: bool
    bring: Bring

    def counted(self, *, few: bool) -> Counted:
        """Run it.

        Args:
            few: whether the rows are so few that the driver aggregates them.

        Raises:
            TooLargeForDriver: there are more rows, or partial results, than Spark brings to a driver.
        """
        return self._here() if few and not self.definition.by_spark else self._there()

    # ---- what is taken of a row, as Spark columns

    def _taken(self) -> list[str]:
        """SQL of what windows take of a row: key, time in the unit, inputs, mark; and the row, where that is wanted."""
        panes = self.definition.panes
        keys = [f"{quote(name)} AS {_KEY}{at}" for at, name in enumerate(panes.keys)]
        inputs = [f"{self._sql(text)} AS {_INPUT}{at}" for at, text in enumerate(panes.expressions)]
        marks = [f"coalesce({panes.marks}, false) AS {_MARK}"] if panes.marks else []
        row = [f"struct(*) AS {_ROW}"] if self.keeps_late else []
        return [*keys, f"{self._time()} AS {_TIME}", *inputs, *marks, *row]

    def _time(self) -> str:
        panes = self.definition.panes
        if panes.time == INGEST and INGEST not in self.rows.columns:
            return f"{self.to.clock}L"
        column = quote(panes.time)
        return f"unix_millis({column})" if self.definition.unit == "ms" else f"CAST({column} AS BIGINT)"

    def _sql(self, text: str) -> str:
        return quote(text) if text in self.rows.columns else f"({text})"

    # ---- few rows

    def _here(self) -> Counted:
        found = _Tally(self.horizon)
        rows: list[Row] = []
        whole: list[pa.Array[Any]] = []
        for piece in self.bring(self.rows.selectExpr(*self._taken())):
            rows += self._rows_of(piece)
            whole += [piece.column(_ROW)] if self.keeps_late else []
        found.add([row.time for row in rows])
        partials = partials_of(self.definition, rows)
        late = laterows.of_rows(self._late_setting(), rows, whole, partials) if self.keeps_late else None
        return Counted(partials, len(rows), found.times, late)

    def _rows_of(self, piece: pa.RecordBatch) -> Iterator[Row]:
        definition = self.definition
        keys = [_listed(piece.column(f"{_KEY}{at}")) for at in range(len(definition.key_kinds))]
        inputs = [_listed(piece.column(f"{_INPUT}{at}")) for at in range(len(definition.panes.expressions))]
        times = _listed(piece.column(_TIME))
        marks = _listed(piece.column(_MARK)) if definition.panes.marks else [False] * len(times)
        for at, time in enumerate(times):
            yield Row([one[at] for one in keys], time, [one[at] for one in inputs], marks[at])

    def _late_setting(self) -> laterows.Setting:
        return laterows.Setting(self.definition, self.rows.schema, self.to.noted_before)

    # ---- any number of rows

    def _there(self) -> Counted:
        partials: list[Partial] = []
        found, rows = _Tally(self.horizon), 0
        late: list[laterows.Piece] = []
        for piece in self.bring(self._grouped()):
            columns = {name: _listed(piece.column(name)) for name in piece.schema.names if name != _ROW}
            rows += found.join(columns)
            partials += self._partials_of(columns)
            if self.keeps_late:
                late.append(laterows.Piece(columns["start"], columns["end"], piece.column(_ROW)))
        kept = laterows.of_pieces(self._late_setting(), late) if self.keeps_late else None
        return Counted(partials, rows, found.times, kept)

    def _grouped(self) -> DataFrame:
        from pyspark.sql import functions as f

        keys = [f"{_KEY}{at}" for at in range(len(self.definition.key_kinds))]
        windowed = self._windowed(self.rows.selectExpr(*self._taken()), keys)
        # Rows without a window are of no key: else they were as many groups as there are keys.
        named = [f"if(start IS NULL, NULL, {key}) AS {key}" for key in keys]
        rest = [name for name in windowed.columns if name not in keys]
        horizon = "false" if self.horizon is None else f"{_TIME} < {self.horizon}L"
        sums = [
            "count(1) AS rows",
            f"count_if({_MARK}) AS marks" if self.definition.panes.marks else "0L AS marks",
            f"min({_TIME}) AS first",
            f"max({_TIME}) AS last",
            "count_if(own) AS own",
            f"count_if(own AND {_TIME} IS NOT NULL) AS timed",
            f"count_if(own AND {horizon}) AS late",
        ]
        if self.keeps_late:
            sums.append(f"collect_list(CASE WHEN {self._perhaps_late()} THEN {_ROW} END) AS {_ROW}")
        grouped = windowed.selectExpr(*named, *map(quote, rest)).groupBy(*keys, *self._groups())
        ends = [f.expr(text) for text in self._ends()]
        return grouped.agg(*map(f.expr, sums), *ends, *self._values())

    def _groups(self) -> list[str]:
        return ["session"] if self.definition.sessions else ["start", "end"]

    def _ends(self) -> list[str]:
        return ["min(start) AS start", "max(end) AS end"] if self.definition.sessions else []

    def _perhaps_late(self) -> str:
        """Rows whose window is closed; of a session that is known only once it is whole."""
        noted = self.to.noted_before
        if noted is None:
            return f"{_TIME} IS NULL"
        latest = noted - min(self.definition.lateness, noted - LEAST)
        return f"{_TIME} IS NULL OR end <= {latest}L"

    def _windowed(self, rows: DataFrame, keys: Sequence[str]) -> DataFrame:
        """The rows with ``start`` and ``end`` of their window, once for each; ``own`` is true for one of these."""
        window = self.definition.panes.window
        match window:
            case Fixed(timezone=None):
                size, offset = window.numbers
                start = f"{_TIME} - pmod({_TIME} - {offset}L, {size}L)"
                return rows.selectExpr("*", f"{start} AS start", f"{start} + {size}L AS end", "true AS own")
            case Fixed():
                return self._of_days(rows, window)
            case Sliding():
                size, every = window.numbers
                first, last = f"{_multiple(f'({_TIME} - {size}L)', every)} + {every}L", _multiple(_TIME, every)
                starts = f"if({first} <= {last}, sequence({first}, {last}, {every}L), NULL)"
                spread = rows.selectExpr("*", f"posexplode_outer({starts}) AS (place, start)")
                return spread.selectExpr("*", f"start + {size}L AS end", "coalesce(place, 0) = 0 AS own").drop("place")
            case Sessions():
                return self._of_sessions(rows, keys, window.number)
            case Global():
                start, end = f"CAST('{LEAST}' AS BIGINT)", f"CAST('{END}' AS BIGINT)"
                bounds = [
                    f"if({_TIME} IS NULL, NULL, {one}) AS {name}" for name, one in (("start", start), ("end", end))
                ]
                return rows.selectExpr("*", *bounds, "true AS own")

    def _of_days(self, rows: DataFrame, window: Fixed) -> DataFrame:
        """Days of a zone by Python's database of zones, which is that of the driver, and not by the engine's own."""
        from pyspark.sql import functions as f

        size, offset = window.numbers
        starts = _starting(size // (24 * 60 * 60 * 1000), offset, window.timezone or "UTC")
        days = rows.select("*", starts(f.col(_TIME)).alias("day"))
        return days.selectExpr("*", "day.start AS start", "day.end AS end", "true AS own").drop("day")

    def _of_sessions(self, rows: DataFrame, keys: Sequence[str], gap: int) -> DataFrame:
        """Rows that no gap parts are of one session: numbered within their key, by time."""
        by = f"PARTITION BY {', '.join(keys)} ORDER BY {_TIME}"
        before = f"lag({_TIME}) OVER ({by})"
        begins = f"if({_TIME} IS NULL, 0, if(coalesce({_TIME} - {before} >= {gap}L, true), 1, 0)) AS begins"
        told = rows.selectExpr("*", begins)
        number = f"if({_TIME} IS NULL, NULL, sum(begins) OVER ({by} ROWS UNBOUNDED PRECEDING)) AS session"
        return told.selectExpr("*", number, f"{_TIME} AS start", f"{_TIME} + {gap}L AS end", "true AS own").drop(
            "begins"
        )

    # ---- values

    def _values(self) -> list[Column]:
        from pyspark.sql import functions as f

        place = {text: f"{_INPUT}{at}" for at, text in enumerate(self.definition.panes.expressions)}
        found: list[Column] = []
        for at, value in enumerate(self.definition.panes.values.values()):
            if isinstance(value, Aggregate):
                found.append(value.partial().alias(f"v{at}"))
                continue
            inputs = [place[text] for text in value.inputs]
            kind = self.definition.input_kinds[value.inputs[0]] if value.inputs else ""
            found += [f.expr(f"{text} AS v{at}{part}") for part, text in _aggregates(value, kind, inputs).items()]
        return found

    def _partials_of(self, columns: dict[str, list[Any]]) -> Iterator[Partial]:
        definition = self.definition
        keys = [columns[f"{_KEY}{at}"] for at in range(len(definition.key_kinds))]
        values = [_read(value, at, columns, definition) for at, value in enumerate(definition.panes.values.values())]
        for at, start in enumerate(columns["start"]):
            if start is None:
                continue
            place = Place(key_text(definition, [one[at] for one in keys]), start, columns["end"][at])
            told = (columns["rows"][at], columns["marks"][at], columns["first"][at], columns["last"][at])
            yield Partial(place, tuple(one(at) for one in values), *told)


def _multiple(number: str, of: int) -> str:
    """The greatest multiple that is not greater than a number, also below zero."""
    return f"({number} - pmod({number}, {of}L))"


def _aggregates(value: Value, kind: str, inputs: Sequence[str]) -> dict[str, str]:
    """Spark's aggregates of a value, by the end of their column's name."""
    match value:
        case Count():
            return {"": f"count({inputs[0] if inputs else 1})"}
        case Sum():
            return _sums(kind, inputs[0])
        case Mean():
            return {**_sums(kind, inputs[0]), "n": f"count({inputs[0]})"}
        case Min():
            return {"": f"min({inputs[0]})"}
        case Max():
            return {"": f"max({inputs[0]})"}
        case Last():
            column, by = inputs
            # Of a structure the first part that differs decides, and null is the least.
            last = f"max(CASE WHEN {by} IS NOT NULL THEN struct({by} AS by, {column} AS value) END)"
            return {"b": f"{last}.by", "v": f"{last}.value"}
        case _:
            raise TypeError(f"{type(value).__name__} is no value of ours")


def _sums(kind: str, column: str) -> dict[str, str]:
    if kind != "bigint":
        return {"": f"sum({column})"}
    # Halves cannot overflow a sum of 64 bits, as their wholes can.
    return {"h": f"sum(shiftright({column}, {_HALF}))", "l": f"sum({column} & {2**_HALF - 1}L)"}


def _read(value: Value, at: int, columns: dict[str, list[Any]], definition: Definition) -> Callable[[int], kinds.Json]:
    """What makes a partial result of the columns of a value."""
    kind = definition.input_kinds[value.inputs[0]] if value.inputs else ""
    own = columns.get(f"v{at}", [])
    match value:
        case Count():
            return lambda row: kinds.as_json(own[row])
        case Sum():
            return _summed(kind, at, columns)
        case Mean():
            summed, numbers = _summed(kind, at, columns), columns[f"v{at}n"]
            return lambda row: [summed(row), numbers[row]] if numbers[row] else None
        case Last():
            by, of = definition.input_kinds[value.by], columns[f"v{at}v"]
            orders = columns[f"v{at}b"]
            return lambda row: (
                None if orders[row] is None else [kinds.encode(by, orders[row]), kinds.encode(kind, of[row])]
            )
        case Aggregate():
            return lambda row: None if own[row] is None else kinds.as_json(json.loads(own[row]))
        case _:
            return lambda row: kinds.encode(kind, own[row])


def _summed(kind: str, at: int, columns: dict[str, list[Any]]) -> Callable[[int], kinds.Json]:
    if kind == "bigint":
        high, low = columns[f"v{at}h"], columns[f"v{at}l"]
        return lambda row: None if high[row] is None else (high[row] << _HALF) + low[row]
    own = columns[f"v{at}"]
    return lambda row: kinds.encode(kind, own[row])


def _starting(days: int, offset: int, zone: str) -> Callable[[Column], Column]:
    """Start and end of the window of so many local days, as a structure; null of null."""
    import pandas as pd
    from pyspark.sql import functions as f

    def of(times: pd.Series[Any]) -> pd.DataFrame:
        import pandas as pd

        spans: list[tuple[int | None, int | None]] = []
        last = (0, 0)
        for time in times.astype("Int64"):
            if pd.isna(time):
                spans.append((None, None))
                continue
            if not last[0] <= time < last[1]:
                last = local_days(int(time), days, offset, zone)
            spans.append(last)
        starts, ends = ([span[at] for span in spans] for at in (0, 1))
        found: pd.DataFrame = pd.DataFrame({"start": pd.array(starts, "Int64"), "end": pd.array(ends, "Int64")})
        return found

    # PySpark reads from the annotations what it is given; as texts they name nothing that it finds.
    of.__annotations__ = {"times": pd.Series, "return": pd.DataFrame}
    functions: Any = f
    column: Callable[[Column], Column] = functions.pandas_udf(of, "start bigint, end bigint")
    return column


def _listed(column: pa.Array[Any]) -> list[Any]:
    """Values in Python; instants as microseconds since 1970."""
    import pyarrow as pa

    kind: Any = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    listed: list[Any] = column.to_pylist()
    return listed


class _Tally:
    """What rows say of time."""

    def __init__(self, horizon: int | None) -> None:
        self._horizon = horizon
        self.times = Times()

    def add(self, times: Sequence[int | None]) -> None:
        """Count rows."""
        known = [time for time in times if time is not None]
        late = 0 if self._horizon is None else sum(time < self._horizon for time in known)
        self._put(known, late, len(times) - len(known))

    def join(self, columns: dict[str, list[Any]]) -> int:
        """Count groups of rows; return how many rows they are."""
        own = int(sum(columns["own"]))
        known = [time for name in ("first", "last") for time in columns[name] if time is not None]
        self._put(known, sum(columns["late"]), own - sum(columns["timed"]))
        return own

    def _put(self, known: Sequence[int], late: int, untimed: int) -> None:
        past = self.times
        known = [*known, *(time for time in (past.first, past.last) if time is not None)]
        first, last = min(known, default=None), max(known, default=None)
        self.times = Times(first, last, past.late + late, past.untimed + untimed)
