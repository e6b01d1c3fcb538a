"""How the time of an epoch is divided into parts."""

from __future__ import annotations

import os
import time

import pytest
from benchmarks.profile import (
    CALLS,
    DELTA,
    FSYNC,
    JOBS,
    KAFKA,
    LEDGER,
    PLANS,
    POSTGRES,
    PYTHON,
    WAITS,
    Epochs,
    counting,
    part_of,
    sampled_parts,
    split,
)


def stack(*files: str) -> list[str]:
    """Frames as pyinstrument writes them, the innermost last. Spark's callback is always the outermost."""
    return ["call\x00/lib/py4j/clientserver.py\x001", *(f"name\x00{file}\x001" for file in files)]


SINK, API = "/sinks/onceonly_sinks/postgres/commit.py", "/src/onceonly/api/wrapper.py"


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ((API, SINK), PYTHON),
        ((API, SINK, "/lib/psycopg/connection.py"), POSTGRES),
        ((API, "/sinks/onceonly_sinks/delta/commit.py", "/lib/deltalake/table.py"), DELTA),
        ((API, "/sinks/onceonly_sinks/kafka/transactions.py"), KAFKA),
        ((API, "/lib/pyspark/sql/dataframe.py", "/lib/py4j/java_gateway.py", "/python/socket.py"), "JVM"),
        ((API, SINK, "/python/concurrent/futures/_base.py", "/python/threading.py"), WAITS),
        ((API, "/checkpoints/onceonly_checkpoints/ledger/sql.py", "/lib/psycopg/connection.py"), LEDGER),
    ],
)
def test_the_innermost_place_that_is_known_tells_the_part(files: tuple[str, ...], part: str) -> None:
    assert part_of(stack(*files)) == part


def test_a_job_of_another_thread_is_what_this_one_waited_for() -> None:
    assert split(jvm=30, waits=50, jobs=60, calls=0, call_ms=0.1) == {JOBS: 60, CALLS: 0, PLANS: 0, WAITS: 20}


def test_what_the_jvm_does_beside_jobs_and_calls_is_planning() -> None:
    assert split(jvm=30, waits=5, jobs=10, calls=40, call_ms=0.1) == {JOBS: 10, CALLS: 4, PLANS: 16, WAITS: 5}


def test_an_fsync_is_counted_and_seen_in_the_samples() -> None:
    epochs = Epochs()

    def write(_: object, number: int) -> None:
        while time.perf_counter() < until:
            os.fsync(descriptor)

    descriptor, until = os.memfd_create("profile"), time.perf_counter() + 0.1
    with counting() as counter:
        epochs.sampled(write, counter)(None, 0)
    os.close(descriptor)
    parts = sampled_parts(epochs.sessions[0])
    assert epochs.counted[0].keys() == {FSYNC}
    assert parts.keys() == {FSYNC, PYTHON}  # the loop around it is Python
    assert min(parts.values()) > 0
