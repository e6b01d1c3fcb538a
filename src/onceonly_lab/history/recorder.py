"""Record a history from outside of the observed processes."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, cast

from onceonly_lab.history import Entry, Header, Kind, Mark, Op, Row, UnreadableHistory

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- Writes a history from outside of the processes that it is about: a SIGKILL takes only what was never sent.
#
# The harness holds the :class:`Recorder`; it appends its own entries directly, and every process that it may kill
# sends its entries over a loopback connection (:class:`Line`). A line is answered once the operating system has it,
# and only then does its writer go on. So an entry that announces an effect stands before every entry of somebody who
# saw the effect: the order of lines can be trusted, clocks need not be.
#
# It outlives its victims, not the machine: nothing is flushed to the disk itself.

_PATIENCE_S = 30.0
_WRITTEN = "written"


class Record(Protocol):
    """Takes the entries of a run."""

    def append(self, entry: Entry) -> None:
        """Write an entry; it is in the history when this returns."""
        ...


class Recorder:
    """The one writer of a history file. A context manager.

    Args:
        path: the file; must not exist, since a history is never written twice.
        header: its first line.

    Attributes:
        address: ``host:port`` where :class:`Line` connects to.

    Raises:
        FileExistsError: there is a history already.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._file = path.open("x", encoding="utf-8", newline="\n")
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._put(header.text)
        self._server = _Server(self)
        host, port = cast("tuple[str, int]", self._server.server_address)
        self.address = f"{host}:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="recorder", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, entry: Entry) -> None:
        """Write an entry, with the time since the run began unless it brings its own.

        Raises:
            ValueError: the recorder is closed.
        """
        with self._lock:
            if entry.time is None:
                entry = replace(entry, time=round(time.monotonic() - self._began, 6))
            self._put(entry.text)

    def close(self) -> None:
        """Take no more entries. May repeat."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            self._file.close()

    def _put(self, text: str) -> None:
        self._file.write(f"{text}\n")
        self._file.flush()


class Line:
    """A process's connection to the recorder; threads may share it. A context manager.

    Args:
        address: of the recorder.

    Raises:
        OSError: nobody listens there.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("r", encoding="utf-8", newline="\n")
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, entry: Entry) -> None:
        """Send an entry and wait until it is written.

        Raises:
            ConnectionError: the recorder is gone; whether the entry was written is not known.
            UnreadableHistory: the recorder refused the entry.
        """
        with self._lock:
            self._socket.sendall(f"{entry.text}\n".encode())
            answer = self._answers.readline().rstrip("\n")
        if not answer:
            raise ConnectionError("the recorder hung up")
        if answer != _WRITTEN:
            raise UnreadableHistory(answer)

    def close(self) -> None:
        """Hang up. May repeat."""
        self._answers.close()
        self._socket.close()


class _Server(socketserver.ThreadingTCPServer):
    # A stopped victim never hangs up; closing must not wait for it.
    daemon_threads = True
    block_on_close = False

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        super().__init__(("127.0.0.1", 0), _Listener)


class _Listener(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            for line in self.rfile:
                if line.endswith(b"\n"):  # else its writer died in the middle of it
                    self.wfile.write(f"{self._record(line)}\n".encode())
        except ConnectionError:
            return  # its writer died before the answer

    def _record(self, line: bytes) -> str:
        try:
            cast("_Server", self.server).recorder.append(Entry.from_json(json.loads(line)))
        except ValueError as wrong:
            return f"refused: {wrong}"
        return _WRITTEN


# ---- Readers as actors: each polls one sink during a run and writes what it saw into the history.
#
# A read that got no answer is a ``fail`` of its own, never an empty read: a checker that took silence for absence
# would call every outage a loss.


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
        broken: whether its rows break an invariant of the job.
    """

    rows: tuple[Row, ...]
    markers: tuple[Mark, ...] | None = None
    leaks: tuple[str, ...] = ()
    broken: bool = False


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
            snapshot = self._look()
        except SinkUnreachable as silent:
            self._record.append(Entry(actor, Kind.FAIL, Op.READ, sink=self.sink, note=silent.reason))
            raise
        leaks = snapshot.leaks if final else ()
        self._record.append(
            Entry(
                actor, Kind.READ, sink=self.sink, rows=snapshot.rows, markers=snapshot.markers, final=final, leaks=leaks
            )
        )
        if snapshot.broken:
            note, anomaly = "invariant= of the job", "X-INVARIANT"
            self._record.append(Entry(actor, Kind.FAIL, Op.ASSERTION, sink=self.sink, note=note, anomaly=anomaly))
        return snapshot

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
