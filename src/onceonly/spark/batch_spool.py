"""Spool of record batches: read ahead in a thread, buffer or spill.

Spark writes collected rows from the one thread that schedules the jobs of the whole application. While these rows
wait for their reader, no other query makes progress. With a sink that paused for 5 s, a count of ten rows in another
thread took 5.4 s. So a thread of the spool reads at once. Batches that the sink has not taken yet wait in memory or,
beyond a bound, in a temporary file.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

log = logging.getLogger(__name__)

MEMORY = 32 * 1024 * 1024
"""Bytes that may wait in memory."""

_PATIENCE = 5.0
"""Seconds that a read that was hung up may take to notice."""


@dataclass(frozen=True, slots=True)
class _Spilled:
    file: IO[bytes]
    schema: pa.Schema
    offset: int
    length: int


class Spool:
    """Iterate over the batches of a source, which is read ahead from the start.

    Args:
        source: read to its end by a thread of the spool.
        hang_up: unblocks a waiting read of ``source``. Called on a close before the end.
        memory: bytes that may wait in memory.

    Raises:
        Exception: while iterating: any error of ``source``, after the batches before it.
    """

    def __init__(
        self, source: Iterator[pa.RecordBatch], hang_up: Callable[[], None] = lambda: None, memory: int = MEMORY
    ) -> None:
        self._source = source
        self._hang_up = hang_up
        self._memory = memory
        self._changed = threading.Condition()
        self._waiting: deque[pa.RecordBatch | _Spilled] = deque()
        self._held = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._file: IO[bytes] | None = None
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="onceonly-spool", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                if self._error is not None:
                    raise self._error
                raise StopIteration
            item = self._waiting.popleft()
            if not isinstance(item, _Spilled):
                self._held -= item.get_total_buffer_size()
                self._changed.notify_all()
                return item
        return self._read_back(item)

    def close(self) -> None:
        """Stop reading and release all batches. May repeat."""
        with self._changed:
            self._closed = True
            ended = self._ended
            self._changed.notify_all()
        if not ended:
            self._hang_up()
        self._thread.join(_PATIENCE)
        self._waiting.clear()
        if self._file is not None:
            self._file.close()

    # ---- the reading thread

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for batch in self._source:
                if not self._take(batch):
                    break
        except BaseException as raised:  # noqa: BLE001  it is raised where the batches are asked for
            error = raised
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def _take(self, batch: pa.RecordBatch) -> bool:
        """Keep a batch, and return whether the spool is still open."""
        if not self._fits(batch) and (spilled := self._spill(batch)):
            return self._append(spilled)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._fits(batch))
            self._held += batch.get_total_buffer_size()
        return self._append(batch)

    def _append(self, item: pa.RecordBatch | _Spilled) -> bool:
        with self._changed:
            self._waiting.append(item)
            self._changed.notify_all()
            return not self._closed

    def _fits(self, batch: pa.RecordBatch) -> bool:
        """Check for room in memory. A batch larger than the bound fits if it is alone."""
        return not self._held or self._held + batch.get_total_buffer_size() <= self._memory

    def _spill(self, batch: pa.RecordBatch) -> _Spilled | None:
        """Write a batch to the file. ``None`` without room, and then the source waits."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="onceonly-", buffering=0)  # noqa: SIM115  closed with the spool
            offset = self._file.seek(0, os.SEEK_END)
            written = batch.serialize()
            length = self._file.write(written)
        except OSError as full:
            self._warn(full)
            return None
        return _Spilled(self._file, batch.schema, offset, length) if length == written.size else None

    def _warn(self, full: OSError) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "no room for rows that the sink has not taken yet (%s): until it takes some, Spark starts no job of "
                "any query; free some, or point TMPDIR to another disk and restart",
                full,
            )

    @staticmethod
    def _read_back(spilled: _Spilled) -> pa.RecordBatch:
        import pyarrow as pa

        held = os.pread(spilled.file.fileno(), spilled.length, spilled.offset)
        return pa.ipc.read_record_batch(pa.py_buffer(held), spilled.schema)
