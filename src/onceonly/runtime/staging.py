"""Stage an epoch's rows once, for every sink and retry.

Each attempt has its own directory, which Spark's Parquet writer fills. The files are flushed, and then an atomically
created manifest makes them the epoch's files. Files that no marker names were never visible and are garbage. The idea
is MillWheel's strong productions.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onceonly.errors import ConfigurationError, OnceOnlyError, refuse
from onceonly.machine.division_rules import staged_in
from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.protocol import Attempt, Batch, Estimate, Sink, Task
from onceonly.protocol.batch import Divided
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.runtime import staged_outputs
from onceonly.runtime.staged_files import Directory, LocalDirectory, directory, hindrance
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest, bad_in, column_of
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.manifest import NAME, Manifest, Reference, StagedFile, UnreachableManifest, UnreadableManifest
from onceonly_checkpoints.model import Slice, canonical

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.protocol import DataFrame

ROWS_PER_BATCH = 64 * 1024
"""Rows that are read from a staged file at a time."""

_NAME = re.compile(r"e(?P<epoch>\d{12})-g(?P<generation>\d+)-[0-9a-f]+")


@runtime_checkable
class Stageable(Protocol):
    """A batch that can be written to files by its one action, and read back from them."""

    def write(self, directory: str) -> None:
        """Write all rows as Parquet files into a new directory, path or URL. Fills the digest."""
        ...

    def reread(self, paths: tuple[str, ...], schema: pa.Schema) -> Batch:
        """Return a batch over Parquet files of ``schema``. Files of another call may have other columns."""
        ...


@runtime_checkable
class Shapeable(Protocol):
    """A batch of which Spark can read a part only."""

    def shaped(self, shape: Callable[[DataFrame], DataFrame]) -> Batch:
        """Return the batch of the shaped rows."""
        ...


class RereadableBatch(Batch, Protocol):
    """A materialised batch, which may be read any number of times."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def outputs(self) -> tuple[OutputDigest, ...]:
        """Outputs that some sinks get instead of all rows."""
        ...

    def output(self, name: str | None) -> Batch:
        """Return the rows of a sink: an output by its name, or all rows."""
        ...

    def times_of(self, clock: Clock) -> RowTimes:
        """Return the event times of the good rows."""
        ...


@dataclass(frozen=True, slots=True)
class StagedData:
    """A staged batch, and the reference to it that markers carry."""

    reference: Reference
    batch: RereadableBatch


class StagingArea(Protocol):
    """Where a runner stages epochs: :class:`StagedEpochs`, or the fault lab's memory."""

    def write(self, batch: Batch, epoch: int, fence: Fence, slice_: Slice) -> StagedData:
        """Run the batch's action into durable files."""
        ...

    def drop(self, reference: str) -> None:
        """Remove an epoch's files that no sink needs any longer."""
        ...

    def sweep(self, generation: int, keep: str | None) -> None:
        """Remove files of lower generations, except ``keep``."""
        ...


class StagedEpochs:
    """Staged epochs of one pipeline below a directory that driver and executors share.

    Pipelines of several environments may share the place and the name. The addresses of their sinks differ, and the
    directory name has their hash. Files that were staged for none of our sinks are never removed.

    ``root`` is a path, a ``file:`` URI or the URL of a store, and is created when needed. The ``keep`` newest epochs
    stay. Raises E114: rows cannot be staged there.
    """

    def __init__(self, root: str, pipeline: str, sinks: Sequence[Sink], keep: int = 1) -> None:
        self._pipeline = pipeline
        self._keep = keep
        self._sinks = tuple(sorted((sink.id, sink.address) for sink in sinks))
        self._base_directory = directory(root)
        self._kin = folder_of(pipeline)
        self._root = self._base_directory.child(f"{self._kin}{_hash(canonical(self._sinks))}")

    def write(self, batch: Batch, epoch: int, fence: Fence, slice_: Slice) -> StagedData:
        """Run the batch's action into files and make them durable.

        Raises:
            TypeError: the batch cannot be written to files.
            DestinationError: E515, this process cannot write or list files there. Spark reports failures of executors.
        """
        if not isinstance(batch, Stageable):
            raise TypeError(f"{type(batch).__name__} cannot be staged")
        made = self._root.child(f"e{epoch:012d}-g{fence.generation}-{secrets.token_hex(6)}")
        try:
            with self._refusing(epoch, made):
                self._root.make()
            self._act(batch, epoch, made)
            with self._refusing(epoch, made):
                files = _flushed(made)
            digest, schema = batch.digest(), base64.b64encode(batch.schema.serialize().to_pybytes()).decode()
            parts = batch.outputs() if isinstance(batch, Divided) else ()
            present, rows = sum(file.rows for file in files), staged_in(digest, parts)
            if present < rows:  # executors that do not share the driver's disk write on their own
                raise self._refused(epoch, made, FileNotFoundError(), f"{present} of its {rows} rows are there")
            manifest = Manifest(
                self._pipeline, self._sinks, epoch, fence.generation, slice_, digest, schema, files, parts
            )
            with self._refusing(epoch, made):
                made.create(NAME, manifest.text.encode())
                # A marker will name this directory: its own name must not be lost in a power failure.
                self._root.flush_names()
        except BaseException:
            made.remove(NAME)
            raise
        return StagedData(Reference.to(manifest, made.address), _batch(manifest, made, batch))

    def _act(self, batch: Stageable, epoch: int, made: Directory) -> None:
        try:
            batch.write(made.address)
        except OSError as error:
            # Spark or the user's code reports a failed action, unless the error names a file of ours.
            if str(error.filename or "").startswith(self._root.address):
                raise self._refused(epoch, made, error) from error
            raise

    @contextmanager
    def _refusing(self, epoch: int, made: Directory) -> Generator[None]:
        """Refuse with E515 on ``OSError``. Only this process may touch files in the body, and only the attempt's."""
        try:
            yield
        except OSError as error:
            raise self._refused(epoch, made, error) from error

    def _refused(self, epoch: int, made: Directory, error: OSError, reason: str = "") -> OnceOnlyError:
        cause, next_ = hindrance(error)
        details = {"directory": made.address, "reason": reason or _reason(error), "cause": cause, "next": next_}
        return refuse("E515", epoch=epoch, pipeline=self._pipeline, **details)

    def drop(self, reference: str) -> None:
        """Remove an epoch's files once every sink holds it and its successor.

        The reference comes from a sink, which may be a copy of another environment's. Its files are removed only if
        they were staged for one of our sinks.
        """
        with suppress(UnreadableManifest):
            above, _, name = Reference.parse(reference).directory.rpartition("/")
            location, _, folder = above.rpartition("/")
            named = _NAME.fullmatch(name)
            if location == self._base_directory.address and folder.startswith(self._kin) and named:
                self._drop(self._base_directory.child(folder), name, int(named["epoch"]))

    def _drop(self, folder: Directory, name: str, epoch: int) -> None:
        """Remove an epoch that every sink holds, or with ``keep`` the older ones that exceed it."""
        if self._keep == 1:
            self._remove(folder, name)
            return
        for other in folder.names():
            named = _NAME.fullmatch(other)
            if named and int(named["epoch"]) <= epoch + 1 - self._keep:
                self._remove(folder, other)

    def sweep(self, generation: int, keep: str | None) -> None:
        """Remove files of lower generations, except those that ``keep`` names, the newest markers' reference.

        This includes files staged under another list of sinks. An attempt from then without a manifest does not prove
        for whose sinks it was made, and stays.
        """
        kept_name = Reference.parse(keep).directory.rpartition("/")[2] if keep else ""
        match = _NAME.fullmatch(kept_name)
        newest = int(match["epoch"]) if match else 0
        for folder in self._folders():
            for name in folder.names():
                named = _NAME.fullmatch(name)
                if named is None or int(named["generation"]) >= generation or name == kept_name:
                    continue
                # A marker names one attempt of each older epoch. The ledger may not know which, so all of them stay.
                if not newest - self._keep < int(named["epoch"]) < newest:
                    self._remove(folder, name)

    def _folders(self) -> list[Directory]:
        """Our own directory, and those of this name that may have been ours."""
        kin = [self._base_directory.child(name) for name in self._base_directory.names() if name.startswith(self._kin)]
        return [self._root, *(folder for folder in kin if folder.address != self._root.address)]

    def _remove(self, folder: Directory, name: str) -> None:
        attempt = folder.child(name)
        if folder.address == self._root.address or self._staged_for_ours(attempt):
            attempt.remove(NAME)

    def _staged_for_ours(self, attempt: Directory) -> bool:
        try:
            manifest = Manifest.parse(attempt.read(NAME).decode())
        except (OSError, UnicodeDecodeError, UnreadableManifest):
            return False
        return manifest.pipeline == self._pipeline and not set(manifest.sinks).isdisjoint(self._sinks)


def fetch(reference: str, live: Batch | None) -> StagedBatch:
    """Read staged files by the reference in a marker (``Epoch.manifest``).

    ``live`` is a batch of a running query, whose Spark session can then read the files. ``None`` reads without Spark.
    Raises ``UnreadableManifest``: files are missing or changed. The subclass :class:`UnreachableManifest` means that
    the store does not answer this process, so nothing is known of the files.
    """
    parsed_reference = Reference.parse(reference)
    try:
        folder = directory(parsed_reference.directory)
    except ConfigurationError as error:
        raise UnreachableManifest(f"{parsed_reference.directory}: {error.details['cause']}") from error
    try:
        manifest = parsed_reference.check(folder.read(NAME).decode())
        for file in manifest.files:
            if folder.size(file.path) != file.size:
                raise UnreadableManifest(f"{parsed_reference.directory}/{file.path} is gone or has another size")
    except UnicodeDecodeError as error:
        raise UnreadableManifest(f"{parsed_reference.directory}/{NAME} is damaged") from error
    except (UnreadableManifest, OnceOnlyError):
        raise
    except FileNotFoundError as error:
        raise UnreadableManifest(f"{parsed_reference.directory}/{NAME}: {_reason(error)}") from error
    except Exception as error:
        # Drivers of stores raise their own error classes, most of them not OSError.
        raise UnreachableManifest(f"{parsed_reference.directory}/{NAME}: {_reason(error)}") from error
    return _batch(manifest, folder, live)


def _reason(error: Exception) -> str:
    """Reason that a disk or a store gives, without its address, which may carry a token."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__


def _batch(manifest: Manifest, folder: Directory, live: Batch | None) -> StagedBatch:
    if isinstance(folder, LocalDirectory):
        return BatchOnDisk(manifest, folder, live)
    return StagedBatch(manifest, folder, live)


class StagedBatch:
    """The ``Batch`` contract over staged files. May be read any number of times.

    ``live`` is the batch of the running query. Without Spark it is ``None``, and this process plays the executors.
    """

    def __init__(self, manifest: Manifest, folder: Directory, live: Batch | None) -> None:
        self._manifest = manifest
        self._directory = folder
        self._live = live
        import pyarrow as pa

        self._schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(manifest.schema)))

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self._schema

    @property
    def rows(self) -> int:
        """Number of rows, from the footers of the files."""
        return self._manifest.rows

    @property
    def gone(self) -> bool:
        """Whether the files were removed, or are being removed: the manifest goes first."""
        return self._directory.size(NAME) is None

    @property
    def estimate(self) -> Estimate:
        """Exact rows, and their bytes in Arrow form by the schema."""
        return Estimate(self.rows, self.rows * max(1, schema_width(self._schema, TEXT_BYTES)))

    @property
    def dataframe(self) -> DataFrame:
        """Spark's view of the files (E516: there is no Spark session here)."""
        return self._reread().dataframe

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, file by file."""
        for file in self._manifest.files:
            yield from self._read(file)

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run the task over the files: by Spark if there is a session, else here, one file after the other."""
        if isinstance(self._live, Stageable):
            return self._reread().on_executors(task)
        return [task(Attempt(at, at), self._read(file)) for at, file in enumerate(self._manifest.files)]

    def picked(self, pick: staged_outputs.Pick, task: Task) -> list[Mapping[str, Any]]:
        """Run the task over the picked part of the rows. Spark reads no other columns."""
        rows = self._reread() if isinstance(self._live, Stageable) else self
        if isinstance(rows, Shapeable):
            return rows.shaped(pick.frame).on_executors(task)
        return rows.on_executors(staged_outputs.Picking(pick, task))

    def digest(self) -> Digest:
        """Digest of the action that staged the rows."""
        return self._manifest.digest

    @property
    def outputs(self) -> tuple[OutputDigest, ...]:
        """Outputs that some sinks get instead of all rows."""
        return self._manifest.outputs

    def output(self, name: str | None) -> Batch:
        """Return the rows of a sink: an output by its name (``KeyError``), or all rows."""
        if not self.outputs:
            return self
        return staged_outputs.of(self, self.outputs, name)

    def times_of(self, clock: Clock) -> RowTimes:
        """Return the event times of the good rows. Reads only the clock's column and the one that marks bad rows."""
        columns = [clock.column, *([f"{column_of(BAD)}.reasons"] if bad_in(self.outputs) else [])]
        pieces = (piece for file in self._manifest.files for piece in self._pieces(file, columns))
        return staged_outputs.times_of(pieces, clock, self.outputs)

    def _reread(self) -> Batch:
        if not isinstance(self._live, Stageable):
            raise refuse("E516", epoch=self._manifest.epoch, pipeline=self._manifest.pipeline)
        paths = tuple(f"{self._directory.address}/{file.path}" for file in self._manifest.files)
        return self._live.reread(paths, self._schema)

    def _read(self, file: StagedFile) -> Iterator[pa.RecordBatch]:
        return (piece.cast(self._schema) for piece in self._pieces(file))

    def _pieces(self, file: StagedFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with self._directory.open(file.path) as stream, pq.ParquetFile(stream) as rows:
            yield from rows.iter_batches(ROWS_PER_BATCH, columns=columns)


class BatchOnDisk(StagedBatch):
    """Staged files on a shared disk, which a sink may take as they are."""

    def __init__(self, manifest: Manifest, folder: LocalDirectory, live: Batch | None) -> None:
        super().__init__(manifest, folder, live)
        self._folder = folder.path

    @property
    def paths(self) -> Sequence[Path]:
        """The files. Each holds rows."""
        return [self._folder / file.path for file in self._manifest.files]


def _flushed(folder: Directory) -> tuple[StagedFile, ...]:
    """Flush the files that Spark wrote, and list them with the row counts of their footers."""
    import pyarrow.parquet as pq

    listed: list[StagedFile] = []
    for name in folder.names():
        if not name.endswith(".parquet"):
            continue
        with folder.open(name) as stream:
            rows = int(pq.read_metadata(stream).num_rows)
        if not rows:
            continue
        folder.flush(name)
        size = folder.size(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        listed.append(StagedFile(name, size, rows))
    return tuple(listed)


def folder_of(pipeline: str) -> str:
    """Return the prefix of a pipeline's directories: readable, and different for different pipelines."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", pipeline)[:40]
    return f"{plain}-{_hash(pipeline)[:8]}-"


def _hash(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]
