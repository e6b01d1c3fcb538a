"""Collect the rules that sinks impose on rows, for the quarantine.

The sinks are asked once a run, and only if the call has a quarantine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.api.arguments import Arguments
from onceonly.errors import RowsRefused
from onceonly.quality.spark_row_rules import Demanded
from onceonly.spark import frames

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame


def asked(given: Arguments, pipeline: str, rows: DataFrame) -> tuple[Demanded, ...]:
    """Rules that each sink of good rows imposes on its rows. Empty without a quarantine.

    ``rows`` are a batch as it is written, without outputs.

    Raises:
        OnceOnlyError: a sink's server does not answer, or the sink cannot be used.
    """
    taken = {sink.id: one.wanted for one in given.outputs for sink in one.sinks}
    found: list[Demanded] = []
    for sink in given.quality.demanding(given.of_rows) if given.quality else ():
        output = taken.get(sink.id)
        columns = frames.arrow_schema(rows if output is None else output.of(rows))
        sink.open(pipeline)
        try:
            found.append(Demanded(sink.id, output, tuple(sink.demands(columns))))
        except RowsRefused:
            # Columns that it cannot take are refused once it is known whether the batch is one to write.
            continue
    return tuple(found)
