"""Start a query in one call, on classic sessions and Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.api.wrapper import ExactlyOnce
from onceonly.errors import read_refusal
from onceonly.errors.options import checks_arguments, misused
from onceonly.machine.admission import check_output
from onceonly.spark.detect import engine_for
from onceonly.spark.engine import output_of, stream_of

if TYPE_CHECKING:
    from onceonly.spark.engine import DataStreamWriter, StreamingQuery

_EXAMPLE = 'onceonly.start(df.writeStream, exactly_once(DeltaSink("/lake"), name="orders", checkpoint="/cp/orders"))'


@checks_arguments
def start(writer: DataStreamWriter, query: ExactlyOnce) -> StreamingQuery:
    """Start a query on a classic session or on Spark Connect. It writes every row to each sink exactly once.

    ``start(df.writeStream, exactly_once(DeltaSink("/lake/orders"), name="orders", checkpoint="/cp/orders"))``

    ``start`` checks the plan first, and refuses a query that could never write. ``writer`` is ``df.writeStream`` with
    its trigger and output mode. ``query`` needs a name, which query and pipeline get, and a checkpoint: the query's
    ``checkpointLocation`` as Spark reaches it, on Connect as the server does.

    Raises:
        ConfigurationError: E109, E116, E126, E127, E129 or E131 its plan. E137 its output mode. E110 no name, no
            checkpoint, or an argument that cannot be sent to the server of Spark Connect. E151 a part that cannot.
    """
    name, checkpoint = _named(query)
    check_output(name, output_of(writer), query.arguments.adding)
    stream = stream_of(writer)
    if stream is not None:
        plan = engine_for(stream).foreseen(stream)
        query.arguments.check_plan(plan, name, plan.nondeterministic)
    writer = writer.queryName(name).option("checkpointLocation", checkpoint)
    try:
        writer = writer.foreachBatch(query)
    except Exception as error:
        # PySpark puts an error of its own around what a callback says when it is pickled.
        if refusal := read_refusal.told_by(error):
            raise refusal from None
        raise
    return writer.start()


def _named(query: ExactlyOnce) -> tuple[str, str]:
    if not isinstance(query, ExactlyOnce):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise misused(
            f"start() was given {type(query).__name__!r} as its query.",
            "the sinks were given to start(), and exactly_once() takes them",
            _EXAMPLE,
        )
    name, checkpoint = query.arguments.name, query.arguments.checkpoint
    if name and checkpoint:
        return name, checkpoint
    missing = "checkpoint" if name else "name"
    raise misused(
        f"start() was given exactly_once() without {missing}=.",
        "start() gives name and checkpoint to the Spark query",
        _EXAMPLE,
    )
