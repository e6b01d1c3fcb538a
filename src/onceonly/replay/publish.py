"""``replay.publish``: replace a pipeline's rows by a rerun's."""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from onceonly.protocol import Sink
from onceonly.replay import publish_swap, records
from onceonly.replay.publish_swap import Publication
from onceonly.replay.read_back import all_of
from onceonly_checkpoints.epoch import Epoch

if TYPE_CHECKING:
    from onceonly.protocol import SparkSession


def publish(name: str, *, source: Sink, over: str, sink: Sink, ledger: records.Place, spark: SparkSession) -> Epoch:
    """Swap all rows of a pipeline for those of a rerun, in one epoch of the pipeline.

    Readers see all old rows or all new ones. Every driver of the pipeline is fenced out. Its next start continues at
    its position in the source. After a crash, the same call completes the swap, or reports that it is done.

    ``name`` and ``source`` are the rerun and its target, ``over`` and ``sink`` the pipeline and its sink. Neither sink
    is open yet. The ledger has both pipelines.

    Raises:
        IdentityError: E240 the pipeline has gone on since the rerun. E241 the rerun is published. E242 rows of either
            cannot be swapped.
        OnceOnlyError: E301 the answer was lost. E401 another driver opened the pipeline. Also errors of the sinks.
    """
    with records.opened(ledger) as known, _opened(source, name) as rerun, closing(copy.copy(sink)) as own:
        of = Publication(over, own, name, rerun, known)
        return carry_out(of, publish_swap.plan(of), spark)


def carry_out(of: Publication, planned: Epoch, spark: SparkSession) -> Epoch:
    """Publish as planned.

    Raises:
        OnceOnlyError: as :func:`publish`.
    """
    batch = all_of(of.source, planned, spark)
    if batch is None:
        raise publish_swap.unfit(of, f"{of.source.id} gives back other columns or types than were written")
    return publish_swap.publish(of, planned, batch)


@contextmanager
def _opened(sink: Sink, pipeline: str) -> Generator[Sink]:
    with closing(copy.copy(sink)) as made:
        made.open(pipeline)
        yield made
