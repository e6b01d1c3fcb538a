"""Hangs up on a server that answers too late: one thread for all epochs, which nobody waits for while all goes well."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)


class Patience:
    """Waits for answers no longer than it has been told to.

    Args:
        seconds: how long an answer may take.
        sink: sink id, for messages.
    """

    def __init__(self, seconds: float, sink: str) -> None:
        self._seconds = seconds
        self._sink = sink
        self._due: dict[int, tuple[float, Any]] = {}
        self._turn = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, connection: Any) -> Generator[None]:
        """Within, a server that is silent for longer fails as one whose connection was lost.

        Keepalives do not find it: a paused server, or a proxy that swallows the answer, still acknowledges them.

        Args:
            connection: of psycopg.
        """
        with self._turn:
            self._due[id(connection)] = (time.monotonic() + self._seconds, connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._turn:  # while it hangs up, it has the turn: it never hits whoever has the connection next
                self._due.pop(id(connection), None)

    def close(self) -> None:
        """End the thread; it starts again when it is needed. May repeat."""
        with self._turn:
            self._thread = None
            self._turn.notify_all()

    def _watch(self) -> None:
        with self._turn:
            while self._thread is threading.current_thread() or self._due:
                now = time.monotonic()
                for key, (until, connection) in list(self._due.items()):
                    if until <= now:
                        del self._due[key]
                        _hang_up(connection, self._sink)
                # What comes after this look is due after the next one, so nobody has to wake this thread.
                first = min((until for until, _ in self._due.values()), default=now + self._seconds)
                self._turn.wait(first - now)


def _hang_up(connection: Any, sink: str) -> None:
    """Shut the socket down under the thread that waits at it."""
    import psycopg

    log.warning("%s: the server has not answered in time, hanging up", sink)
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (psycopg.Error, OSError) as error:  # it was lost meanwhile, which is as good
        log.debug("%s: nothing to hang up: %s", sink, error)
