"""Check columns and targets before epoch 1.

Every way in runs the same list of checks. None of them runs for a later epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.errors import caution
from onceonly.machine import admission
from onceonly.machine.admission import Pair, Target
from onceonly.machine.facts import Happening, Offer
from onceonly.machine.source_order import portable
from onceonly.protocol import DetectsChanges, Inspectable, Sink, StreamSource
from onceonly.protocol.values import Names
from onceonly_checkpoints.ledger import EventKind
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


def check_columns(arguments: Arguments, query: str, columns: Sequence[str], *, folds: bool = False) -> None:
    """Refuse rows whose columns Spark or one of their sinks cannot distinguish.

    ``columns`` are those of the rows without outputs. ``folds``: the session ignores case in names. Raises E138.
    """
    # Rows are hashed, staged and divided by name, whatever the sinks could tell apart.
    admission.check_names(query, ", ".join(arguments.ids), Names(folds=folds), columns)
    otherwise = arguments.division.reshaped if arguments.division else ()
    windowed = arguments.windows
    results = windowed.columns if windowed else columns
    for sink in arguments.of_rows:
        if sink not in otherwise:
            check_names(query, sink, results)
    if windowed and windowed.late:
        check_names(query, windowed.late, columns)


def check_outputs(arguments: Arguments, query: str, outputs: Sequence[ResolvedOutput]) -> None:
    """Refuse outputs whose columns one of their sinks cannot distinguish. Raises E138."""
    sinks = {sink.id: sink for sink in arguments.of_rows}
    for output in outputs:
        for sink in output.spec.sinks:
            if sink in sinks:
                check_names(query, sinks[sink], output.columns.names)


def check_names(query: str, sink: Sink, columns: Sequence[str]) -> None:
    """Refuse columns that a sink cannot distinguish. Raises E138."""
    admission.check_names(query, sink.id, sink.capabilities.names, columns)


# ---- Targets: by what they are once they were opened.


@dataclass
class Admission:
    """Check the targets of a call once its sinks are open. The pairs ``shared`` share one target on purpose."""

    arguments: Arguments
    query: str
    shared: tuple[Pair, ...] = field(default=())

    def __call__(self, offer: Offer | None) -> None:
        """Refuse two sinks on one target, and a target that a source of the batch reads. Raises E139, E147."""
        sinks, sources = self.arguments.sinks, offer.sources if offer else ()
        log.info("pipeline %s: opened %s", self.query, ", ".join(sink.address for sink in sinks))
        reads = [source for source in sources if portable(source) or source.kind is SourceKind.FILES]
        if len(sinks) == 1 and not reads:
            return
        targets = [self._target(sink, offer) for sink in sinks]
        self.shared = admission.check_apart(self.query, targets)
        for sink, target in zip(sinks, targets, strict=True):
            admission.check_loop(self.query, target, sources)
            if isinstance(sink, StreamSource):
                sink.keep_off(sources)

    def _target(self, sink: Sink, offer: Offer | None) -> Target:
        records, sources = sink.capabilities.records, offer.sources if offer else ()
        can_feed = any(portable(source) and records == (source.kind is SourceKind.KAFKA) for source in sources)
        feeds = sink.source_identity() if can_feed and isinstance(sink, StreamSource) else None
        location, named = (sink.place(), sink.named) if isinstance(sink, Inspectable) else ("", True)
        if not location and isinstance(sink, DetectsChanges):
            location = sink.identity_now("") or ""
        return Target(sink.id, sink.address, location, self.arguments.contents.get(sink.id, ""), named, feeds)


# ---- Text columns that order rows. Texts are compared character by character.

_TEXTS = ("string", "large_string", "char", "varchar")


def warn_text_order(
    sinks: Sequence[Sink],
    columns: Sequence[tuple[str, str]],
    outputs: Sequence[ResolvedOutput] = (),
    windows: Iterable[tuple[str, str, str]] = (),
) -> Iterator[Happening]:
    """The warnings of a run. ``columns`` has names and types of the rows. Some sinks get ``outputs`` in their place.

    ``windows`` has the columns that order rows in windows: the argument in words, the column, its type.
    """
    for what, column, kind in (*_of_sinks(sinks, dict(columns), outputs), *windows):
        if kind.startswith(_TEXTS):
            yield Happening(EventKind.WARNED, caution("W715", what=what, column=column))


def _of_sinks(
    sinks: Sequence[Sink], columns: Mapping[str, str], outputs: Sequence[ResolvedOutput]
) -> Iterator[tuple[str, str, str]]:
    own = {
        sink: {column.name: str(column.type) for column in output.columns}
        for output in outputs
        for sink in output.spec.sinks
    }
    for sink in sinks:
        sequence = sink.capabilities.changes.sequence or ""
        kinds = {name.lower(): kind for name, kind in own.get(sink.id, columns).items()}
        yield f"{sink.id}, sequence=", sequence, kinds.get(sequence.lower(), "")
