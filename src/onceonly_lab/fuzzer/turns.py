"""Turns: bodies that leave off anywhere and go on later; one runs at a time, so nothing is left to chance.

A driver of the lab runs the production runner, which is no generator: it can only be left in the middle of a call. So
each has a thread of its own; control is handed over, never shared, and no thread runs before it is told to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Turn:
    """One body.

    Args:
        body: runs when it is first resumed.
    """

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.over = False

    def resume(self) -> None:
        """Run the body until it leaves or ends; what it raises is raised here."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._mine.release()
        self._theirs.acquire()
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Leave the body, which runs this; comes back when it is resumed."""
        self._theirs.release()
        self._mine.acquire()

    def _run(self) -> None:
        try:
            self._body()
        except BaseException as error:  # noqa: BLE001 - it is raised where the body was resumed
            self._error = error
        finally:
            self.over = True
            self._theirs.release()
