"""Define outputs and routes: which sinks get which rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from onceonly.errors import refuse
from onceonly.errors.options import checks_arguments
from onceonly.protocol import Sink
from onceonly.quality.quality import SUMS, Quality, check_named
from onceonly.spark.expression_check import text_of

if TYPE_CHECKING:
    from onceonly.quality.spark_outputs import Column, OutputSpec

MOST = 16
"""How many outputs an epoch may have: each is a digest in every marker, and a column in what is staged."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_RESERVED = frozenset({"rows", "bad", "late", "windows", "state", "seen"})


@checks_arguments
@dataclass(frozen=True, slots=True, init=False)
class Output:
    """Selected rows and columns of each batch for some sinks. Committed with all the rest as one epoch.

    Each row of the batch, after ``transform=``, is in the output once or not at all. The others are counted. Flink and
    Beam call it a side output.

    Args:
        sinks: all of them hold the same.
        name: stable, unique in the call: markers and the ledger hold it.
        where: a condition on one row, in Spark SQL or as a Column. Null is no. Default: all rows.
        select: its columns, made of one row each, in Spark SQL (``"id AS key"``, ``"*"``) or as Columns. Default: all.
        checks: conditions that its rows of an epoch meet together, as those of :class:`onceonly.Quality`.

    Example:
        ``exactly_once(orders, Output(alerts, name="alerts", where="amount > 1000", select=["id", "amount"]))``
    """

    sinks: tuple[Sink, ...]
    name: str
    where: str | Column | None
    select: tuple[str | Column, ...]
    checks: Mapping[str, str]

    def __init__(
        self,
        *sinks: Sink,
        name: str,
        where: str | Column | None = None,
        select: Sequence[str | Column] | None = None,
        checks: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "sinks", sinks)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "where", where)
        if isinstance(select, str):
            raise _formless(f'select="{select}" of an output is one text', f'give a list: select=["{select}"]')
        object.__setattr__(self, "select", tuple(select or ()))
        check_named("Output", "checks", checks or {}, SUMS)
        object.__setattr__(self, "checks", dict(checks or {}))

    def __repr__(self) -> str:
        options = [f"name={self.name!r}"]
        options += [f"where={self.where!r}"] if self.where is not None else []
        options += [f"select={[*self.select]!r}"] if self.select else []
        options += [f"checks={self.checks!r}"] if self.checks else []
        return f"Output({', '.join([*map(repr, self.sinks), *options])})"

    @property
    def output_spec(self) -> OutputSpec:
        """Rows and columns that it selects from a batch."""
        from onceonly.quality.spark_outputs import OutputSpec

        text = f"where={self.where!r}" + (f", select={[*self.select]!r}" if self.select else "")
        return OutputSpec(self.name, tuple(sink.id for sink in self.sinks), self.where, self.select, definition=text)

    @property
    def text(self) -> str:
        """Its selection in words."""
        condition = f"the rows where {text_of(self.where)}" if self.where is not None else "every row"
        columns = f", as {', '.join(map(text_of, self.select))}" if self.select else ""
        return condition + columns


def check(outputs: Sequence[Output]) -> None:
    """Refuse outputs that form no epoch (E120)."""
    if len(outputs) > MOST:
        remedy = "write the others by a second pipeline, with a name and a checkpoint of its own"
        raise _formless(f"there are {len(outputs)} outputs, and {MOST} is the most", remedy)
    names = [output.name for output in outputs]
    for output in outputs:
        if problem := unusable(output.name):
            raise _formless(problem, f'give a name of letters and digits: name="{named_after(output.name)}"')
        if [name.lower() for name in names].count(output.name.lower()) > 1:
            other = f'Output(sink, name="{output.name}_2")'
            remedy = (
                f'give one of them another: {other}, in a Route {{"{output.name}": {other}}}; or one output both sinks'
            )
            raise _formless(f'two outputs are called "{output.name}"', remedy)
        if not output.sinks:
            raise _formless(f'output "{output.name}" has no sink', f'give it one: Output(sink, name="{output.name}")')


def unusable(name: object) -> str:
    """Return why a name is unusable for outputs, or empty if it is usable."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} names no output"
    return f'"{name}" is what onceonly calls an output of its own' if name.lower() in _RESERVED else ""


def named_after(value: object) -> str:
    """Return a usable output name close to an unusable one."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(value)).strip("_")[:40]
    name = name if name[:1].isalpha() else f"of_{name or 'rows'}"
    return f"{name}_rows" if unusable(name) else name


# ---- Route rows of one stream into tables by a column: ``Route(...)``.


Unknown = Literal["bad", "ignore"]
"""What a row is whose value no table was named for."""


@checks_arguments
@dataclass(frozen=True, slots=True)
class Route:
    """Route each row to a sink by one of its values. Each sink becomes an :class:`onceonly.Output`.

    You name the sinks beforehand, so an unexpected value makes no new table. The content of each is counted.

    Args:
        by: a text of each row, in Spark SQL over the columns that it has after ``transform=``: ``"kind"``,
            ``"payload.source.table"``.
        to: the sink by value, or an ``Output``, for columns and a name of its own, and for another condition.
        unknown: treatment of a row whose value is null or not in ``to``. ``"bad"``: it goes to the quarantine of
            ``quality=``, and without one stops the query (E522). ``"ignore"``: it is counted, and in no table.

    Raises:
        ConfigurationError: E120, it leads nowhere.

    Example:
        ``exactly_once(Route("kind", {"order": pg.table("orders"), "refund": pg.table("refunds")}))``
    """

    by: str
    to: Mapping[str, Sink | Output]
    unknown: Unknown = "bad"

    def __post_init__(self) -> None:
        """Refuse a route that leads nowhere."""
        _check(self)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """An output for each sink, of the rows with one of its values."""
        return tuple(self._output(sink, values) for sink, values in _values_by_sink(self.to))

    def _output(self, sink: Sink | Output, values: Sequence[str]) -> Output:
        where = _among(self.by, values)
        if not isinstance(sink, Output):
            return Output(sink, name=values[0], where=where)
        if sink.where is None:
            return Output(*sink.sinks, name=sink.name, where=where, select=sink.select, checks=sink.checks)
        if not isinstance(sink.where, str):
            problem = f'the condition of output "{sink.name}" in a Route is a Column'
            raise _formless(problem, 'say it in SQL: where="amount > 1000"')
        both = f"{where} AND ({sink.where})"
        return Output(*sink.sinks, name=sink.name, where=both, select=sink.select, checks=sink.checks)

    @property
    def expected(self) -> str:
        """Condition that a row has a sink, or empty if none is required."""
        return _among(self.by, tuple(self.to)) if self.unknown == "bad" else ""


def _check(route: Route) -> None:
    if not isinstance(route.by, str) or not route.by.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _formless(f"Route(by={route.by!r}) names no column", 'name one, or say it in SQL: Route("kind", {...})')
    if not isinstance(route.to, Mapping) or not route.to:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _formless(f"Route(to={route.to!r}) names no sink", 'name them by value: Route("kind", {"order": sink})')
    if route.unknown not in get_args(Unknown):
        raise _formless(f"Route(unknown={route.unknown!r}) is not understood", 'give unknown="bad" or unknown="ignore"')
    for value, sink in route.to.items():
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            by = route.by if route.by.lower().startswith("string(") else f"string({route.by})"
            raise _formless(f"Route(to=) has the value {value!r}", f"give texts: {_written(by, value)}", _NO_NAME)
        if not isinstance(sink, Sink | Output):  # pyright: ignore[reportUnnecessaryIsInstance]
            text = f'Route(to=) has {sink!r} for "{value}"'
            raise _formless(f"{text}, which is no sink", f'give a sink: Route(..., {{"{value}": pg.table("{value}")}})')
    for sink, (value, *_) in _values_by_sink(route.to):
        if not isinstance(sink, Output) and (problem := unusable(value)):
            remedy = f"give the output a name beside its value: {_written(route.by, value)}"
            raise _formless(problem, remedy, _NO_NAME)


def _values_by_sink(to: Mapping[str, Sink | Output]) -> list[tuple[Sink | Output, list[str]]]:
    values: dict[int, list[str]] = {}
    for value, sink in to.items():
        values.setdefault(id(sink), []).append(value)
    sinks = {id(sink): sink for sink in to.values()}
    return [(sinks[key], sink_values) for key, sink_values in values.items()]


def _written(by: str, value: object) -> str:
    """Return a Route with an output's name in place of an unusable value."""
    text = str(value).lower() if isinstance(value, bool) else str(value)  # as string() writes it
    key, name = (json.dumps(part, ensure_ascii=False) for part in (by, text))
    return f'Route({key}, {{{name}: Output(sink, name="{named_after(value)}")}})'


def expecting(quality: Quality | None, routes: Sequence[Route]) -> Quality | None:
    """Add the expectation that there is a sink for each row."""
    expectations: dict[str, str] = {}
    for number, route in enumerate(routes, start=1):
        if route.expected:
            name = f"a known {route.by}" if _SHORT.fullmatch(route.by) else "a known value"
            expectations[f"{name} ({number})" if name in expectations else name] = route.expected
    if not expectations:
        return quality
    return replace(quality, expect={**quality.expect, **expectations}) if quality else Quality(expect=expectations)


_SHORT = re.compile(r"[\w.]{1,48}")


def _among(by: str, values: Sequence[str]) -> str:
    listed = ", ".join(map(_literal, values))
    return f"({by}) = {listed}" if len(values) == 1 else f"({by}) IN ({listed})"


def _literal(text: str) -> str:
    """Quote a text in Spark SQL. There the meaning of a backslash depends on a setting of the session."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)" if {"'", "\\"} & {*text} else f"'{text}'"


_NO_NAME = "an output of a Route is called as its value, and this one is no name"


def _formless(problem: str, remedy: str, cause: str | None = None) -> Exception:
    return refuse("E120", problem=problem, because=cause, next=remedy)
