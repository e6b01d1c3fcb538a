"""Read and judge window state and window results in sinks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from onceonly.protocol import Readable, ShowsState, Sink, StandingRows
from onceonly.protocol.capabilities import OpenWindow, Span
from onceonly.runtime.read_errors import UNREADABLE, reason_of
from onceonly.windows import diff
from onceonly.windows.epoch_step import state_digest
from onceonly.windows.results import Expected, Rows, UnreadableResults, Window, WindowMismatch, expect
from onceonly_checkpoints.digests import PANES, STATE, Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_windows import ResultSchema

log = logging.getLogger(__name__)

_AT_ONCE = 1_000_000
"""Rows of results that are asked for at once: windows that are closed behind them are forgotten."""

_MOST = 100
"""Windows of a sink that are told one by one."""

_NOT_SHOWN = "the sink does not show the state of windows"
_OLD = "an older version wrote the newest epoch, and it does not say what its rows consist of"
_NOT_TOLD = "the sink does not tell its rows by their epoch"


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The state of windows in a sink.

    Attributes:
        digest: of the state. ``None`` if it cannot be read.
        why: reason of that. Empty if it was read, and if a running driver went on.
        windows: results that the state expects. ``None`` if unknown.
        chain: of the epoch to which the state belongs.
    """

    digest: Digest | None = None
    why: str = ""
    windows: Mapping[Window, Expected] | None = None
    chain: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """Judgement of the results of windows in a sink.

    ``wrong`` has the first windows with wrong rows, ``more`` the number of others. ``why`` is the reason if they cannot
    be judged.
    """

    wrong: tuple[WindowMismatch, ...] = ()
    more: int = 0
    why: str = ""


def gets(sink: Sink, name: str, epochs: Sequence[Epoch]) -> bool:
    """Whether a sink gets an output of this name in any of these epochs."""
    return any(output.name == name and sink.id in output.sinks for epoch in epochs for output in epoch.outputs)


def read_state(sink: Sink, epochs: Sequence[Epoch]) -> StateFacts | None:
    """Read and hash the state of windows in a sink, opened for reading. ``None`` if it keeps none.

    ``epochs`` are those of its markers, oldest first.
    """
    panes = epochs[-1].panes if epochs else None
    if panes is None or not gets(sink, STATE, epochs):
        return None
    if not isinstance(sink, ShowsState):
        return StateFacts(why=_NOT_SHOWN)
    read = _Read(panes.form)
    try:
        digest = state_digest(read.rows(sink.open_windows(panes.since)))
        if next(iter(sink.history(epochs[-1].number)), None):
            return StateFacts()  # a running driver went on
    except UNREADABLE as error:
        log.info("state in %s cannot be read: %s", sink.id, type(error).__name__)
        return StateFacts(why=reason_of(error))
    # What hashes to something else is no word on results; that it does is found by itself.
    if digest != panes.open or read.why or panes.form is None:
        return StateFacts(digest, read.why if digest == panes.open else "")
    return StateFacts(digest, windows=read.windows, chain=epochs[-1].chain)


class _Read:
    """Rows of state on their way to the hash, and the results that they expect."""

    def __init__(self, form: ResultSchema | None) -> None:
        self._form = form
        self.windows: dict[Window, Expected] = {}
        self.why = ""

    def rows(self, found: Iterator[OpenWindow]) -> Iterator[tuple[str, int, int, str]]:
        for row in (one.state for one in found):
            try:
                if self._form and not self.why:
                    expect(self.windows, self._form, row)
            except UnreadableResults as error:
                self.why = str(error)
            yield row.key, row.start, row.stop, row.body


def read_results(sink: Sink, epochs: Sequence[Epoch], state: StateFacts | None, unjudged: int = 0) -> Results | None:
    """Add up the results of windows in a sink, opened for reading. ``None`` if it gets none.

    ``epochs`` are those of its markers, oldest first. ``state`` is ``None`` if no sink has readable state. ``unjudged``
    is the newest epoch whose rows in the sink are not judged, or 0.
    """
    panes = epochs[-1].panes if epochs else None
    if panes is None or not gets(sink, PANES, epochs):
        return None
    if panes.form is None:
        return Results(why=_OLD)
    compared = state.windows if state and state.chain == epochs[-1].chain else None
    try:
        wrong = _wrong(sink, epochs, panes.form, compared, unjudged)
        told, more = tuple(islice(wrong, _MOST)), sum(1 for _ in wrong)
        if panes.form.upserts and next(iter(sink.history(epochs[-1].number)), None):
            return Results()  # a running driver went on, and rows that stood are replaced
        return Results(told, more)
    except UnreadableResults as error:
        return Results(why=str(error))
    except UNREADABLE as error:
        log.info("results in %s cannot be read: %s", sink.id, type(error).__name__)
        return Results(why=reason_of(error))


def _wrong(
    sink: Sink, epochs: Sequence[Epoch], form: ResultSchema, state: Mapping[Window, Expected] | None, unjudged: int
) -> Iterator[WindowMismatch]:
    since = {epoch.number: epoch.windows_since for epoch in epochs}
    oldest, newest = epochs[0], epochs[-1]
    rows = Rows(form, unjudged)
    for span in _spans(sink.id, epochs):
        for number, row in _rows(sink, span, upserts=form.upserts):
            rows.add(since.get(number, since[oldest.number]), number, row)
        last = next(epoch for epoch in reversed(epochs) if epoch.number <= span[1])
        yield from rows.closed(last.time.closed if last.time else None)
    yield from rows.left(since[newest.number], state)


def _spans(sink: str, epochs: Sequence[Epoch]) -> Iterator[Span]:
    """Ranges of epochs with a limited number of rows, from the first epoch of the rows. Its marker may be gone."""
    newest = epochs[-1]
    first, rows = max(newest.series, min(epochs[0].windows_since, newest.number)), 0
    for epoch in epochs:
        if epoch.number < first:
            continue
        rows += epoch.digest_in(sink).rows
        if rows >= _AT_ONCE or epoch is newest:
            yield first, epoch.number
            first, rows = epoch.number + 1, 0


def _rows(sink: Sink, span: Span, *, upserts: bool) -> Iterator[tuple[int, Mapping[str, object]]]:
    found = None
    if upserts:
        found = sink.standing_rows(span) if isinstance(sink, StandingRows) else None
    elif isinstance(sink, Readable):
        found = sink.read_rows(span)
    if found is None:
        raise UnreadableResults(_NOT_TOLD)
    yield from found


def read_differing(
    pipeline: str,
    sinks: Iterable[Sink],
    epoch: Epoch,
    results: Sequence[diff.Row],
    state: Sequence[diff.Row],
) -> list[Window]:
    """Windows of a recomputed epoch that differ in its sinks, by their start. Empty if the sinks do not answer.

    It opens the sinks and leaves them open. ``epoch`` is the recorded one. ``results`` and ``state`` are recomputed
    rows.
    """
    panes, span = epoch.panes, (epoch.number, epoch.number)
    form = panes.form if panes else None
    found = set[Window]()
    for sink in sinks if panes and form else ():
        try:
            sink.open(pipeline)
            if form and gets(sink, PANES, [epoch]):
                stand = (row for _, row in _rows(sink, span, upserts=form.upserts))
                found |= set(diff.of_results(form, results, stand))
            elif panes and gets(sink, STATE, [epoch]) and isinstance(sink, ShowsState):
                found |= set(diff.of_state(epoch.number, state, sink.open_windows(panes.since)))
        except (*UNREADABLE, UnreadableResults) as error:
            log.info("windows of epoch %d in %s cannot be read: %s", epoch.number, sink.id, type(error).__name__)
    return sorted(found, key=lambda one: (one[1] is not None, one[1] or 0, one[0]))
