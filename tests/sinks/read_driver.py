"""A driver whose sinks others read while it is killed: the production runner, forked, on Delta and on Postgres.

Each epoch brings ten rows, ``id`` going up and ``slot`` from 0 to 9: appended to one table, and replacing those of the
epoch before in the two others.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from tests.core.several import offered

from onceonly.machine import coordinator
from onceonly.machine.state import Job
from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime import shared_transaction
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.driver import end_with_parent
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

PIPELINE = "orders"
ROWS = 10
_PAUSE_S = 0.02


def ledger_of(folder: Path) -> str:
    return str(folder / "ledger.db")


def sinks_of(folder: Path, dsn: str) -> list[Sink]:
    """In commit order. Patience differs, so that the tables of Postgres do not share a transaction."""
    return [
        PostgresSink(dsn, "changes", sealed_view=True),
        DeltaSink(folder / "newest", key="slot"),
        PostgresSink(
            dsn,
            "state",
            key="slot",
            keep=Keep(history="all"),
            sealed_view=True,
            tuning=PostgresTuning(commit_timeout=60.0),
        ),
    ]


def rows_of(number: int) -> pa.Table:
    first = (number - 1) * ROWS
    return pa.table({"id": pa.array(range(first, first + ROWS), pa.int64()), "slot": pa.array(range(ROWS), pa.int64())})


def come_up() -> None:
    """What is imported is what a fork needs; nothing is connected, and no thread runs."""


def main(argv: Sequence[str]) -> int:
    folder, dsn, until = Path(argv[0]), argv[1], int(argv[2])
    end_with_parent()
    sinks, ledger = sinks_of(folder, dsn), SqlLedger(ledger_of(folder))
    ledger.open()
    runner = Runner(sinks, ledger, staging=StagedEpochs(str(folder / "staging"), PIPELINE, sinks))
    head = ledger.head(PIPELINE)
    # The batch after the newest on record, as the engine plans it again: it may be in some sinks, or in all.
    number, state = head.epoch.number if head else 0, None
    while number < until:
        number += 1
        if state is None:
            names, owner = tuple(sink.id for sink in sinks), secrets.token_hex(8)
            started = coordinator.start(
                Job(
                    PIPELINE,
                    names,
                    owner,
                    offered(number),
                    transaction_groups=shared_transaction.transaction_groups(sinks),
                )
            )
        else:
            started = coordinator.resume(state, offered(number))
        state = runner.run(started, ArrowBatch(rows_of(number)))
        print(number, flush=True)
        time.sleep(_PAUSE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
