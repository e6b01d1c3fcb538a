"""The spool: a source is never kept waiting, nothing is lost or reordered, and memory stays within its bound."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from onceonly.spark.classic.rows import Spool

SECONDS = 10.0
ROWS = 1000
SIZE = ROWS * 8


def batch(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([number] * ROWS, pa.int64())], names=["n"])


class Source:
    """So many batches; says when the last one was taken off it.

    Args:
        count: how many.
        error: raised after them.
    """

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self._count = count
        self._error = error
        self.taken = 0
        self.empty = threading.Event()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number in range(self._count):
            self.taken += 1
            yield batch(number)
        self.empty.set()
        if self._error is not None:
            raise self._error


def numbers(spool: Spool) -> list[int]:
    return [taken.column(0)[0].as_py() for taken in spool]


@pytest.mark.parametrize("memory", [0, 1, SIZE, 3 * SIZE + 1, 1000 * SIZE])
def test_every_batch_comes_whole_and_in_order(memory: int) -> None:
    source = Source(20)
    with closing(Spool(iter(source), memory=memory)) as spool:
        assert source.empty.wait(SECONDS)
        found = list(spool)
    assert found == [batch(number) for number in range(20)]


def test_the_source_is_read_before_anybody_asks() -> None:
    source = Source(50)
    with closing(Spool(iter(source), memory=2 * SIZE)) as spool:
        assert source.empty.wait(SECONDS)
        assert numbers(spool) == list(range(50))


def test_what_is_beyond_memory_lies_in_a_file() -> None:
    source = Source(50)
    before = pa.total_allocated_bytes()
    with closing(Spool(iter(source), memory=2 * SIZE)) as spool:
        assert source.empty.wait(SECONDS)
        assert pa.total_allocated_bytes() - before < 5 * SIZE
        assert numbers(spool) == list(range(50))


def test_an_error_comes_after_the_batches_before_it() -> None:
    with closing(Spool(iter(Source(3, ValueError("broken off"))))) as spool:
        assert [next(spool).num_rows for _ in range(3)] == [ROWS] * 3
        with pytest.raises(ValueError, match="broken off"):
            next(spool)


def test_a_source_waits_where_there_is_no_room_for_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    source = Source(50)
    with closing(Spool(iter(source), memory=2 * SIZE)) as spool:
        assert not source.empty.wait(0.2)
        assert source.taken == 3
        assert numbers(spool) == list(range(50))
    [said] = caplog.records
    assert said.levelno == logging.WARNING
    assert str(tmp_path) in said.getMessage()
    assert "TMPDIR" in said.getMessage()


def test_closing_ends_a_read_that_waits() -> None:
    hung_up = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        assert hung_up.wait(SECONDS)

    spool = Spool(endless(), hung_up.set)
    assert next(spool) == batch(0)
    spool.close()
    assert hung_up.is_set()
    assert not _reading()


def test_closing_ends_a_source_that_waits_for_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    spool = Spool(iter(Source(50)), memory=SIZE)
    assert next(spool) == batch(0)
    spool.close()
    assert not _reading()


def test_a_spool_that_was_read_to_its_end_hangs_nobody_up() -> None:
    calls: list[str] = []
    hang_up: Callable[[], None] = lambda: calls.append("hung up")  # noqa: E731
    with closing(Spool(iter(Source(2)), hang_up)) as spool:
        assert numbers(spool) == [0, 1]
    assert not calls


def _reading() -> bool:
    return any(thread.name == "onceonly-spool" for thread in threading.enumerate())
