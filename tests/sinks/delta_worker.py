"""A driver as a process: writes epochs until a Delta table stands at a number; fenced out, it opens again."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from onceonly.errors import OnceOnlyError
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_lab.conformance.scenario import PIPELINE, plan
from onceonly_sinks.delta import DeltaSink, DeltaTuning


def opened(sink: DeltaSink, owner: str) -> tuple[Fence, int]:
    """Install the next generation; return the fence and the epoch that stands."""
    while True:
        found = sink.fence()
        fence = Fence((found.generation if found else 0) + 1, owner)
        try:
            sink.install(fence)
            return fence, sink.position(None).epoch
        except (Superseded, OutcomeUnknown):
            time.sleep(random.uniform(0.01, 0.05))


def write(sink: DeltaSink, fence: Fence, rows: int) -> int:
    """Write the epoch after the newest one; look an unknown outcome up."""
    newest = sink.position(None).marker
    planned = plan(newest.epoch if newest else None, sink.id, rows)
    marker = Marker(PIPELINE, sink.id, fence, planned.epoch)
    prepared = sink.prepare(ArrowBatch(planned.table), planned.epoch.number)
    try:
        sink.commit(prepared, marker)
    except OutcomeUnknown:
        if sink.look_up(marker) is None:
            return planned.epoch.number - 1
    return planned.epoch.number


def main(path: str, owner: str, last: int, limit: int) -> None:
    """Write until the table stands at epoch ``last``."""
    sink = DeltaSink(Path(path), tuning=DeltaTuning(driver_limit=limit))
    sink.open(PIPELINE)
    fence, epoch = opened(sink, owner)
    while epoch < last:
        try:
            epoch = write(sink, fence, rows=5)
            print(epoch, flush=True)
        except (Superseded, OutcomeUnknown, OnceOnlyError):
            time.sleep(random.uniform(0.0, 0.1))
            fence, epoch = opened(sink, owner)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
