"""Pins: keep an epoch from pruning while a reader reads it."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Literal

from onceonly.errors.arguments import checks_arguments
from onceonly.reading.read_point import ReadPoint, opened, read_point
from onceonly.runtime.runs import process
from onceonly_checkpoints.ledger import Ledger, LedgerUnavailable, Pin

log = logging.getLogger(__name__)

LEASE_S = 600.0
"""For how long a pin holds that is not renewed: its reader may have died."""


@checks_arguments
@contextmanager
def pin(
    pipeline: str,
    at: int | Literal["latest"] = "latest",
    *,
    ledger: str | os.PathLike[str] | Ledger,
    lease: float = LEASE_S,
) -> Generator[ReadPoint]:
    """Take a read point, and keep onceonly from pruning it while it is read.

    The pin protects the ledger's records (``onceonly ledger prune``) and the history of upserts (``keep_history=``). It
    does not stop VACUUM or a topic's retention: ``onceonly doctor`` compares them with the longest pin. ::

        with reading.pin("orders", ledger=ledger) as point:
            orders = reading.read_at("orders", point, "delta:orders", ledger=ledger)

    ``ledger`` is a URL, a path, or an open one. The pin of a dead reader expires after ``lease`` seconds. A live reader
    renews it three times as often.

    Raises:
        ConfigurationError: E110, the ledger has no such pipeline or epoch.
        IdentityError: E245, no such epoch is in all of its sinks yet.
        LedgerUnavailable: the ledger cannot be read or written.
    """
    with opened(ledger) as known:
        known.open()
        token, began = secrets.token_hex(8), _now_ms()
        point = read_point(pipeline, at, ledger=known)

        def renew() -> None:
            until = _now_ms() + int(lease * 1000)
            known.pin(Pin(pipeline, token, point.epoch, process(), began, until))

        renew()
        done = threading.Event()
        keeper = threading.Thread(target=_keep, args=(renew, done, lease / 3), daemon=True)
        keeper.start()
        try:
            yield point
        finally:
            done.set()
            keeper.join()
            with suppress(LedgerUnavailable):  # then the lease ends it
                known.unpin(pipeline, token)


def _keep(renew: Callable[[], None], done: threading.Event, seconds: float) -> None:
    while not done.wait(seconds):
        try:
            renew()
        except LedgerUnavailable as error:
            log.warning("a pin was not renewed: %s", error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
