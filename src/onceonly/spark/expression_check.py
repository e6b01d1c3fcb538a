"""Refuse expressions over more than one row (E121), with their cause."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, nearest, refuse
from onceonly.spark import detect
from onceonly.spark.digest import behind_bracket
from onceonly_checkpoints.model import shorten_list

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OF_THE_TEXT = ("UNRESOLVED_", "PARSE_", "DATATYPE_MISMATCH", "INVALID_EXTRACT", "FIELD_NOT_FOUND", "AMBIGUOUS_")
"""How Spark's conditions begin that are about what is written in an expression, and not about what it looks at."""


@contextmanager
def quietly() -> Generator[None]:
    """Silence Spark's own log of a refused expression: a hundred lines of JSON around our five."""
    try:
        from pyspark.logger import PySparkLogger  # from 4.0 on; another class under this name would break its calls
    except ImportError:
        yield
        return
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    try:
        for spark_logger in loggers:
            spark_logger.disabled = True
        yield
    finally:
        for spark_logger, disabled in zip(loggers, before, strict=True):
            spark_logger.disabled = disabled


def refusal(what: str, query: str, reason: str, cause: str, remedy: str, *, of: str | None = None) -> OnceOnlyError:
    """Make the error for an expression. ``what`` is its place in the call, ``Output "alerts"``.

    ``of``: what it is computed from, by default each row of a batch alone.
    """
    return refuse("E121", what=what, query=query, of=of, reason=reason, cause=cause, next=remedy)


def unread(what: str, query: str, rows: DataFrame, error: Exception, of: str | None = None) -> OnceOnlyError:
    """Make the error for an expression that Spark refuses over these rows, for any of Spark's error classes."""
    condition, reason, names = condition_of(error), first_line(error), shorten_list(rows.columns)
    if condition.startswith("UNRESOLVED_COLUMN"):
        remedy = f"name one that they have: {names}{nearest(_named(error), rows.columns)}"
        return refusal(what, query, reason, "the rows have no column of that name", remedy, of=of)
    if isinstance(error, TypeError) or not condition or condition.startswith(_OF_THE_TEXT):
        remedy = f"correct it, in Spark SQL over the columns of the rows: {names}"
        return refusal(what, query, reason, "it is no expression over the columns of the rows", remedy, of=of)
    return not_row_by_row(what, query, reason, of)


def check_route(query: str, rows: DataFrame, by: str) -> None:
    """Refuse a route by an unreadable expression or by no text (E121): Spark casts "1" and "01" to one number."""
    what = f'Route("{by}")'
    try:
        kind = rows.selectExpr(by).schema.fields[0].dataType.simpleString()
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise unread(what, query, rows, error) from error
    if not kind.startswith("string"):  # one with a collation says so behind it
        reason, cause = f"{by} is of type {kind}", "values of a route are texts, and Spark would cast them"
        raise refusal(what, query, reason, cause, f'give string({by}): Route("string({by})", ...)')


def not_row_by_row(what: str, query: str, reason: str, of: str | None = None) -> OnceOnlyError:
    """Make the error for an expression that reads more rows than it may, or gives another value in another run."""
    cause = f"{'an aggregate, ' if of is None else ''}a window, a subquery, or a random or current value"
    remedy = (
        "compute it in transform=, exactly_once(..., transform=lambda df: df.withColumn(...)), and use the column there"
    )
    return refusal(what, query, reason, cause, remedy, of=of)


def first_line(error: Exception) -> str:
    """Return the first line of an error, without Spark's plan below."""
    return str(error).strip().splitlines()[0]


def text_of(expression: str | Column) -> str:
    """Return an expression as text that is the same in each process, without object addresses.

    Arguments of a Python function are left out. The classic Column prints them as Spark's own objects, with the lines
    of the program that made them.
    """
    if isinstance(expression, str):
        return expression
    shown = re.sub(r"^Column<'(.*)'>$", r"\1", str(expression), flags=re.DOTALL)
    while (at := shown.find(_NODE)) >= 0:
        shown = f"{shown[:at]}...{shown[behind_bracket(shown, at + len(_NODE)) :]}"
    return shown


_NODE = "columnnodeexpression("


def condition_of(error: Exception) -> str:
    """Return the stable name of Spark's own error, or empty for others."""
    named = getattr(error, detect.line().condition, None)
    return str(named() or "") if named else ""


def _named(error: Exception) -> list[str]:
    parameters: Any = getattr(error, "getMessageParameters", dict[str, str])() or {}
    return [str(parameters.get("objectName", "")).replace("`", "")]
