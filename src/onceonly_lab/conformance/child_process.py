"""Driver in a child process, killed while it commits one epoch."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkServerContext
from typing import TYPE_CHECKING

from onceonly.protocol import Sink
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.conformance.harness import ConformanceFailure, SinkHarness, told
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch

if TYPE_CHECKING:
    from typing_extensions import Self


_PATIENCE_S = 60.0
_PRELOADED = [
    "onceonly_lab.conformance",
    "pyarrow",
    "psycopg",
    "sqlalchemy",
    "deltalake",
    "confluent_kafka",
    "pytest",
]


@dataclass(frozen=True, slots=True)
class Order:
    """What the process is to write.

    Attributes:
        harness: of the target.
        fence: stands already; the process finds it by its owner token.
        planned: the epoch.
        connect: makes the handle; ``None``: the harness does.
    """

    harness: SinkHarness
    fence: Fence
    planned: PlannedEpoch
    connect: Callable[[], Sink] | None = None


class Child:
    """The process, once it has prepared its epoch: it waits for :meth:`go`. A context manager; leaving it kills."""

    def __init__(self, order: Order) -> None:
        context = _context(order.harness.start_method())
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_commits, args=(order, theirs), daemon=True)
        with warnings.catch_warnings():
            # The process touches nothing of what other threads may hold, and opens handles of its own.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()
        self._answer("prepare")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._pipe.close()
        self._process.close()

    def go(self) -> None:
        """Have it commit."""
        self._pipe.send(None)

    def ends(self) -> float:
        """Wait for the commit; return the seconds that it took.

        Raises:
            ConformanceFailure: it failed.
        """
        return self._answer("commit")

    def ended(self, seconds: float) -> bool:
        """Whether the process answered, or ended, within so many seconds."""
        return self._pipe.poll(seconds)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. May repeat."""
        self._process.kill()
        self._process.join(_PATIENCE_S)

    def _answer(self, what: str) -> float:
        if not self._pipe.poll(_PATIENCE_S):
            raise ConformanceFailure(f"A driver in a process of its own did not {what} within {_PATIENCE_S:g} s.")
        try:
            answer: float | str = self._pipe.recv()
        except EOFError:
            answer = "the process ended"
        if isinstance(answer, str):
            raise ConformanceFailure(f"A driver in a process of its own did not {what}: {answer}.")
        return answer


def _context(method: str) -> ForkContext | ForkServerContext:
    if method == "fork":
        return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    # What they import is imported once; what is not installed is left out.
    context.set_forkserver_preload(_PRELOADED)
    return context


def _commits(order: Order, pipe: Connection) -> None:
    try:
        driver = Driver(order.harness, order.fence, sink=order.connect() if order.connect else None)
        driver.sink.install(order.fence)
        prepared = driver.prepares(order.planned)
        pipe.send(0.0)
        pipe.recv()
        begun = time.perf_counter()
        driver.commits(order.planned, prepared)
        pipe.send(time.perf_counter() - begun)
    except Exception as error:  # noqa: BLE001  told to the process that waits
        pipe.send(told(error))
    finally:
        # Handles that were inherited belong to the process that forked: nothing may close them here.
        os._exit(0)
