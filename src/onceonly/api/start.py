"""Start a query in one call, on classic sessions and Spark Connect."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.api.arguments import LedgerPlace, Staging, refuse_plan
from onceonly.api.wrapper import exactly_once
from onceonly.errors import read_refusal
from onceonly.errors.arguments import checks_arguments
from onceonly.event_time import event_time_argument
from onceonly.event_time.event_time_argument import NoteTime
from onceonly.machine.admission import check_output
from onceonly.protocol import Sink
from onceonly.quality.dedupe import Dedupe
from onceonly.quality.output import Output
from onceonly.quality.quality import Quality
from onceonly.quality.routes import Route
from onceonly.spark.detect import engine_for
from onceonly.spark.writers import output_of, stream_of
from onceonly.windows.rules.spec import Panes

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame
    from onceonly.spark.writers import DataStreamWriter, StreamingQuery


@checks_arguments
def start(
    writer: DataStreamWriter,
    *sinks: Sink | Output | Route,
    name: str,
    checkpoint: str | os.PathLike[str],
    ledger: LedgerPlace = None,
    before: Callable[[DataFrame], DataFrame] | None = None,
    adopt: str | Mapping[str, Any] | None = None,
    overlap: str = "stop",
    staging: str | os.PathLike[str] | Staging | None = None,
    lossy_source: str | None = None,
    on_refresh: str = "stop",
    quality: Quality | None = None,
    dedupe: Dedupe | None = None,
    note_time: NoteTime | None = None,
    panes: Panes | None = None,
    version: str | None = None,
) -> StreamingQuery:
    """Start a query that writes every row to each sink exactly once, on a classic session or on Connect.

    ``query = onceonly.start(df.writeStream, DeltaSink("/lake/orders"), name="orders", checkpoint="/cp/orders")``

    ``start`` checks the plan first, and refuses a query that could never write. ``writer`` is ``df.writeStream`` with
    its trigger and output mode. ``name`` names query and pipeline. ``checkpoint`` is the query's ``checkpointLocation``
    as Spark reaches it, on Connect as the server does. All other arguments are those of :func:`onceonly.exactly_once`.
    ``quality``, ``dedupe``, ``note_time`` and ``panes`` need a classic session.

    Raises:
        ConfigurationError: as :func:`onceonly.exactly_once`. E109, E116, E126, E127, E129 or E131 its plan. E137 its
            output mode. E110 or E151 an argument that cannot be sent to the server of Spark Connect.
    """
    wrapped = exactly_once(
        *sinks,
        name=name,
        ledger=ledger,
        before=before,
        adopt=adopt,
        overlap=overlap,
        staging=staging,
        lossy_source=lossy_source,
        on_refresh=on_refresh,
        quality=quality,
        dedupe=dedupe,
        note_time=note_time,
        panes=panes,
        version=version,
        checkpoint=checkpoint,
    )
    check_output(name, output_of(writer), wrapped.adding)
    stream = stream_of(writer)
    if stream is not None:
        plan = engine_for(stream).foreseen(stream)
        refuse_plan(plan, name, lossy_source, plan.nondeterministic, wrapped.one_by_one)
        event_time_argument.check_plan(event_time_argument.check_event_time(note_time), plan, name)
    writer = writer.queryName(name).option("checkpointLocation", os.fspath(checkpoint))
    try:
        writer = writer.foreachBatch(wrapped)
    except Exception as error:
        # PySpark puts an error of its own around what a callback says when it is pickled.
        if told := read_refusal.told_by(error):
            raise told from None
        raise
    return writer.start()
