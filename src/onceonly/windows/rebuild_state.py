"""Rebuild window state in its sink by an epoch of its own.

The epoch writes rows that differ from the state that the newest epoch left, and removes foreign ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from onceonly import faults
from onceonly.faults import Point
from onceonly.protocol import ShowsState, Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.capabilities import OpenWindow
from onceonly.runtime import operator_epoch
from onceonly.runtime.unreadable_markers import naming
from onceonly.windows.result_batch import digest_of, fingerprint
from onceonly.windows.rules.arrow_rows import state_table
from onceonly.windows.rules.state import WindowKey
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import STATE, Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import Adoption, Slice

if TYPE_CHECKING:
    import pyarrow as pa


class ReadableWindowStore(Sink, ShowsState, Protocol):
    """A sink of state whose rows can be read."""


Rows = Mapping[tuple[str, int, int], Mapping[str, Any]]
"""Rows of state by key, start and end of their window."""


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """State of windows that an epoch left.

    ``outputs`` are those of the newest epoch that had any.
    """

    rows: Rows
    digest: Digest
    outputs: tuple[OutputDigest, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between the state in the table and the state that the newest epoch left.

    Rows that are absent or differ are ``missing``. Windows in the table that are not open are ``foreign``.
    """

    missing: tuple[Mapping[str, Any], ...]
    foreign: tuple[WindowKey, ...]

    @property
    def text(self) -> str:
        """For people."""
        return f"{len(self.missing)} windows written, {len(self.foreign)} taken away"


def difference(standing: Iterable[OpenWindow], wanted: Rows, newest: int) -> Difference:
    """Compare rows of state in the table with ``wanted``, the state that the newest epoch left.

    A row with a higher number than that epoch's is wrong in any case.
    """
    right, foreign = set[tuple[str, int, int]](), list[WindowKey]()
    for one in standing:
        row = one.state
        place = row.key, row.start, row.stop
        known = wanted.get(place)
        if known is None:
            foreign.append(WindowKey(*place))
        elif row.epoch <= newest and _says(one) == (known["body"], known["wake_clock"], known["wake_time"]):
            right.add(place)
    return Difference(tuple(row for place, row in wanted.items() if place not in right), tuple(foreign))


def _says(one: OpenWindow) -> tuple[str, int | None, int]:
    return one.state.body, one.wake_clock, one.wake_time


def _table(found: Difference) -> pa.Table:
    import pyarrow as pa

    gone = state_table((), found.foreign)
    return pa.concat_tables([pa.Table.from_pylist(list(found.missing), schema=gone.schema), gone])


def rebuild(
    sinks: Sequence[Sink],
    keeper: ReadableWindowStore,
    ledger: Ledger,
    pipeline: str,
    *,
    accepted: Adoption,
    left: StoredWindows,
) -> tuple[Epoch, Difference] | None:
    """Restore the state that the newest epoch left, by an epoch of its own. Returns ``None`` if nothing differs.

    It fences out every driver. Repeated after a crash, it writes only the rows that are still wrong. ``accepted`` is a
    decision of kind ``rebuild-panes`` whose last epoch is the computed one. ``left`` is the state that this epoch left.

    Raises:
        OnceOnlyError: E110 the query wrote an epoch since, or an error of opening and of the sinks.
    """
    state = operator_epoch.opened(sinks, ledger, pipeline)
    last = state.opening.last
    # Decisions of operators leave state as it is, such as this one, cut off before every sink had it.
    if last is None or last.panes is None or last.panes.open != left.digest:
        raise operator_epoch.went_on(pipeline, last.number if last else 0, accepted.last)
    with naming(keeper):
        found = difference(keeper.open_windows(last.panes.since), left.rows, last.number)
    if not (found.missing or found.foreign):
        return None
    rows, end = _table(found), last.written.end
    epoch = operator_epoch.decision(
        state, Slice(end, end), accepted, stood=last.standing, sources=last.sources, base=last
    )
    outputs = tuple(_output(output, rows) for output in left.outputs)
    epoch = chain.linked(replace(epoch, chain="", digest=digest_of(rows), outputs=outputs))
    faults.fire(Point.PREPARE_BEFORE)
    with naming(keeper):
        prepared = keeper.prepare(ArrowBatch(rows), epoch.number)
    faults.fire(Point.PREPARE_AFTER)
    faults.fire(Point.COMMIT_BEFORE)
    # First where the rows are: others can be brought to an epoch without any.
    order = [keeper, *(sink for sink in sinks if sink is not keeper)]
    operator_epoch.write(state, order, ledger, epoch, last, rows={keeper.id: prepared})
    faults.fire(Point.RECORD_AFTER)
    return epoch, found


def _output(was: OutputDigest, rows: pa.Table) -> OutputDigest:
    if was.name == STATE:
        return OutputDigest(STATE, was.sinks, fingerprint(rows.schema), digest_of(rows))
    return OutputDigest(was.name, was.sinks, was.schema, Digest(0), rows.num_rows)
