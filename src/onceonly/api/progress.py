"""Show the progress of a query on a terminal or notebook."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

log = logging.getLogger(__name__)

_PAUSE_S = 1.0
"""Least seconds between two lines of a query. Epochs in between are summed."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An epoch. ``seconds`` of its write, ``None`` for a skipped replay. ``recovered``: what was settled before."""

    number: int
    rows: int = 0
    seconds: float | None = None
    recovered: tuple[str, ...] = ()


def later(seconds: float, run: Callable[[], None]) -> threading.Timer:
    """Run a function after a pause. It keeps no process alive."""
    timer = threading.Timer(seconds, run)
    timer.daemon = True
    timer.start()
    return timer


class Progress:
    """Lines of one run on stderr, if a person sees it and nothing logs INFO. ``ONCEONLY_PROGRESS=0`` switches it off.

    ``clock`` gives seconds, ``after`` is as :func:`later`.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, after: Callable[[float, Callable[[], None]], object] = later
    ) -> None:
        self._clock, self._after, self._lock = clock, after, threading.Lock()
        self._epochs: list[Shown] = []
        self._next = clock()
        self._waits = False
        self.pipeline = ""

    def begin(self, pipeline: str, targets: Sequence[str], ledger: str) -> None:
        """Show where the rows go. ``targets`` have the guarantee of each sink."""
        self.pipeline = pipeline
        if _is_watched():
            _print(f"{pipeline}: into {', '.join(targets)}, ledger {ledger}")

    def show(self, epoch: Shown) -> None:
        """Show an epoch, now or with those of the same second."""
        if _is_watched():
            with self._lock:
                self._epochs.append(epoch)
                self._show()

    def close(self) -> None:
        """Show what was held back."""
        with self._lock:
            self._next = self._clock()
            self._show()

    def _show(self) -> None:
        pause = self._next - self._clock()
        if self._epochs and pause <= 0:
            _print(_line(self.pipeline, self._epochs))
            self._epochs, self._next = [], self._clock() + _PAUSE_S
        elif self._epochs and not self._waits:
            self._waits = True
            self._after(pause, self._wake)

    def _wake(self) -> None:
        with self._lock:
            self._waits = False
            self._show()


def _is_watched() -> bool:
    terminal = sys.stderr is not None and (sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel"))
    is_logged = log.isEnabledFor(logging.INFO) and _handles_info(log)
    return terminal and not is_logged and os.environ.get("ONCEONLY_PROGRESS") != "0"


def _handles_info(logger: logging.Logger | None) -> bool:
    if logger is None:
        return False
    own = any(handler.level <= logging.INFO for handler in logger.handlers)
    return own or (logger.propagate and _handles_info(logger.parent))


def _print(line: str) -> None:
    with suppress(OSError, ValueError):  # the terminal was closed, and the epoch is committed
        print(line, file=sys.stderr, flush=True)


def _line(pipeline: str, epochs: Sequence[Shown]) -> str:
    parts = [text for epoch in epochs for text in epoch.recovered]
    if skipped := [epoch.number for epoch in epochs if epoch.seconds is None]:
        parts.append(f"replay of {_numbers(skipped)} skipped")
    if seconds := [epoch.seconds for epoch in epochs if epoch.seconds is not None]:
        rows = sum(epoch.rows for epoch in epochs)
        mean = sum(seconds) / len(seconds)
        each = f"{mean:.1f} s" if mean >= 1 else f"{mean * 1000:.0f} ms"
        numbers = _numbers([epoch.number for epoch in epochs if epoch.seconds is not None])
        parts.append(f"{numbers}  {rows:,} row{'s' * (rows != 1)}  {each}{' each' * (len(seconds) > 1)}")
    return f"{pipeline}: {'; '.join(parts)}"


def _numbers(epochs: Sequence[int]) -> str:
    return f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]}..{epochs[-1]}"
