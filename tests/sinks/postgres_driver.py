"""A driver process for the tests: writes one epoch and says how it ended. Stopped or killed where it is told.

python postgres_driver.py DSN VIA GENERATION [stop-with-the-head-locked]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tests.sinks.postgres_writer import Writer, orders

from onceonly.errors import OnceOnlyError
from onceonly.protocol import OutcomeUnknown, Superseded


class StoppingLedger:
    """Stops the process when the head's row is locked and nothing but the COMMIT is left to do."""

    address = "nowhere"

    def record(self, record: Any, connection: Any = None) -> None:
        print("holding the head", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)


def main(dsn: str, via: str, generation: str, stop: str = "") -> None:
    with Writer(dsn, load=via, generation=int(generation)) as writer:
        print("opened", flush=True)
        try:
            prepared = writer.prepare(orders(1000, 1001, note="from the process"))
            print("prepared", flush=True)
            writer.commit(prepared, StoppingLedger() if stop else None)  # type: ignore[arg-type]
        except (Superseded, OutcomeUnknown, OnceOnlyError) as error:
            print(f"ended with {type(error).__name__} {getattr(error, 'code', '')}", flush=True)
            _look_up(writer, error)
        else:
            print("committed", flush=True)


def _look_up(writer: Writer, error: Exception) -> None:
    if isinstance(error, OutcomeUnknown):
        try:
            print(f"found {writer.sink.look_up(writer.marker(2))}", flush=True)
        except Superseded as fenced:
            print(f"superseded by {fenced.current_fence.generation}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
