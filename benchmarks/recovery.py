"""From SIGKILL to the first new epoch in every sink: a driver dies between two commits and is started again.

Run as a program it is that driver.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import bars, streams
from benchmarks.data import Shape, generate
from benchmarks.destinations import VARIANTS, TestBed, Variant
from benchmarks.model import Bar, Pair, Result
from onceonly import faults
from onceonly.faults import Point
from onceonly_lab.driver import Driver
from onceonly_lab.session import prepare, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from onceonly.api.wrapper import ExactlyOnce

EPOCHS_BEFORE = 3
"""Whole epochs before the one in whose middle the driver dies."""

_SINKS = 3
_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """One recovery, in seconds.

    Attributes:
        detect: until whoever started the driver knows that it is gone.
        restart: from there until Spark hands over the batch that was interrupted.
        resolve: until every sink holds that batch's epoch, from the bytes that were staged before the kill.
        replay: until every sink holds the next one.
    """

    detect: float
    restart: float
    resolve: float
    replay: float

    @property
    def total(self) -> float:
        """From the kill to the next epoch."""
        return self.detect + self.restart + self.resolve + self.replay


def measure(wanted: Sequence[Bar], shape: Shape, testbed: TestBed, rounds: int) -> tuple[list[Result], dict[str, Any]]:
    """Recover ``rounds`` times, each with checkpoint and targets of its own; the parts are for the report.

    Each round is also run as it is without ``onceonly_lab.session``, which the report says beside it.
    """
    generate(shape)
    prepare(streams.builder())
    found, plain = list[Recovery](), list[Recovery]()
    for number in range(1, rounds + 1):
        plain.append(_once(shape, testbed, 2 * number - 1, prepared=False))
        found.append(_once(shape, testbed, 2 * number, prepared=True))
    parts = {f"recovery_{name}": [round(getattr(each, name), 2) for each in found] for name in asdict(found[0])}
    for name in ("total", "restart"):
        parts[f"recovery_plain_{name}"] = [round(getattr(each, name), 2) for each in plain]
    worth = {bars.RECOVERY: [each.total for each in found], bars.RESOLVE: [each.resolve for each in found]}
    results = [Result(bar, "", tuple(Pair(seconds, 0.0) for seconds in worth[bar.job])) for bar in wanted]
    return results, parts


def _once(shape: Shape, testbed: TestBed, number: int, *, prepared: bool) -> Recovery:
    name = streams.run_name(shape, bars.TOGETHER, number)
    task = {
        "name": name,
        "shape": asdict(shape),
        "ground": [*testbed.addresses, str(testbed.root)],
        "prepared": prepared,
    }
    try:
        with _driver(testbed, name, {**task, "dies": True}) as first:
            killed = _told(first, "dies")
            first.wait(_SECONDS)
            gone = time.time()
        with _driver(testbed, name, task) as second:
            handed, resolved, replayed = (_told(second, event) for event in ("begin", "end", "end"))
            second.wait(_SECONDS)
        streams.proven(VARIANTS[bars.TOGETHER].count(testbed, name), shape, bars.TOGETHER)
    finally:
        VARIANTS[bars.TOGETHER].remove(testbed, name)
        shutil.rmtree(testbed.root / name, ignore_errors=True)
    found = Recovery(gone - killed, handed - gone, resolved - handed, replayed - resolved)
    print(f"recovery {number}, prepared {prepared}: {found.total:.2f} s, {found}", file=sys.stderr)
    return found


def _driver(testbed: TestBed, name: str, task: dict[str, Any]) -> Driver:
    log = testbed.root / f"{name}-{'dies' if 'dies' in task else 'lives'}"
    return Driver.module("benchmarks.recovery", json.dumps(task), log=log, cwd=Path(__file__).resolve().parent.parent)


def _told(driver: Driver, event: str) -> float:
    """Clock of the next line about an event."""
    line = driver.wait_for(lambda text: text.startswith("{") and json.loads(text)["event"] == event, _SECONDS)
    return float(json.loads(line)["at"])


# ---- the driver


def _tell(event: str) -> None:
    os.write(1, json.dumps({"event": event, "at": time.time()}).encode() + b"\n")


def _die() -> None:
    _tell("dies")
    faults.ACTIONS["killgroup"]()


def _telling(write: ExactlyOnce) -> Any:
    def batch(df: DataFrame, batch_id: int) -> None:
        _tell("begin")
        write(df, batch_id)
        _tell("end")

    return batch


class _Telling:
    """A stream writer whose ``foreachBatch`` tells of each batch."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def foreachBatch(self, write: ExactlyOnce) -> Any:  # noqa: N802 - Spark's name
        return self._writer.foreachBatch(_telling(write))


def _drive(task: dict[str, Any]) -> None:
    if task.get("dies"):
        faults.arm(Point.COMMIT_AFTER, _die, EPOCHS_BEFORE * _SINKS + 1)
    shape = Shape(**task["shape"])
    *addresses, root = task["ground"]
    builder = streams.builder()
    session = start(builder) if task["prepared"] else builder.getOrCreate()
    testbed = TestBed(streams.quiet(session), *addresses, Path(root))
    way = VARIANTS[bars.TOGETHER]
    telling = Variant(lambda at, writer, name: way.attach(at, _Telling(writer), name), way.count)  # type: ignore[arg-type]
    streams.start(testbed, shape, telling, task["name"]).awaitTermination()
    testbed.spark.stop()


if __name__ == "__main__":
    _drive(json.loads(sys.argv[1]))
