"""Input of one batch from its query's logs."""

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
from onceonly_checkpoints.epoch import Columns, Lineage
from onceonly_checkpoints.model import InputFile, Slice, SourceIdentity, SourceKind, SourceOffsets
from onceonly_checkpoints.spark import logs, offsets
from onceonly_checkpoints.storage import LocalStorage, Readable

# ---- What a batch reads, by the logs of its query: the slice, where it begins, its files, and what its sources are.
#
# Entries of the offset log are taken from the checkpoint's files or from the query's own log object, in the text form
# that is also on disk, so both ways of reading go through one parser.


@dataclass(frozen=True, slots=True)
class InputLogs:
    """Input of each batch, with fields as in ``machine.facts.Offer``."""

    slice: Slice
    lineage: Lineage
    sources: tuple[SourceIdentity, ...]
    files: tuple[InputFile, ...]
    begins: SourceOffsets | None


def see(batch_id: int, run: Run) -> InputLogs:
    """Read a batch's input from the files of its offset log, if they are on a disk of this machine.

    Otherwise the running query is asked. Files elsewhere are read only if it has no such log. E601, E602: the offset
    log cannot be understood.
    """
    cached_texts = {number: text for number, text in run.entry.items() if number == batch_id - 1}
    numbers = [number for number in (batch_id - 1, batch_id) if number >= 0 and number not in cached_texts]
    entries = _on_disk(run, numbers) or run.engine.entries(run, numbers)
    if entries is None:
        return see_on_disk(run.files, batch_id, run)
    texts = {**cached_texts, **entries}
    input_logs = _parse_input(texts, batch_id, run)
    run.entry.clear()
    run.entry[batch_id] = texts[batch_id]
    return input_logs


def _on_disk(run: Run, numbers: Sequence[int]) -> dict[int, str] | None:
    """Read entries of the offset log on this machine's disk, or ``None`` if they are not there."""
    if not isinstance(run.files, LocalStorage):
        return None
    try:
        return {number: run.files.read(f"offsets/{number}").decode() for number in numbers}
    except FileNotFoundError:
        return None


def see_on_disk(storage: Readable, batch_id: int, run: Run) -> InputLogs:
    """Read the same, with the same errors, from the checkpoint's files: the fallback, to test :func:`see` against."""
    texts: dict[int, str] = {}
    for number in (batch_id, batch_id - 1):
        if storage.exists(f"offsets/{number}"):
            texts[number] = storage.read(f"offsets/{number}").decode()
    return _parse_input(texts, batch_id, run)


def _parse_input(texts: dict[int, str], batch_id: int, run: Run) -> InputLogs:
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
    """List all earlier files by the sources' own logs (E601, E602: not understood). Too costly for each batch."""
    nothing = SourceOffsets(tuple((source, None) for source in slice_.start.sources))
    with _readable(run):
        return _input_files(run, Slice(nothing, slice_.start))


def _begins(run: Run, slice_: Slice) -> SourceOffsets | None:
    """Return the slice's start, with the Kafka sources' own notes where the offset log has nothing yet."""
    kafka_starts = {
        id_: offsets.kafka_start(run.files, id_)
        for id_, start in slice_.start.entries
        if start is None and run.plan.source(id_).brokers
    }
    if not any(kafka_starts.values()):
        return None
    return SourceOffsets.of({id_: kafka_starts.get(id_) or start for id_, start in slice_.start.entries})


def _input_files(run: Run, slice_: Slice) -> tuple[InputFile, ...]:
    files: list[InputFile] = []
    starts = dict(slice_.start.entries)
    for id_, end in slice_.end.entries:
        source = run.plan.source(id_)
        last = offsets.log_offset(end) if source.reads_files else None
        if last is not None:
            first = offsets.log_offset(starts.get(id_))
            source_files = logs.input_files(run.files, source.id, first, last)
            files += [replace(file, source=id_) for file in source_files]
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
    """Return sizes in bytes of existing input files, and the paths of missing ones.

    Spark reads zero rows in place of a missing file and carries on, so this runs before every action. ``elsewhere``
    returns the size of a file that is not on this machine's disk.
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
    """All facts about a batch before its action.

    ``missing`` has paths. ``begins`` is the start of sources without an offset by their own note, or ``None``.
    ``earlier`` has files that sources gave before, or ``None`` if not looked up. ``covered`` is in offsets or bytes, or
    ``None`` if unknown. ``earlier_checkpoints`` are lower siblings' newest batches, for the first batch only.
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
    earlier_checkpoints: tuple[offsets.PreviousBatch, ...] = ()

    def offer(self, columns: Columns, *, stateful: bool) -> Offer:
        """Build the coordinator's offer from the written columns."""
        return Offer(
            slice=self.slice,
            lineage=self.lineage,
            sources=self.sources,
            schema=chain.fingerprint((name, kind) for name, kind, _ in columns),
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
    """Read a batch's input from the query's logs and sources. Runs no action.

    The estimate uses name and type of each written column, and coverage and rows of the run's last epoch (``past``).
    With ``looks_back`` the files of all earlier batches are looked up, too. ``demands`` refuses forbidden sources
    before more of their logs is read. Raises E601, E602: a log cannot be understood.
    """
    input_logs = see(batch_id, run)
    demands(input_logs.sources)
    sizes, missing = stat(input_logs.files, partial(run.engine.file_size, df))
    back = looks_back and overlap.reads_files(input_logs.sources)
    covered = units(input_logs.slice, sizes)
    return Input(
        slice=input_logs.slice,
        lineage=input_logs.lineage,
        sources=input_logs.sources,
        files=input_logs.files,
        missing=missing,
        begins=input_logs.begins,
        earlier=earlier_files(run, input_logs.slice) if back else None,
        covered=covered,
        estimate=estimate(covered, past, row_width(columns), files=bool(sizes), stateful=run.plan.stateful),
        earlier_checkpoints=offsets.old_batches(run.files, run.checkpoint) if batch_id == 0 else (),
    )
