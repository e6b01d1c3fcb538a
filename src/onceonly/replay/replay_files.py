"""Write temporary replay checkpoints, from which Spark runs one step.

The files are planned from the ledger's records (pure), then written beside the query's own checkpoint.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.model import SourceKind, SourceOffsets
from onceonly_checkpoints.spark import logs, rebuild
from onceonly_checkpoints.spark import offsets as spark_offsets
from onceonly_checkpoints.spark import state as state_files
from onceonly_checkpoints.spark.rebuild import FileToWrite
from onceonly_checkpoints.spark.replay_plan import CannotReplay, MissingInput, Step
from onceonly_checkpoints.storage import FileStore, Readable, file_system, is_local, local_path, path_next_to


def replays_of(checkpoint: str) -> str:
    """The directory of a checkpoint's replay checkpoints, beside it."""
    return path_next_to(checkpoint, spark_offsets.REPLAY)


def discard(url: str) -> None:
    """Delete a directory with all its content, if there is one."""
    if is_local(url):
        shutil.rmtree(local_path(url), ignore_errors=True)
        return
    system, path = file_system(url)
    if system.exists(path):
        system.rm(path, recursive=True)


def plan_files(step: Step, query_id: str, conf: Mapping[str, str], start_notes: Mapping[str, str]) -> list[FileToWrite]:
    """The files with which Spark, started once, runs a step and nothing else. State and its commit are no part of it.

    ``query_id`` is the replay checkpoint's own. ``conf`` are settings that Spark restores for the batch.
    ``start_notes`` are start notes of sources in the query's checkpoint, by source id. Raises :class:`CannotReplay` if
    a source counts from a start that only a lost checkpoint held.
    """
    plan = [file for source, end in step.slice.end.entries for file in _source(step, source, end, start_notes)]
    if step.fresh:
        plan.append(FileToWrite("metadata", json.dumps({"id": query_id}, separators=(",", ":"))))
        if step.batch_id > 0:
            number = step.batch_id - 1
            plan.append(_entry(number, step.slice.start, step.before, conf))
            if not step.stateful:
                plan.append(FileToWrite(f"commits/{number}", rebuild.commit_text(step.before)))
    plan.append(_entry(step.batch_id, step.slice.end, step.lineage, conf))
    return plan


def _entry(number: int, offsets: SourceOffsets, lineage: Lineage, conf: Mapping[str, str]) -> FileToWrite:
    return rebuild.with_conf(FileToWrite(f"offsets/{number}", rebuild.offsets_text(offsets, lineage)), conf)


def _source(step: Step, source: str, end: str | None, start_notes: Mapping[str, str]) -> Iterator[FileToWrite]:
    last = spark_offsets.log_offset(end)
    if last is not None:
        own = [file for file in step.files if file.source == source]
        # One compacted file at the very end fits every interval between compacted files, and need not hold what the
        # batch does not read.
        yield FileToWrite(f"sources/{source}/{last}{logs.COMPACT}", logs.render_files(own))
    elif source in start_notes:
        if step.fresh:
            yield FileToWrite(f"sources/{source}/0", start_notes[source])
    elif end is not None and (re.fullmatch(r"-?\d+", end) or _began(step, source)):
        reason = f"source {source} counts from a start that only the lost checkpoint held"
        raise CannotReplay(MissingInput.INPUT, step.first, step.last, reason)


def _began(step: Step, source: str) -> bool:
    """Whether a source is read from its beginning, which depends on its options and on the day."""
    kinds = {identity.source: identity.kind for identity in step.records[0].epoch.sources}
    return dict(step.slice.start.entries).get(source) is None and kinds.get(source) is SourceKind.KAFKA


# ---- Writing them. A replay checkpoint is temporary: a crash leaves one that nobody goes on with.


@dataclass(frozen=True, slots=True)
class Origin:
    """Reads the query's own checkpoint. From a lost one nothing is read."""

    files: Readable

    def conf(self, batch_id: int) -> Mapping[str, str]:
        """Settings of a batch, or if its entry is gone those of the newest readable one."""
        for number in (batch_id, *reversed(spark_offsets.offset_ids(self.files))):
            try:
                return dict(spark_offsets.offset_entry(self.files, number).conf)
            except logs.UnreadableCheckpoint:
                continue
        return {}

    def read_start_notes(self, step: Step) -> Mapping[str, str]:
        """Start notes of sources, by source id. File sources have logs instead."""
        start_notes: dict[str, str] = {}
        for source, end in step.slice.end.entries:
            if spark_offsets.log_offset(end) is None:
                text = spark_offsets.source_start(self.files, source)
                if text is not None:
                    start_notes[source] = text
        return start_notes

    def state(self, step: Step) -> Iterator[tuple[str, bytes]]:
        """Path and content of each file of the state with which a step's batch began, and of the commit that names it.

        Raises :class:`CannotReplay` if it is not kept, or is another query's.
        """
        number = step.batch_id
        if reason := self._lacks(step):
            raise CannotReplay(MissingInput.STATE, step.first, step.last, reason)
        yield f"commits/{number - 1}", self.files.read(f"commits/{number - 1}")
        for path in _below(self.files, "state"):
            version = _version(path)
            if version is None or version <= number:
                yield path, self.files.read(path)

    def _lacks(self, step: Step) -> str:
        number = step.batch_id
        try:
            query_id = spark_offsets.query_id(self.files)
        except logs.UnreadableCheckpoint as error:
            return f"the checkpoint {self.files.url} cannot be read ({error})"
        if query_id != step.lineage.query_id:
            return f"the checkpoint {self.files.url} is of query {query_id}, and not of {step.lineage.query_id}"
        if not self.files.exists(f"commits/{number - 1}"):
            return f"the checkpoint {self.files.url} has no commit of batch {number - 1} any more"
        versions = {_version(path) for path in _below(self.files, "state")}
        if number not in versions:
            return f"the checkpoint {self.files.url} has no version {number} of its state"
        return ""


def _version(path: str) -> int | None:
    match = state_files.VERSION.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else None


def _below(files: Readable, directory: str) -> Iterator[str]:
    for name in files.names(directory):
        path = f"{directory}/{name}"
        if files.names(path):
            yield from _below(files, path)
        else:
            yield path


def prepare(
    step: Step, storage: FileStore, origin: Origin, *, query_id: str, conf: Mapping[str, str], about: str
) -> None:
    """Write the files with which Spark runs a step.

    ``storage`` is the replay checkpoint, empty or as the step before this one left it, and ``query_id`` its own.
    ``origin`` is the query's own checkpoint. If its settings are lost, ``conf`` gives those of the session. ``about``
    names the replaced checkpoint, for people who find this one. Raises :class:`CannotReplay` if the batch's input or
    state is gone.
    """
    plan = plan_files(step, query_id, {**conf, **origin.conf(step.lineage.batch_id)}, origin.read_start_notes(step))
    if step.fresh:
        storage.create(spark_offsets.REPLAY, about.encode())
        for path, content in origin.state(step) if step.copies_state else ():
            storage.create(path, content)
    for file in plan:
        _forget_log(storage, file.path)
        storage.create(file.path, file.text.encode())


def _forget_log(storage: FileStore, path: str) -> None:
    """Drop a source's log of the step before: two compacted files would fix an interval between them."""
    directory = path.rpartition("/")[0]
    if path.endswith(logs.COMPACT):
        for name in storage.names(directory):
            storage.delete(f"{directory}/{name}")
