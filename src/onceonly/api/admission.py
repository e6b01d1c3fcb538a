"""The one list of checks before epoch 1: every door asks it, and nothing of a later epoch does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onceonly.machine import admission
from onceonly.panes.spec import SENT
from onceonly.protocol import Names

if TYPE_CHECKING:
    from onceonly.api.arguments import Arguments
    from onceonly.protocol import DataFrame, Sink
    from onceonly.spark.outputs import ResolvedOutput


def folds(rows: DataFrame) -> bool:
    """Whether names that differ in case alone are one name to the session of some rows."""
    return str(rows.sparkSession.conf.get("spark.sql.caseSensitive")) != "true"


def check_columns(given: Arguments, query: str, columns: Sequence[str], *, folds: bool = False) -> None:
    """Refuse rows whose columns Spark or a sink of theirs cannot tell apart.

    Args:
        given: what the user chose.
        query: name of the pipeline.
        columns: of the rows, as they are written without outputs.
        folds: whether names that differ in case alone are one name to the session that computes them.

    Raises:
        ConfigurationError: E138.
    """
    # Rows are hashed, staged and divided by name, whatever the sinks could tell apart.
    admission.check_names(query, ", ".join(given.ids), Names(folds=folds), columns)
    otherwise = [sink for one in given.outputs if one.select for sink in one.sinks]
    otherwise += [given.quality.quarantine] if given.quality and given.quality.quarantine else []
    panes = given.panes
    results = (*panes.panes.keys, *panes.panes.values, *SENT) if panes else columns
    for sink in given.of_rows:
        if sink not in otherwise:
            check_names(query, sink, results)
    if panes and panes.late:
        check_names(query, panes.late, columns)


def check_outputs(given: Arguments, query: str, outputs: Sequence[ResolvedOutput]) -> None:
    """Refuse outputs whose columns a sink of theirs cannot tell apart.

    Raises:
        ConfigurationError: E138.
    """
    sinks = {sink.id: sink for sink in given.of_rows}
    for one in outputs:
        for sink in one.wanted.sinks:
            if sink in sinks:
                check_names(query, sinks[sink], one.columns.names)


def check_names(query: str, sink: Sink, columns: Sequence[str]) -> None:
    """Refuse columns that a sink cannot tell apart.

    Raises:
        ConfigurationError: E138.
    """
    admission.check_names(query, sink.id, sink.capabilities.names, columns)
