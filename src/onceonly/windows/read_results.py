"""Read and judge window state and window results in sinks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.capabilities import GONE, OpenWindow, Span, WindowStore
from onceonly.runtime.sink_refusals import UNREADABLE, reason_of
from onceonly.windows.epoch_step import state_digest
from onceonly.windows.results import (
    Expected,
    Result,
    Rows,
    UnreadableResults,
    Window,
    WindowMismatch,
    expect,
    read,
    window_of,
)
from onceonly_checkpoints.digests import STATE, WINDOWS, Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import ResultSchema

# ---- Find windows whose recomputed results or state differ from the committed ones.
#
# Pure.


Row = Mapping[str, Any]


def of_results(form: ResultSchema, computed: Iterable[Row], stand: Iterable[Row]) -> Iterator[Window]:
    """Return windows whose results differ from all recomputed rows of the epoch.

    ``stand`` has the epoch's stored rows. If rows replace one another, a missing one may have been replaced since.
    Raises ``UnreadableResults``: a stored row is no row of panes.
    """
    now, then = Counter(_results(form, computed)), Counter(_results(form, stand))
    others = then - now if form.upserts else (now - then) + (then - now)
    yield from (result.window for result, _ in others)


def _results(form: ResultSchema, rows: Iterable[Row]) -> Iterator[tuple[Result, tuple[object, ...]]]:
    return ((read(form, row), (row.get("timing"), row.get("final"))) for row in rows)


def of_state(number: int, computed: Iterable[Row], stand: Iterable[OpenWindow]) -> Iterator[Window]:
    """Return windows whose state differs. Rows that later epochs wrote or removed prove nothing about this one."""
    now = {(row["key"], row["start"], row["stop"]): None if row[GONE] else row["body"] for row in computed}
    for open_window in stand:
        row = open_window.state
        window_key = row.key, row.start, row.stop
        changed, expected_body = window_key in now, now.get(window_key)
        # One that an earlier epoch wrote was to be changed; one that this epoch wrote must be what was computed.
        if (row.epoch < number and changed) or (row.epoch == number and row.body != expected_body):
            yield window_of(*window_key)


# ---- Read and judge window state and window results in sinks.


log = logging.getLogger(__name__)

_AT_ONCE = 1_000_000
"""Rows of results that are asked for at once: windows that are closed behind them are forgotten."""

_MOST = 100
"""Windows of a sink that are told one by one."""

_NOT_SHOWN = "the sink does not show the state of windows"
_OLD = "an older version wrote the newest epoch, and it does not say what its rows consist of"
_NOT_TOLD = "the sink does not know the epoch of its rows"


@dataclass(frozen=True, slots=True)
class StateFacts:
    """State of windows in a sink.

    Attributes:
        digest: ``None`` if unknown.
        why: reason for that. Empty if the state was read, and if a running driver continued.
        windows: expected results by the state, or ``None`` if unknown.
        chain: of the state's epoch.
    """

    digest: Digest | None = None
    why: str = ""
    windows: Mapping[Window, Expected] | None = None
    chain: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """Results of windows in a sink.

    Attributes:
        wrong: windows with unexpected rows, or the first of very many.
        more: number of the others.
        why: why the results cannot be judged, or empty.
    """

    wrong: tuple[WindowMismatch, ...] = ()
    more: int = 0
    why: str = ""


def gets(sink: Sink, name: str, epochs: Sequence[Epoch]) -> bool:
    """Whether a sink gets an output of this name in any of these epochs."""
    return any(output.name == name and sink.id in output.sinks for epoch in epochs for output in epoch.outputs)


def read_state(sink: Sink, epochs: Sequence[Epoch]) -> StateFacts | None:
    """Read and hash the state of windows in a sink, or return ``None`` if it keeps none.

    The sink is open for reading. ``epochs`` are those of its markers, oldest first.
    """
    panes = epochs[-1].windows if epochs else None
    if panes is None or not gets(sink, STATE, epochs):
        return None
    read = _Read(panes.result_schema)
    try:
        windows = sink.open_windows(panes.since) if isinstance(sink, WindowStore) else None
        if windows is None:
            return StateFacts(why=_NOT_SHOWN)
        digest = state_digest(read.rows(windows))
        if next(iter(sink.history(epochs[-1].number)), None):
            return StateFacts()  # a running driver went on
    except UNREADABLE as error:
        log.info("state in %s cannot be read: %s", sink.id, type(error).__name__)
        return StateFacts(why=reason_of(error))
    # What hashes to something else is no word on results; that it does is found by itself.
    if digest != panes.open or read.why or panes.result_schema is None:
        return StateFacts(digest, read.why if digest == panes.open else "")
    return StateFacts(digest, windows=read.windows, chain=epochs[-1].chain)


class _Read:
    """Rows of state for the hash, with the results that they expect."""

    def __init__(self, form: ResultSchema | None) -> None:
        self._form = form
        self.windows: dict[Window, Expected] = {}
        self.why = ""

    def rows(self, open_windows: Iterator[OpenWindow]) -> Iterator[tuple[str, int, int, str]]:
        for row in (open_window.state for open_window in open_windows):
            try:
                if self._form and not self.why:
                    expect(self.windows, self._form, row)
            except UnreadableResults as error:
                self.why = str(error)
            yield row.key, row.start, row.stop, row.body


def read_results(sink: Sink, epochs: Sequence[Epoch], state: StateFacts | None, unjudged: int = 0) -> Results | None:
    """Add up the results of windows in a sink, or return ``None`` if it gets none.

    The sink is open for reading. ``epochs`` are those of its markers, oldest first. ``state`` is ``None`` without a
    readable sink of state. Rows of epochs up to ``unjudged`` are not judged, 0 for none.
    """
    panes = epochs[-1].windows if epochs else None
    if panes is None or not gets(sink, WINDOWS, epochs):
        return None
    if panes.result_schema is None:
        return Results(why=_OLD)
    compared = state.windows if state and state.chain == epochs[-1].chain else None
    try:
        wrong = _wrong(sink, epochs, panes.result_schema, compared, unjudged)
        mismatches, more = tuple(islice(wrong, _MOST)), sum(1 for _ in wrong)
        if panes.result_schema.upserts and next(iter(sink.history(epochs[-1].number)), None):
            return Results()  # a running driver went on, and rows that stood are replaced
        return Results(mismatches, more)
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
        yield from rows.closed(last.time.closed_until if last.time else None)
    yield from rows.left(since[newest.number], state)


def _spans(sink: str, epochs: Sequence[Epoch]) -> Iterator[Span]:
    """Split epochs into ranges with limited rows, from the first one in the sink: its marker may be gone."""
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
    rows = None
    if isinstance(sink, ReadsRows):
        rows = sink.read_current(span) if upserts else sink.read_by_epoch(span)
    if rows is None:
        raise UnreadableResults(_NOT_TOLD)
    yield from rows


def read_differing(
    pipeline: str,
    sinks: Iterable[Sink],
    epoch: Epoch,
    results: Sequence[Row],
    state: Sequence[Row],
) -> list[Window]:
    """Return windows of a recomputed epoch that differ in its sinks, by their start, without those that do not answer.

    Opens the sinks and leaves them open. ``results`` and ``state`` are the recomputed rows.
    """
    panes, span = epoch.windows, (epoch.number, epoch.number)
    form = panes.result_schema if panes else None
    differing = set[Window]()
    for sink in sinks if panes and form else ():
        try:
            sink.open(pipeline)
            if form and gets(sink, WINDOWS, [epoch]):
                stand = (row for _, row in _rows(sink, span, upserts=form.upserts))
                differing |= set(of_results(form, results, stand))
            elif panes and gets(sink, STATE, [epoch]) and isinstance(sink, WindowStore):
                differing |= set(of_state(epoch.number, state, sink.open_windows(panes.since) or ()))
        except (*UNREADABLE, UnreadableResults) as error:
            log.info("windows of epoch %d in %s cannot be read: %s", epoch.number, sink.id, type(error).__name__)
    return sorted(differing, key=lambda window: (window[1] is not None, window[1] or 0, window[0]))
