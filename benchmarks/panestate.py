"""What an epoch asks of the state of windows and writes into it, of a million that are open, in Postgres."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median, quantiles

import psycopg
import pyarrow as pa

from onceonly.protocol.batch import ArrowBatch, AsOf
from onceonly.protocol.capabilities import StateWanted
from onceonly_checkpoints.chain import GENESIS, linked
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Fence, Lineage, Marker
from onceonly_checkpoints.model import Slice, SourceOffsets
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

OPEN, TOUCHED, DUE = 1_000_000, 10_000, 5_000
MOST_MS = 1000.0
_KEYS = 200_000
_PIPELINE = "state"


@dataclass(frozen=True, slots=True)
class Touched:
    """Times of each round, in ms.

    Attributes:
        recall: what was asked for, read.
        write: prepared and committed.
    """

    recall: Sequence[float]
    write: Sequence[float]

    @property
    def line(self) -> str:
        """What was found, in a sentence: missed only where the better end of the spread misses."""
        both = [recall + write for recall, write in zip(self.recall, self.write, strict=True)]
        lower, _, upper = quantiles(both, n=4)
        verdict = "holds" if lower <= MOST_MS else "missed"
        return (
            f"{OPEN:,} windows open, {TOUCHED:,} of them touched: recalled in {median(self.recall):,.0f} ms with "
            f"{DUE:,} that are due, written in {median(self.write):,.0f} ms; both {median(both):,.0f} ms, "
            f"quartiles {lower:,.0f}-{upper:,.0f} (limit {MOST_MS:,.0f}, {verdict})."
        )


def touched(dsn: str, rounds: int) -> Touched:
    """Open a million windows; then epochs that ask for ten thousand and for what is due, and write those again."""
    recall, write = list[float](), list[float]()
    with closing(_Keeper(dsn)) as keeper:
        keeper.writes(_windows(range(OPEN), '{"v":[1234567,"89.50"],"n":17,"pane":3,"since":1700000000000}'))
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE bench_state")
        for number in range(rounds + 1):
            first = OPEN // 10 + number * (OPEN - OPEN // 10 - TOUCHED) // (rounds + 1)
            numbers = range(first, first + TOUCHED)
            began = time.perf_counter()
            found = keeper.recalls([(_key(one), one * 10, one * 10 + 10) for one in numbers])
            recalled = time.perf_counter()
            if found != TOUCHED + DUE:
                raise AssertionError(f"{found} windows were recalled")
            keeper.writes(_windows(numbers, "what became of it " * 5))
            if number:
                recall.append((recalled - began) * 1000)
                write.append((time.perf_counter() - recalled) * 1000)
            print(f"state {number}: {recall[-1:]} {write[-1:]}", file=sys.stderr)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP TABLE bench_state")
    return Touched(recall, write)


class _Keeper:
    """The state of one pipeline, epoch after epoch."""

    def __init__(self, dsn: str) -> None:
        self._sink = PostgresSink(dsn, "bench_state", tuning=PostgresTuning(driver_limit=2**30)).window_store(
            separate=False
        )
        self._fence = Fence(1, "benchmark")
        self._last: Epoch | None = None
        self._sink.open(_PIPELINE)
        self._sink.install(self._fence)

    def recalls(self, places: Sequence[tuple[str, int, int]]) -> int:
        """How many windows are these, or due."""
        wanted = StateWanted(places, wake_time=DUE - 1)
        as_of = AsOf(1, self._last.number + 1 if self._last else 1, 0, _PIPELINE)
        return len(list(self._sink.read_windows(wanted, as_of)))

    def writes(self, windows: pa.Table) -> None:
        """Prepare and commit an epoch."""
        number, previous = (self._last.number + 1, self._last.chain) if self._last else (1, GENESIS)
        slice_ = Slice(SourceOffsets.of({"0": f"{number - 1}"}), SourceOffsets.of({"0": f"{number}"}))
        digest, lineage = Digest(windows.num_rows, number, 0), Lineage("q", "r", "file:/c", number - 1, number, 0)
        epoch = linked(Epoch(number, slice_, "", previous, digest, "", ((self._sink.id, 1),), lineage))
        prepared = self._sink.prepare(ArrowBatch(windows), number)
        self._sink.commit(prepared, Marker(_PIPELINE, self._sink.id, self._fence, epoch), None)
        self._last = epoch

    def close(self) -> None:
        """Release the connection."""
        self._sink.close()


def _key(number: int) -> str:
    return f'["user-{number % _KEYS}"]'


def _windows(numbers: range, body: str) -> pa.Table:
    """Windows that wake one after the other."""
    return pa.table(
        {
            "key": pa.array([_key(number) for number in numbers], pa.string()),
            "start": pa.array([number * 10 for number in numbers], pa.int64()),
            "stop": pa.array([number * 10 + 10 for number in numbers], pa.int64()),
            "body": pa.array([body] * len(numbers), pa.string()),
            "wake_clock": pa.nulls(len(numbers), pa.int64()),
            "wake_time": pa.array(list(numbers), pa.int64()),
            "bucket": pa.array([number % 1024 for number in numbers], pa.int16()),
            "gone": pa.array([False] * len(numbers), pa.bool_()),
        }
    )
