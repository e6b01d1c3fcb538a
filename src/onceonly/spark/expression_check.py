"""Refuse an expression that is not told from one row (E121), with the cause and the way out of this one."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, nearest, refuse
from onceonly.spark import detect

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OF_THE_TEXT = ("UNRESOLVED_", "PARSE_", "DATATYPE_MISMATCH", "INVALID_EXTRACT", "FIELD_NOT_FOUND", "AMBIGUOUS_")
"""How Spark's conditions begin that are about what is written in an expression, and not about what it looks at."""


@contextmanager
def quietly() -> Generator[None]:
    """Without what Spark logs by itself of an expression that it refuses: a hundred lines of JSON around our five."""
    try:
        from pyspark.logger import PySparkLogger  # from 4.0 on; another class under this name would break its calls
    except ImportError:
        yield
        return
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    try:
        for one in loggers:
            one.disabled = True
        yield
    finally:
        for one, was in zip(loggers, before, strict=True):
            one.disabled = was


def refusal(what: str, query: str, reason: str, cause: str, way: str) -> OnceOnlyError:
    """The error for an expression.

    Args:
        what: what it is in the call, ``Output "alerts"``.
        query: name of the pipeline.
        reason: what is wrong with it.
        cause: the most likely cause.
        way: what to write in its place.
    """
    return refuse("E121", what=what, query=query, reason=reason, cause=cause, next=way)


def unread(what: str, query: str, rows: DataFrame, error: Exception) -> OnceOnlyError:
    """The error for an expression that Spark refuses over these rows, whatever class Spark has for it."""
    condition, reason, names = _condition(error), first_line(error), ", ".join(rows.columns)
    if condition.startswith("UNRESOLVED_COLUMN"):
        way = f"name one that they have: {names}{nearest(_named(error), rows.columns)}"
        return refusal(what, query, reason, "the rows have no column of that name", way)
    if isinstance(error, TypeError) or not condition or condition.startswith(_OF_THE_TEXT):
        way = f"correct it, in Spark SQL over the columns of the rows: {names}"
        return refusal(what, query, reason, "it is no expression over the columns of the rows", way)
    return beyond(what, query, reason)


def check_route(query: str, rows: DataFrame, by: str) -> None:
    """Refuse to route rows by what Spark does not read, or by what is no text: it casts "1" and "01" to one number.

    Args:
        query: name of the pipeline.
        rows: a batch, or the stream.
        by: what rows are routed by, in SQL.

    Raises:
        ConfigurationError: E121.
    """
    what = f'Route("{by}")'
    try:
        kind = rows.selectExpr(by).schema.fields[0].dataType.simpleString()
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise unread(what, query, rows, error) from error
    if not kind.startswith("string"):  # one with a collation says so behind it
        reason, cause = f"{by} is of type {kind}", "values of a route are texts, and Spark would cast them"
        raise refusal(what, query, reason, cause, f'give string({by}): Route("string({by})", ...)')


def beyond(what: str, query: str, reason: str) -> OnceOnlyError:
    """The error for an expression that looks at more than one row, or gives another value in another run."""
    cause = "an aggregate, a window, a subquery, or a random or current value"
    way = "compute it in before=, exactly_once(..., before=lambda df: df.withColumn(...)), and use the column there"
    return refusal(what, query, reason, cause, way)


def first_line(error: Exception) -> str:
    """What an error says, without the plan that Spark puts below."""
    return str(error).strip().splitlines()[0]


def text_of(said: str | Column) -> str:
    """An expression as text, the same in each process: Spark writes addresses of objects into that of a Column.

    What a Python function is given stands in the text of the classic Column as Spark's own objects, with the lines of
    the program that made them. It is left out.
    """
    if isinstance(said, str):
        return said
    shown = re.sub(r"^Column<'(.*)'>$", r"\1", str(said), flags=re.DOTALL)
    while (at := shown.find(_NODE)) >= 0:
        shown = f"{shown[:at]}...{shown[_closed(shown, at + len(_NODE)) :]}"
    return shown


_NODE = "columnnodeexpression("


def _closed(text: str, at: int) -> int:
    """Behind the bracket that closes the one before ``at``; the end, where none does."""
    depth = 1
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return len(text)


def _condition(error: Exception) -> str:
    """The stable name that Spark gives an error of its own; empty for others."""
    named = getattr(error, detect.line().condition, None)
    return str(named() or "") if named else ""


def _named(error: Exception) -> list[str]:
    """The column that Spark could not find."""
    told: Any = getattr(error, "getMessageParameters", dict[str, str])() or {}
    return [str(told.get("objectName", "")).replace("`", "")]
