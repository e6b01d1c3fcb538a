"""What a batch reads, by the logs of its query: the slice, where it begins, its files, and what its sources are.

Entries of the offset log are taken from the checkpoint's files or from the query's own log object, in the text form
that is also on disk, so both ways of reading go through one parser.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceonly import engine
from onceonly.errors import refuse
from onceonly.frames import java_class
from onceonly.sources import FILES
from onceonly_checkpoints import chain, filelog, sparklog
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.slices import InputFile, Slice, SourceIdentity, SourceOffsets
from onceonly_checkpoints.storage import LocalStorage, Readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is read for each batch; fields as in ``facts.Offer``."""

    slice: Slice
    lineage: Lineage
    sources: tuple[SourceIdentity, ...]
    files: tuple[InputFile, ...]
    begins: SourceOffsets | None


def see(df: DataFrame, batch_id: int, run: engine.Run) -> Seen:
    """What the engine says of this batch: by the files of its offset log, where they lie on a disk of this machine.

    Elsewhere the running query is asked, in half a dozen calls into the JVM; files only where it has no such log.

    Raises:
        CheckpointError: E601, E602: the offset log cannot be understood.
    """
    from py4j.protocol import Py4JError

    known = {number: text for number, text in run.entry.items() if number == batch_id - 1}
    wanted = [number for number in (batch_id - 1, batch_id) if number >= 0 and number not in known]
    try:
        texts = {**known, **(_on_disk(run, wanted) or _asked(df, run.offsets, wanted))}
    except Py4JError as error:
        log.info("the query's own offset log cannot be asked (%s): reading %s", type(error).__name__, run.checkpoint)
        return see_on_disk(run.files, batch_id, run)
    seen = _seen(texts, batch_id, run)
    run.entry.clear()
    run.entry[batch_id] = texts[batch_id]
    return seen


def _on_disk(run: engine.Run, numbers: Sequence[int]) -> dict[int, str] | None:
    """Entries of the offset log on this machine's disk; ``None`` if they are not there."""
    if not isinstance(run.files, LocalStorage):
        return None
    try:
        return {number: run.files.read(f"offsets/{number}").decode() for number in numbers}
    except FileNotFoundError:
        return None


def see_on_disk(storage: Readable, batch_id: int, run: engine.Run) -> Seen:
    """The same from the checkpoint's files; the fallback, and what :func:`see` is tested against.

    Raises:
        CheckpointError: E601, E602: the offset log cannot be understood.
    """
    texts: dict[int, str] = {}
    for number in (batch_id, batch_id - 1):
        if storage.exists(f"offsets/{number}"):
            texts[number] = storage.read(f"offsets/{number}").decode()
    return _seen(texts, batch_id, run)


def _asked(df: DataFrame, log: Any, numbers: Sequence[int]) -> dict[int, str]:
    """Entries of the offset log in the JVM; what it has not is left out."""
    texts: dict[int, str] = {}
    for number in numbers:
        found = log.get(number)
        if not found.isEmpty():
            stream = java_class(df, "java.io.ByteArrayOutputStream")()
            log.serialize(found.get(), stream)
            texts[number] = str(stream.toString("UTF-8"))
    return texts


def _seen(texts: dict[int, str], batch_id: int, run: engine.Run) -> Seen:
    with _readable(run):
        slice_, clock = sparklog.slice_from(texts, batch_id)
        files, begins = _input_files(run, slice_), _begins(run, slice_)
    lineage = Lineage(run.query_id, run.run_id, run.checkpoint, batch_id, clock.batch_timestamp_ms, clock.watermark_ms)
    return Seen(slice_, lineage, _identities(run, slice_, files), files, begins)


@contextmanager
def _readable(run: engine.Run) -> Generator[None]:
    try:
        yield
    except sparklog.UnreadableCheckpoint as error:
        code = "E601" if error.kind == "unknown-version" else "E602"
        raise refuse(
            code, path=error.path, found=error.reason, reason=error.reason, checkpoint=run.checkpoint
        ) from error


def earlier_files(run: engine.Run, slice_: Slice) -> tuple[InputFile, ...]:
    """Files that the query's file sources handed out before a batch, by their own logs: all of them, so not for each.

    Raises:
        CheckpointError: E601, E602: a source's log cannot be understood.
    """
    nothing = SourceOffsets(tuple((source, None) for source in slice_.start.sources))
    with _readable(run):
        return _input_files(run, Slice(nothing, slice_.start))


def _begins(run: engine.Run, slice_: Slice) -> SourceOffsets | None:
    """The slice's start, with what Kafka sources noted of their own where the offset log has nothing yet."""
    noted = {
        id_: sparklog.kafka_start(run.files, id_)
        for id_, start in slice_.start.entries
        if start is None and run.plan.source(id_).brokers
    }
    if not any(noted.values()):
        return None
    return SourceOffsets.of({id_: noted.get(id_) or start for id_, start in slice_.start.entries})


def _input_files(run: engine.Run, slice_: Slice) -> tuple[InputFile, ...]:
    files: list[InputFile] = []
    starts = dict(slice_.start.entries)
    for id_, end in slice_.end.entries:
        source = run.plan.source(id_)
        last = sparklog.log_offset(end) if source.reads_files else None
        if last is not None:
            first = sparklog.log_offset(starts.get(id_))
            found = filelog.input_files(run.files, source.id, first, last)
            files += [replace(file, source=id_) for file in found]
    return tuple(files)


def _identities(run: engine.Run, slice_: Slice, files: tuple[InputFile, ...]) -> tuple[SourceIdentity, ...]:
    identities: list[SourceIdentity] = []
    for id_, offset in slice_.end.entries:
        source = run.plan.source(id_)
        if source.reads_files:
            own = [file for file in files if file.source == id_]
            identities.append(SourceIdentity(id_, FILES + source.origin, chain.inputs(own)))
        elif source.brokers and offset:
            identities.append(SourceIdentity(id_, source.brokers.identity(json.loads(offset))))
        else:
            identities.append(SourceIdentity(id_, sparklog.reservoir_id(offset)))
    return tuple(identities)
