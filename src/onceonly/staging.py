"""Staging: an epoch's rows written once, by the batch's one action, so that every sink and every retry reads the same.

Each attempt has a directory of its own; Spark's Parquet writer fills it, the files are flushed, and a manifest created
beside them whole makes them an epoch's bytes. What no marker names was never visible and is garbage. Idea: the strong
productions of MillWheel.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onceonly.errors import refuse
from onceonly.estimate import schema_width
from onceonly.protocol import Attempt, Batch, Estimate, Task
from onceonly_checkpoints.epoch import Digest, Fence, Slice
from onceonly_checkpoints.manifest import NAME, Manifest, Reference, StagedFile, UnreadableManifest
from onceonly_checkpoints.storage import LocalStorage, flush_directory, local_path, make_directories

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_TEXT_BYTES = 64
ROWS_PER_BATCH = 64 * 1024
"""Rows that are read from a staged file at a time."""

_NAME = re.compile(r"e(?P<epoch>\d{12})-g(?P<generation>\d+)-[0-9a-f]+")


@runtime_checkable
class Stageable(Protocol):
    """A batch that can be written to files by its one action, and read back where it was written."""

    def write(self, directory: str) -> None:
        """Write all rows as Parquet files into a directory that does not exist yet; fills the digest."""
        ...

    def reread(self, paths: tuple[str, ...]) -> Batch:
        """A batch over Parquet files with this one's schema."""
        ...


class Still(Batch, Protocol):
    """A batch that lies still: it may be read any number of times."""

    @property
    def rows(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch as it lies still.

    Attributes:
        reference: what markers carry.
        batch: the rows, for sinks.
    """

    reference: Reference
    batch: Still


class Stages(Protocol):
    """Where a runner stages epochs: :class:`Staging`, or the fault lab's memory."""

    def write(self, batch: Batch, epoch: int, fence: Fence, slice_: Slice) -> Staged:
        """Run the batch's action into bytes that last."""
        ...

    def drop(self, reference: str) -> None:
        """Remove an epoch's bytes that nobody needs any more."""
        ...

    def sweep(self, generation: int, keep: str | None) -> None:
        """Remove what lower generations left, except ``keep``."""
        ...


class Staging:
    """Staged epochs of one pipeline below a directory that driver and executors share.

    Args:
        root: path or ``file:`` URI; made when it is needed.
        pipeline: its name.
    """

    def __init__(self, root: str, pipeline: str) -> None:
        self._root = local_path(root).absolute() / _folder(pipeline)
        self._pipeline = pipeline

    def write(self, batch: Batch, epoch: int, fence: Fence, slice_: Slice) -> Staged:
        """Run the batch's action into files and make them durable.

        Raises:
            TypeError: the batch cannot be written to files.
            DestinationError: E515, this process has no room or no right there. What an executor fails of, Spark says.
        """
        if not isinstance(batch, Stageable):
            raise TypeError(f"{type(batch).__name__} cannot be staged")
        directory = self._root / f"e{epoch:012d}-g{fence.generation}-{secrets.token_hex(6)}"
        try:
            make_directories(self._root)
            batch.write(str(directory))
            files = _flushed(directory)
            manifest = Manifest(
                self._pipeline, epoch, fence.generation, slice_, batch.digest(), _spelled(batch.schema), files
            )
            LocalStorage(directory).create(NAME, manifest.text.encode())
            # A marker will name this directory: its own name must not be lost in a power failure.
            flush_directory(self._root)
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise refuse(
                "E515", epoch=epoch, pipeline=self._pipeline, directory=directory, reason=os.strerror(error.errno or 0)
            ) from error
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return Staged(Reference.to(manifest, str(directory)), StagedBatch(manifest, directory, batch))

    def drop(self, reference: str) -> None:
        """Remove an epoch's bytes that every sink holds and whose successor every sink holds, too.

        A reference comes out of a sink: what it names is removed only where this pipeline stages its epochs.
        """
        with suppress(UnreadableManifest):
            directory = Path(Reference.parse(reference).directory)
            if directory.parent == self._root and _NAME.fullmatch(directory.name):
                _remove(directory)

    def sweep(self, generation: int, keep: str | None) -> None:
        """Remove what lower generations left, except what ``keep``, the newest markers' reference, names."""
        kept = Path(Reference.parse(keep).directory).name if keep else ""
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in self._root.iterdir():
                named = _NAME.fullmatch(path.name)
                if named and int(named["generation"]) < generation and path.name != kept:
                    _remove(path)


def fetch(reference: str, live: Batch | None) -> StagedBatch:
    """Read back the bytes that a marker names.

    Args:
        reference: ``Epoch.manifest``.
        live: a batch of a running query, whose Spark session can then read the files; ``None`` without Spark.

    Raises:
        UnreadableManifest: they are gone or not what they were.
    """
    found = Reference.parse(reference)
    directory = Path(found.directory)
    try:
        manifest = found.check((directory / NAME).read_text())
    except OSError as error:
        raise UnreadableManifest(f"{directory / NAME}: {os.strerror(error.errno or 0)}") from error
    for file in manifest.files:
        path = directory / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            raise UnreadableManifest(f"{path} is gone or has another size")
    return StagedBatch(manifest, directory, live)


class StagedBatch:
    """The ``Batch`` contract over staged files; may be read any number of times.

    Args:
        manifest: what the files hold.
        directory: where they lie.
        live: the batch of the running query; ``None`` without Spark, and then executors are played by this process.
    """

    def __init__(self, manifest: Manifest, directory: Path, live: Batch | None) -> None:
        self._manifest = manifest
        self._live = live
        self.paths = tuple(directory / file.path for file in manifest.files)
        self._schema = _read_schema(manifest.schema)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self._schema

    @property
    def rows(self) -> int:
        """Rows in the files, from their footers."""
        return self._manifest.rows

    @property
    def estimate(self) -> Estimate:
        """Exact rows, and their bytes in Arrow form by the schema."""
        return Estimate(self.rows, self.rows * max(1, schema_width(self._schema, _TEXT_BYTES)))

    @property
    def dataframe(self) -> DataFrame:
        """Spark's view of the files.

        Raises:
            DestinationError: E516, there is no Spark session here.
        """
        return self._reread().dataframe

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        for path in self.paths:
            yield from _read(path, self._schema)

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run the task over the files: by Spark where there is one, else here, one file after the other."""
        if isinstance(self._live, Stageable):
            return self._reread().on_executors(task)
        return [task(Attempt(at, at), _read(path, self._schema)) for at, path in enumerate(self.paths)]

    def digest(self) -> Digest:
        """Digest of the action that staged the rows."""
        return self._manifest.digest

    def _reread(self) -> Batch:
        if not isinstance(self._live, Stageable):
            raise refuse("E516", epoch=self._manifest.epoch, pipeline=self._manifest.pipeline)
        return self._live.reread(tuple(str(path) for path in self.paths))


def _read(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_PER_BATCH):
            yield batch.cast(schema)


def _flushed(directory: Path) -> tuple[StagedFile, ...]:
    """Flush what Spark wrote, and list it from the files' own footers."""
    import pyarrow.parquet as pq

    listed: list[StagedFile] = []
    for path in sorted(directory.glob("*.parquet")):
        rows = int(pq.read_metadata(path).num_rows)
        if not rows:
            continue
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        listed.append(StagedFile(path.name, path.stat().st_size, rows))
    return tuple(listed)


def _spelled(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _read_schema(text: str) -> pa.Schema:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _folder(pipeline: str) -> str:
    """A directory name for a pipeline: readable, and different for different names."""
    import hashlib

    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", pipeline)[:40]
    return f"{plain}-{hashlib.sha256(pipeline.encode()).hexdigest()[:8]}"


def _remove(directory: Path) -> None:
    # The manifest goes first: without it the files are nobody's, whatever a crash leaves of them.
    with suppress(FileNotFoundError):
        (directory / NAME).unlink()
    shutil.rmtree(directory, ignore_errors=True)
