"""A driver that notes time without Spark, on real stores: the production runner, forked, to be killed anywhere.

Its source has ten rows for each epoch, and its word is drawn by a seed for a slice: less than the one before as often
as not, and the same whenever the slice comes again. A file stands for what the engine logs of batches that are done.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
from tests.core.several import offered

from onceonly import faults
from onceonly.event_time import TimedEpoch
from onceonly.machine import coordinator
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.state import Job as MachineJob
from onceonly.machine.state import State
from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime import shared_transaction
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.driver import end_with_parent
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink

PIPELINE = "orders"
TABLE = "orders"
ROWS = 10

_NOTING = EventTimeConfig("function", "integer", "id")


@dataclass(frozen=True)
class Job:
    """What a driver is told.

    Attributes:
        sinks: kind and target of each.
        folder: where ledger, staging and what is done lie.
        seed: draws its words.
        fault: as in ``ONCEONLY_FAULT``; empty for none.
        until: the epoch that is its last.
    """

    sinks: tuple[tuple[str, str], ...]
    folder: str
    seed: int
    fault: str = ""
    until: int = 1_000_000

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def done(self) -> Path:
        """Names the newest batch that the engine takes for done."""
        return Path(self.folder) / "done"

    @contextmanager
    def opened(self) -> Generator[list[Sink]]:
        """Handles of a reader."""
        with ExitStack() as stack:
            made = [make_sink(*one) for one in self.sinks]
            for sink in made:
                sink.open(PIPELINE)
                stack.callback(sink.close)
            yield made


def make_sink(kind: str, target: str) -> Sink:
    return PostgresSink(target, table=TABLE) if kind == "postgres" else DeltaSink(target)


def word(seed: int, end: str) -> int:
    """What is said of a slice, by its end: on the whole it grows."""
    number = int(end.rpartition(":")[2].strip("}")) // ROWS
    return 10 * number + random.Random(f"{seed} {number}").randint(-40, 40)


def noted(seed: int, epochs: int) -> list[int]:
    """What each epoch must note: the greatest word so far."""
    return list(accumulate((word(seed, str(ROWS * number)) for number in range(1, epochs + 1)), max))


def come_up() -> None:
    """What is imported is what a fork needs; nothing is connected, and no thread runs."""


def main(argv: Sequence[str]) -> int:
    said = json.loads(argv[0])
    job = Job(**{**said, "sinks": tuple(tuple(one) for one in said["sinks"])})
    end_with_parent()
    if job.fault:
        faults.arm_from_environment(job.fault)
    sinks = [make_sink(*sink) for sink in job.sinks]
    ledger = SqlLedger(f"{job.folder}/ledger.db")
    ledger.open()
    staging = StagedEpochs(f"{job.folder}/staging", PIPELINE, sinks)
    runner = Runner(sinks, ledger, staging=staging, says=lambda epoch: _word(job, epoch))
    number = int(job.done.read_text()) if job.done.exists() else 0
    state: State | None = None
    print("up", flush=True)
    while number < job.until:
        number += 1
        state = runner.run(_next(state, sinks, number), ArrowBatch(_rows(number)))
        _log(job, number)
    return 0


def _word(job: Job, epoch: TimedEpoch) -> int:
    ((_, end),) = epoch.slice.end.entries
    assert end is not None
    return word(job.seed, end)


def _next(state: State | None, sinks: Sequence[Sink], number: int) -> State:
    if state is not None:
        return coordinator.resume(state, offered(number))
    names, owner = tuple(sink.id for sink in sinks), secrets.token_hex(8)
    return coordinator.start(
        MachineJob(
            PIPELINE,
            names,
            owner,
            offered(number),
            transaction_groups=shared_transaction.transaction_groups(sinks),
            noting=_NOTING,
        )
    )


def _rows(number: int) -> pa.Table:
    first = (number - 1) * ROWS
    return pa.table({"id": pa.array(range(first, first + ROWS), pa.int64())})


def _log(job: Job, number: int) -> None:
    hidden = job.done.with_suffix(".new")
    hidden.write_text(str(number))
    hidden.rename(job.done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
