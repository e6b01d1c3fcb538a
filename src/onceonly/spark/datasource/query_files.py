"""Running query from its checkpoint files, without session or plan."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onceonly.errors import refuse
from onceonly.spark.datasource.partition_files import PartitionFile
from onceonly.spark.engine import NOTHING_TOLD, Caller, QueryHint, QueryPlan, Run, Source, UnknownBrokers
from onceonly_checkpoints import storage
from onceonly_checkpoints.spark import offsets


@dataclass(frozen=True, slots=True)
class Query:
    """``QueryEngine`` of a start that commits through a data source. The root ``checkpoint`` is a URI."""

    checkpoint: str
    name: str | None
    query_id: str
    run_id: str
    batch_id: int
    files: storage.Readable = field(repr=False, compare=False)

    @classmethod
    def of(cls, checkpoint: str, name: str | None, parts: Sequence[PartitionFile], batch_id: int) -> Query:
        """Identify the query of a written batch. ``checkpoint`` is as the user spelled it.

        Raises:
            ConfigurationError: E150, the checkpoint's store cannot be read here.
            RuntimeError: Spark handed over messages of several batches, or none.
        """
        starts = {(part.query_id, part.run_id) for part in parts if part.batch_id == batch_id}
        if len(starts) != 1 or any(part.batch_id != batch_id for part in parts):
            raise RuntimeError(f"the tasks of batch {batch_id} report {len(starts)} starts of a query")
        (query_id, run_id) = starts.pop()
        return cls(storage.root_by_spark(checkpoint), name, query_id, run_id, batch_id, _storage(checkpoint))

    # ---- who is calling

    def caller(self, df: object, hint: QueryHint = NOTHING_TOLD) -> Caller:
        """Return the run in place of its session: this process never has rows of another."""
        return Caller(self.run_id, self.batch_id)

    def group(self, df: object) -> str:
        """Return the run's id, as in the tasks."""
        return self.run_id

    def application(self, df: object) -> str:
        """Return a name by which people find the process."""
        return 'format("onceonly")'

    def discover(self, df: object, hint: QueryHint = NOTHING_TOLD) -> Run:
        """Return the run. ``handle`` is set once another run has followed."""
        return Run(
            run_id=self.run_id,
            query_id=self.query_id,
            name=self.name,
            checkpoint=self.checkpoint,
            mode=None,
            temporary=False,
            session=self.run_id,
            plan=self.plan(),
            engine=self,
            handle=threading.Event(),
            files=self.files,
        )

    def still_running(self, df: object, query_id: str, run_id: str) -> bool:
        """Return ``False``, as this is unknown. The fence stops an old writer."""
        return False

    def await_end(self, run: Run) -> None:
        """Wait until another run has followed: this process is not informed when a query ends."""
        run.handle.wait()

    # ---- what a batch reads

    def entries(self, run: Run, numbers: Sequence[int]) -> Mapping[int, str] | None:
        """Return ``None``, so that the checkpoint's files are read."""
        return None

    def file_size(self, df: object, path: str) -> int | None:
        """Read the size by fsspec. 0 if its store cannot be read here: then a missing file is not noticed."""
        try:
            files, location = storage.file_system(path)
            return int(files.size(location))
        except FileNotFoundError:
            return None
        except (storage.UnreachableStorage, OSError):
            return 0

    def late_rows(self, run: Run) -> int:
        """Return 0, as their number is unknown."""
        return 0

    # ---- what the checkpoint shows of the plan

    def plan(self) -> QueryPlan:
        """Return state and sources from the checkpoint's files and the offsets of the current batch."""
        texts = _entry(self.files, self.batch_id)
        sources = tuple(_source(self.files, id_, text) for id_, text in texts.items())
        unseen = (_UNSEEN, _UNASKED) if any(source.brokers for source in sources) else (_UNSEEN,)
        return QueryPlan(stateful=self.files.exists("state"), nondeterministic=None, sources=sources, unseen=unseen)


_UNSEEN = (
    "a source reads lost input as nothing (failOnDataLoss=false, ignoreMissingFiles=true), or forgets its rows: "
    "a data source does not see the plan, so it is not refused (E116, E126, E127)"
)

_UNASKED = (
    "a topic is deleted and created again: a data source does not see the brokers' address, so the "
    "topic's id is not compared (E212)"
)


def _storage(checkpoint: str) -> storage.Readable:
    try:
        return storage.LocalStorage(checkpoint) if storage.is_local(checkpoint) else storage.open_storage(checkpoint)
    except storage.UnreachableStorage as error:
        raise refuse(
            "E150",
            problem=f"the checkpoint {checkpoint} cannot be read here",
            cause=str(error),
            next="install the driver of fsspec for that store where the driver of Spark runs, or use foreachBatch",
        ) from error


def _entry(files: storage.Readable, batch_id: int) -> dict[str, str | None]:
    """Return offsets by source. Empty for an unreadable entry, which is refused when it is read for its slice."""
    try:
        return dict(offsets.offset_entry(files, batch_id).offsets.entries)
    except offsets.UnreadableCheckpoint:
        return {}


def _source(files: storage.Readable, id_: str, text: str | None) -> Source:
    """Identify a source by its own JSON, or, without an offset yet, by its own log."""
    where = f"source {id_}"
    if offsets.log_offset(text) is not None or (text is None and _logs_files(files, id_)):
        return Source(id_, "FileStreamSource", "files")
    if offsets.partitions_of(text):
        return Source(id_, "KafkaSource", where, brokers=UnknownBrokers())
    return Source(id_, "source", where)


def _logs_files(files: storage.Readable, id_: str) -> bool:
    try:
        return '"path"' in (offsets.source_start(files, id_) or "")
    except offsets.UnreadableCheckpoint:
        return False
