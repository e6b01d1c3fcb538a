"""Puts the state of windows right: an epoch writes rows that are not as the newest one left them, or removes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from onceonly import faults
from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.panes.rows import state_table
from onceonly.panes.state import Place
from onceonly.protocol import ShowsState, Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.optional import OpenWindow
from onceonly.runtime import operator
from onceonly.runtime.unreadable import naming
from onceonly.spark.paned import digest_of, fingerprint
from onceonly_checkpoints import chain
from onceonly_checkpoints.content import STATE, Output
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import Adoption, Slice

if TYPE_CHECKING:
    import pyarrow as pa


class Keeper(Sink, ShowsState, Protocol):
    """The sink of state, whose rows can be read."""


Rows = Mapping[tuple[str, int, int], Mapping[str, Any]]
"""Rows of state by key, start and end of their window."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong with the state that stands.

    Attributes:
        missing: rows that are not there, or say something else.
        foreign: windows that are there and are not open.
    """

    missing: tuple[Mapping[str, Any], ...]
    foreign: tuple[Place, ...]

    @property
    def text(self) -> str:
        """For people."""
        return f"{len(self.missing)} windows written, {len(self.foreign)} taken away"


def difference(standing: Iterable[OpenWindow], wanted: Rows, newest: int) -> Difference:
    """Compare state that stands with what was computed.

    Args:
        standing: what is in the table.
        wanted: what the newest epoch left.
        newest: its number: a row that says a higher one is nobody's, whatever else it says.
    """
    right, foreign = set[tuple[str, int, int]](), list[Place]()
    for one in standing:
        row = one.state
        place = row.key, row.start, row.stop
        known = wanted.get(place)
        if known is None:
            foreign.append(Place(*place))
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
    sinks: Sequence[Sink], keeper: Keeper, ledger: Ledger, pipeline: str, *, accepted: Adoption, wanted: Rows
) -> tuple[Epoch, Difference] | None:
    """Have the state stand as the newest epoch left it, by an epoch of its own; ``None``: it does already.

    Every driver is fenced out. Given again after a crash, it writes what is still wrong.

    Args:
        sinks: every sink of the pipeline.
        keeper: that of state, one of them.
        ledger: its ledger.
        pipeline: its name.
        accepted: a decision of kind ``rebuild-panes`` that names, as its last epoch, the one that was computed.
        wanted: the state that it left.

    Raises:
        OnceOnlyError: E110 the query went on since; or what opening and the sinks raise.
    """
    state = operator.opened(sinks, ledger, pipeline)
    last = state.opening.last
    if last is None or last.panes is None or last.number != accepted.last:
        raise operator.went_on(pipeline, last.number if last else 0, accepted.last)
    with naming(keeper):
        found = difference(keeper.open_windows(last.panes.since), wanted, last.number)
    if not (found.missing or found.foreign):
        return None
    rows, end = _table(found), last.written.end
    epoch = operator.decision(state, Slice(end, end), accepted, stood=last.standing, sources=last.sources, base=last)
    epoch = chain.linked(replace(epoch, chain="", digest=digest_of(rows), outputs=_outputs(pipeline, ledger, rows)))
    faults.fire(Point.PREPARE_BEFORE)
    with naming(keeper):
        prepared = keeper.prepare(ArrowBatch(rows), epoch.number)
    faults.fire(Point.PREPARE_AFTER)
    faults.fire(Point.COMMIT_BEFORE)
    # First where the rows are: others can be brought to an epoch without any.
    order = [keeper, *(sink for sink in sinks if sink is not keeper)]
    operator.write(state, order, ledger, epoch, last, rows={keeper.id: prepared})
    faults.fire(Point.RECORD_AFTER)
    return epoch, found


def _outputs(pipeline: str, ledger: Ledger, rows: pa.Table) -> tuple[Output, ...]:
    """Of the newest epoch that had any: state gets these rows, the others nothing."""
    head = ledger.head(pipeline)
    records = ledger.epochs(pipeline, 1, head.epoch.number) if head else ()
    known = next((one.epoch.outputs for one in reversed(records) if one.epoch.outputs), ())
    if not known:
        raise refuse(
            "E110",
            problem=f'No epoch of "{pipeline}" says which of its sinks holds the state.',
            cause="the ledger was lost or pruned",
            next=f"fill it from the sinks: onceonly ledger rebuild --query {pipeline}",
        )
    nothing = digest_of(rows.slice(0, 0))
    return tuple(
        Output(STATE, one.sinks, fingerprint(rows.schema), digest_of(rows))
        if one.name == STATE
        else Output(one.name, one.sinks, one.schema, nothing, rows.num_rows)
        for one in known
    )
