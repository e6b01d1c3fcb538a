"""Readers as actors: each polls one sink during a run and writes what it saw into the history.

A read that got no answer is a ``fail`` of its own, never an empty read: a checker that took silence for absence would
call every outage a loss.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from onceonly_lab.history import Entry, Kind, Mark, Op, Row
from onceonly_lab.recorder import Record


class SinkUnreachable(Exception):
    """A sink gave no answer. ``reason`` must hold no secret."""

    def __init__(self, sink: str, reason: str) -> None:
        super().__init__(f"{sink}: {reason}")
        self.sink = sink
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at a sink showed.

    Attributes:
        rows: in the order of the sink.
        markers: epochs that the sink vouches for; ``None`` if it was not asked.
        leaks: what is open or lies around now; counts only at the end of a run.
    """

    rows: tuple[Row, ...]
    markers: tuple[Mark, ...] | None = None
    leaks: tuple[str, ...] = ()


Look = Callable[[], Seen]
"""Reads a sink once, as a reader of committed data does. Raises :class:`SinkUnreachable`."""


class Poller:
    """Looks at a sink again and again, from a thread of its own. A context manager.

    Args:
        record: takes the entries.
        sink: sink id.
        look: how the sink is read.
        every: seconds between two looks.
    """

    def __init__(self, record: Record, sink: str, look: Look, every: float = 0.2) -> None:
        self.sink, self.every = sink, every
        self._record, self._look = record, look
        self._over = threading.Event()
        # One reader looks once at a time: of two looks that overlap, the older could be written down last.
        self._turn = threading.Lock()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._poll, name=f"poller-{sink}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def read(self, *, final: bool = False) -> Seen:
        """Look once, and write it down.

        Args:
            final: nothing is going on any more; what is open now has leaked.

        Raises:
            SinkUnreachable: the sink gave no answer; that is written down too.
        """
        with self._turn:
            return self._read(final=final)

    def _read(self, *, final: bool) -> Seen:
        actor = f"reader-{self.sink}" + ("-final" if final else "")
        self._record.append(Entry(actor, Kind.INVOKE, Op.READ, sink=self.sink))
        try:
            seen = self._look()
        except SinkUnreachable as silent:
            self._record.append(Entry(actor, Kind.FAIL, Op.READ, sink=self.sink, note=silent.reason))
            raise
        leaks = seen.leaks if final else ()
        self._record.append(
            Entry(actor, Kind.READ, sink=self.sink, rows=seen.rows, markers=seen.markers, final=final, leaks=leaks)
        )
        return seen

    def _poll(self) -> None:
        while not self._over.is_set():
            try:
                self.read()
            except SinkUnreachable:
                pass  # written down; sinks are killed in these runs, and come back
            except Exception as failure:  # noqa: BLE001 - kept, and raised at the end: a reader must not stop unseen
                self._failure = failure
                return
            self._over.wait(self.every)
