"""What one batch reads, by the logs of its query: found before anything is decided on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from onceonly.errors import refuse
from onceonly.machine import overlap
from onceonly.machine.estimate import Past, estimate, row_width, units
from onceonly.machine.facts import Offer
from onceonly.protocol import Estimate
from onceonly.spark.engine import Run
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.model import InputFile, Slice, SourceIdentity, SourceKind, SourceOffsets
from onceonly_checkpoints.spark import logs, offsets, previous_checkpoints
from onceonly_checkpoints.storage import LocalStorage, Readable

# ---- What a batch reads, by the logs of its query: the slice, where it begins, its files, and what its sources are.
#
# Entries of the offset log are taken from the checkpoint's files or from the query's own log object, in the text form
# that is also on disk, so both ways of reading go through one parser.


@dataclass(frozen=True, slots=True)
class InputLogs:
    """What is read for each batch; fields as in ``machine.facts.Offer``."""

    slice: Slice
    lineage: Lineage
    sources: tuple[SourceIdentity, ...]
    files: tuple[InputFile, ...]
    begins: SourceOffsets | None


def see(batch_id: int, run: Run) -> InputLogs:
    """What the engine says of this batch: by the files of its offset log, where they lie on a disk of this machine.

    Elsewhere the running query is asked; files only where it has no such log.

    Raises:
        CheckpointError: E601, E602: the offset log cannot be understood.
    """
    known = {number: text for number, text in run.entry.items() if number == batch_id - 1}
    wanted = [number for number in (batch_id - 1, batch_id) if number >= 0 and number not in known]
    found = _on_disk(run, wanted) or run.engine.entries(run, wanted)
    if found is None:
        return see_on_disk(run.files, batch_id, run)
    texts = {**known, **found}
    seen = _seen(texts, batch_id, run)
    run.entry.clear()
    run.entry[batch_id] = texts[batch_id]
    return seen


def _on_disk(run: Run, numbers: Sequence[int]) -> dict[int, str] | None:
    """Entries of the offset log on this machine's disk; ``None`` if they are not there."""
    if not isinstance(run.files, LocalStorage):
        return None
    try:
        return {number: run.files.read(f"offsets/{number}").decode() for number in numbers}
    except FileNotFoundError:
        return None


def see_on_disk(storage: Readable, batch_id: int, run: Run) -> InputLogs:
    """The same from the checkpoint's files; the fallback, and what :func:`see` is tested against.

    Raises:
        CheckpointError: E601, E602: the offset log cannot be understood.
    """
    texts: dict[int, str] = {}
    for number in (batch_id, batch_id - 1):
        if storage.exists(f"offsets/{number}"):
            texts[number] = storage.read(f"offsets/{number}").decode()
    return _seen(texts, batch_id, run)


def _seen(texts: dict[int, str], batch_id: int, run: Run) -> InputLogs:
    with _readable(run):
        slice_, clock = offsets.slice_from(texts, batch_id)
        files, begins = _input_files(run, slice_), _begins(run, slice_)
    lineage = Lineage(run.query_id, run.run_id, run.checkpoint, batch_id, clock.batch_timestamp_ms, clock.watermark_ms)
    return InputLogs(slice_, lineage, _identities(run, slice_, files), files, begins)


@contextmanager
def _readable(run: Run) -> Generator[None]:
    try:
        yield
    except offsets.UnreadableCheckpoint as error:
        if error.kind == "unknown-version":
            raise refuse("E601", path=error.path, found=error.reason) from error
        raise refuse("E602", path=error.path, reason=error.reason, checkpoint=run.checkpoint) from error


def earlier_files(run: Run, slice_: Slice) -> tuple[InputFile, ...]:
    """Files that the query's file sources handed out before a batch, by their own logs: all of them, so not for each.

    Raises:
        CheckpointError: E601, E602: a source's log cannot be understood.
    """
    nothing = SourceOffsets(tuple((source, None) for source in slice_.start.sources))
    with _readable(run):
        return _input_files(run, Slice(nothing, slice_.start))


def _begins(run: Run, slice_: Slice) -> SourceOffsets | None:
    """The slice's start, with what Kafka sources noted of their own where the offset log has nothing yet."""
    noted = {
        id_: offsets.kafka_start(run.files, id_)
        for id_, start in slice_.start.entries
        if start is None and run.plan.source(id_).brokers
    }
    if not any(noted.values()):
        return None
    return SourceOffsets.of({id_: noted.get(id_) or start for id_, start in slice_.start.entries})


def _input_files(run: Run, slice_: Slice) -> tuple[InputFile, ...]:
    files: list[InputFile] = []
    starts = dict(slice_.start.entries)
    for id_, end in slice_.end.entries:
        source = run.plan.source(id_)
        last = offsets.log_offset(end) if source.reads_files else None
        if last is not None:
            first = offsets.log_offset(starts.get(id_))
            found = logs.input_files(run.files, source.id, first, last)
            files += [replace(file, source=id_) for file in found]
    return tuple(files)


def _identities(run: Run, slice_: Slice, files: tuple[InputFile, ...]) -> tuple[SourceIdentity, ...]:
    identities: list[SourceIdentity] = []
    for id_, offset in slice_.end.entries:
        source = run.plan.source(id_)
        if source.reads_files:
            own = [file for file in files if file.source == id_]
            identities.append(SourceIdentity(id_, SourceKind.FILES.named(source.origin), chain.inputs(own)))
        elif source.brokers and offset:
            identities.append(SourceIdentity(id_, source.brokers.identity(json.loads(offset))))
        else:
            identities.append(SourceIdentity(id_, offsets.reservoir_id(offset)))
    return tuple(identities)


# ---- How large a batch's input is and whether it is still there, asked before any action.

Size = Callable[[str], int | None]
"""Bytes of a file, by its path; ``None`` if there is none."""


def stat(files: Sequence[InputFile], elsewhere: Size) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Sizes in bytes of the input files that exist, and the paths of those that do not.

    Spark reads zero rows in place of a missing file and carries on, so this is asked before every action.

    Args:
        files: the files.
        elsewhere: asked for a file that is not of this machine's disk.
    """
    sizes: list[int] = []
    missing: list[str] = []
    for file in files:
        size = _size(file.path, elsewhere)
        if size is None:
            missing.append(file.path)
        else:
            sizes.append(size)
    return tuple(sizes), tuple(missing)


def _size(path: str, elsewhere: Size) -> int | None:
    parsed = urlparse(path)
    if parsed.scheme in ("", "file"):
        try:
            return Path(unquote(parsed.path)).stat().st_size
        except FileNotFoundError:
            return None
    return elsewhere(path)


# ---- The input as a value, behind which no log or source is asked again.
#
# A batch goes one way: ``df`` -> input -> offer -> decision -> prepare -> commit.


@dataclass(frozen=True, slots=True)
class Input:
    """Everything that is known of a batch before its action.

    Attributes:
        slice: the range that it reads.
        lineage: the engine's names for it.
        sources: identity of each source.
        files: file lists of file sources.
        missing: paths of files that are gone.
        begins: where sources without an offset began by their own note; ``None`` if there is nothing to add.
        earlier: files that the checkpoint's file sources handed out before; ``None`` if that was not looked up.
        covered: what the slice covers, in offsets or bytes of files; ``None`` where that cannot be told.
        estimate: how large the rows will be.
        earlier_checkpoints: the newest batches of the checkpoint's lower siblings; looked up for its first batch.
    """

    slice: Slice
    lineage: Lineage
    sources: tuple[SourceIdentity, ...]
    files: tuple[InputFile, ...]
    missing: tuple[str, ...]
    begins: SourceOffsets | None
    earlier: tuple[InputFile, ...] | None
    covered: int | None
    estimate: Estimate
    earlier_checkpoints: tuple[previous_checkpoints.PreviousBatch, ...] = ()

    def offer(self, columns: Sequence[tuple[str, str]], *, stateful: bool) -> Offer:
        """What the coordinator decides on.

        Args:
            columns: name and type of each column that is written.
            stateful: whether the plan keeps state.
        """
        return Offer(
            slice=self.slice,
            lineage=self.lineage,
            sources=self.sources,
            schema=chain.fingerprint(columns),
            stateful=stateful,
            missing=self.missing,
            files=self.files,
            begins=self.begins,
            earlier=self.earlier,
            earlier_checkpoints=self.earlier_checkpoints,
        )


def read_input(
    df: Any,
    batch_id: int,
    run: Run,
    columns: Sequence[tuple[str, str]],
    *,
    past: Past | None = None,
    looks_back: bool = False,
    demands: Callable[[Sequence[SourceIdentity]], None] = lambda _: None,
) -> Input:
    """Ask the query's logs and sources what a batch reads. Runs no action.

    Args:
        df: the batch as it was handed out, in the form that the run's engine knows.
        batch_id: its id.
        run: the run that it belongs to.
        columns: name and type of each column that will be written, for the estimate.
        past: what the last epoch of the run covered and gave; ``None`` before the first.
        looks_back: whether to look up the files of all batches before this one, too.
        demands: refuses sources that the query must not have, before more of their logs is read.

    Raises:
        CheckpointError: E601, E602: a log cannot be understood.
    """
    seen = see(batch_id, run)
    demands(seen.sources)
    sizes, missing = stat(seen.files, partial(run.engine.file_size, df))
    back = looks_back and overlap.reads_files(seen.sources)
    covered = units(seen.slice, sizes)
    return Input(
        slice=seen.slice,
        lineage=seen.lineage,
        sources=seen.sources,
        files=seen.files,
        missing=missing,
        begins=seen.begins,
        earlier=earlier_files(run, seen.slice) if back else None,
        covered=covered,
        estimate=estimate(covered, past, row_width(columns), files=bool(sizes), stateful=run.plan.stateful),
        earlier_checkpoints=previous_checkpoints.old_batches(run.files, run.checkpoint) if batch_id == 0 else (),
    )
