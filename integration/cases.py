"""A table of cases put through one query, each by a wrapper of its own: a query costs more than a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from integration.streams import FileStream
from pyspark.sql import DataFrame

Write = Callable[[DataFrame, int], None]


class Refused(RuntimeError):
    """Some wrapper refused a batch, so that the query stops as it would with that wrapper alone."""


def each(stream: FileStream, wrapped: Mapping[str, Write], **options: Any) -> dict[str, str]:
    """Run a query that hands every batch to all of them; the query stops with the first batch that one refuses.

    Args:
        stream: the query.
        wrapped: by case; each needs a ``name=`` of its own.
        options: of ``stream.run``.

    Returns:
        What each case was refused with, ``""`` for nothing.
    """
    said = dict.fromkeys(wrapped, "")

    def write(df: DataFrame, batch_id: int) -> None:
        for case, one in wrapped.items():
            try:
                one(df, batch_id)
            except Exception as error:  # whatever class it is of: the text is what users get
                said[case] = f"{type(error).__name__}: {error}"
        if any(said.values()):
            raise Refused

    query = stream.start(write, **options)
    try:
        query.awaitTermination()
    except Exception:
        if not any(said.values()):
            raise
    return said
