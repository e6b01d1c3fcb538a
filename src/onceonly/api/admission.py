"""Check columns and targets before epoch 1.

Every way in runs the same list of checks. None of them runs for a later epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.machine import admission
from onceonly.machine.admission import Pair, Target
from onceonly.machine.facts import Offer
from onceonly.machine.source_order import portable
from onceonly.protocol import Feeds, Identified, Names, Placed, Sink, Spreads
from onceonly.windows.rules.spec import SENT
from onceonly_checkpoints.model import SourceKind

if TYPE_CHECKING:
    from onceonly.api.arguments import Arguments
    from onceonly.protocol import DataFrame
    from onceonly.quality.spark_outputs import ResolvedOutput

log = logging.getLogger(__name__)


# ---- Columns: as soon as they are known.


def folds(rows: DataFrame) -> bool:
    """Whether the session of ``rows`` treats names that differ only in case as one name."""
    return str(rows.sparkSession.conf.get("spark.sql.caseSensitive")) != "true"


def check_columns(given: Arguments, query: str, columns: Sequence[str], *, folds: bool = False) -> None:
    """Refuse rows whose columns Spark or one of their sinks cannot distinguish.

    ``columns`` are those of the rows without outputs. ``folds``: the session ignores case in names.

    Raises:
        ConfigurationError: E138.
    """
    # Rows are hashed, staged and divided by name, whatever the sinks could tell apart.
    admission.check_names(query, ", ".join(given.ids), Names(folds=folds), columns)
    otherwise = [sink for output in given.outputs if output.select for sink in output.sinks]
    otherwise += [given.quality.quarantine] if given.quality and given.quality.quarantine else []
    panes = given.panes
    results = (*panes.panes.keys, *panes.panes.values, *SENT) if panes else columns
    for sink in given.of_rows:
        if sink not in otherwise:
            check_names(query, sink, results)
    if panes and panes.late:
        check_names(query, panes.late, columns)


def check_outputs(given: Arguments, query: str, outputs: Sequence[ResolvedOutput]) -> None:
    """Refuse outputs whose columns one of their sinks cannot distinguish.

    Raises:
        ConfigurationError: E138.
    """
    sinks = {sink.id: sink for sink in given.of_rows}
    for output in outputs:
        for sink in output.wanted.sinks:
            if sink in sinks:
                check_names(query, sinks[sink], output.columns.names)


def check_names(query: str, sink: Sink, columns: Sequence[str]) -> None:
    """Refuse columns that a sink cannot distinguish.

    Raises:
        ConfigurationError: E138.
    """
    admission.check_names(query, sink.id, sink.capabilities.names, columns)


# ---- Targets: by what they are once they were opened.


@dataclass
class Admission:
    """Check the targets of a call once its sinks are open. The pairs ``shared`` share one target on purpose."""

    given: Arguments
    query: str
    shared: tuple[Pair, ...] = field(default=())

    def __call__(self, offer: Offer | None) -> None:
        """Refuse two sinks on one target, and a target that a source of the batch reads.

        Raises:
            ConfigurationError: E139, E147.
        """
        sinks, sources = self.given.sinks, offer.sources if offer else ()
        log.info("pipeline %s: opened %s", self.query, ", ".join(sink.address for sink in sinks))
        reads = [source for source in sources if portable(source) or source.kind is SourceKind.FILES]
        if len(sinks) == 1 and not reads:
            return
        targets = [self._target(sink, offer) for sink in sinks]
        self.shared = admission.check_apart(self.query, targets)
        for sink, target in zip(sinks, targets, strict=True):
            admission.check_loop(self.query, target, sources)
            if isinstance(sink, Spreads):
                sink.keep_off(sources)

    def _target(self, sink: Sink, offer: Offer | None) -> Target:
        records, sources = sink.capabilities.records, offer.sources if offer else ()
        asked = any(portable(source) and records == (source.kind is SourceKind.KAFKA) for source in sources)
        feeds = sink.feeds() if asked and isinstance(sink, Feeds) else None
        place, named = (sink.place(), sink.named) if isinstance(sink, Placed) else ("", True)
        if not place and isinstance(sink, Identified):
            place = sink.identity_beside("")
        return Target(sink.id, sink.address, place, self.given.kept.get(sink.id, ""), named, feeds)
