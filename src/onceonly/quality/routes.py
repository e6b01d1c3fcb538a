"""Route rows of one stream into tables by a column: ``Route(...)``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.protocol import Sink
from onceonly.quality.output import Output, named_after, unusable
from onceonly.quality.quality import Quality

Unknown = Literal["bad", "ignore"]
"""What a row is whose value no table was named for."""


@checks_arguments
@dataclass(frozen=True, slots=True)
class Route:
    """Route each row to a sink by one of its values, through an :class:`onceonly.Output` of that name.

    Kafka Connect routes by a regular expression over topics, dlt by a function that names a table. Here the tables are
    named beforehand. The content of each is counted, and an unexpected value makes no new table.

    Args:
        by: a text of each row, in Spark SQL over the columns that it has after ``before=``: ``"kind"``,
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
        return tuple(self._output(sink, values) for sink, values in _taken(self.to))

    def _output(self, sink: Sink | Output, values: Sequence[str]) -> Output:
        where = _among(self.by, values)
        if not isinstance(sink, Output):
            return Output(sink, name=values[0], where=where)
        if sink.where is None:
            return Output(*sink.sinks, name=sink.name, where=where, select=sink.select)
        if not isinstance(sink.where, str):
            problem = f'the condition of output "{sink.name}" in a Route is a Column'
            raise _formless(problem, 'say it in SQL: where="amount > 1000"')
        return Output(*sink.sinks, name=sink.name, where=f"{where} AND ({sink.where})", select=sink.select)

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
        raise _formless(f"Route(unknown={route.unknown!r}) is not understood", 'say unknown="bad" or unknown="ignore"')
    for value, sink in route.to.items():
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            by = route.by if route.by.lower().startswith("string(") else f"string({route.by})"
            raise _formless(f"Route(to=) has the value {value!r}", f"give texts: {_written(by, value)}", _NO_NAME)
        if not isinstance(sink, Sink | Output):  # pyright: ignore[reportUnnecessaryIsInstance]
            said = f'Route(to=) has {sink!r} for "{value}"'
            raise _formless(f"{said}, which is no sink", f'give a sink: Route(..., {{"{value}": pg.table("{value}")}})')
    for sink, (value, *_) in _taken(route.to):
        if not isinstance(sink, Output) and (problem := unusable(value)):
            way = f"give the output a name beside its value: {_written(route.by, value)}"
            raise _formless(problem, way, _NO_NAME)


def _taken(to: Mapping[str, Sink | Output]) -> list[tuple[Sink | Output, list[str]]]:
    """Group the values by sink."""
    values: dict[int, list[str]] = {}
    for value, sink in to.items():
        values.setdefault(id(sink), []).append(value)
    sinks = {id(sink): sink for sink in to.values()}
    return [(sinks[one], taken) for one, taken in values.items()]


def _written(by: str, value: object) -> str:
    """Return a Route with an output's name in place of an unusable value."""
    text = str(value).lower() if isinstance(value, bool) else str(value)  # as string() writes it
    key, name = (json.dumps(one, ensure_ascii=False) for one in (by, text))
    return f'Route({key}, {{{name}: Output(sink, name="{named_after(value)}")}})'


def expecting(quality: Quality | None, routes: Sequence[Route]) -> Quality | None:
    """Add the expectation that there is a sink for each row."""
    known: dict[str, str] = {}
    for number, route in enumerate(routes, start=1):
        if route.expected:
            name = f"a known {route.by}" if _SHORT.fullmatch(route.by) else "a known value"
            known[f"{name} ({number})" if name in known else name] = route.expected
    if not known:
        return quality
    return replace(quality, expect={**quality.expect, **known}) if quality else Quality(expect=known)


_SHORT = re.compile(r"[\w.]{1,48}")


def _among(by: str, values: Sequence[str]) -> str:
    listed = ", ".join(map(_literal, values))
    return f"({by}) = {listed}" if len(values) == 1 else f"({by}) IN ({listed})"


def _literal(text: str) -> str:
    """Quote a text in Spark SQL. There the meaning of a backslash depends on a setting of the session."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)" if {"'", "\\"} & {*text} else f"'{text}'"


_NO_NAME = "an output of a Route is called as its value, and this one is no name"


def _formless(problem: str, way: str, cause: str | None = None) -> Exception:
    return refuse("E120", problem=problem, because=cause, next=way)
