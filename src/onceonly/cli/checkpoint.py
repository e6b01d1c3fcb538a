"""``onceonly checkpoint`` and ``recover rebuild-checkpoint``: show, verify, write Spark's files."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.audit.catalogue import CLEAN, FINDINGS
from onceonly.cli import records
from onceonly.cli.change import confirmed
from onceonly.cli.connect import Connection, connect
from onceonly.cli.options import LedgerOption, LimitOption, OutputOption, QueryOption, SinkOption, YesOption
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, plural, say
from onceonly.errors import refuse
from onceonly.errors.options import misused
from onceonly.machine.source_order import describe
from onceonly.runtime import ledger_sync
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.epoch_time import clock
from onceonly_checkpoints.ledger import location
from onceonly_checkpoints.model import InputFile, SourceOffsets
from onceonly_checkpoints.spark import offsets as spark_offsets
from onceonly_checkpoints.spark import rebuild as checkpoint_rebuild
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint, input_files
from onceonly_checkpoints.spark.rebuild import CannotRebuild, FileToWrite
from onceonly_checkpoints.spark.state import read_state
from onceonly_checkpoints.spark.verify import Effect, Problem
from onceonly_checkpoints.spark.verify import verify as find_damage
from onceonly_checkpoints.storage import FileStore, LocalStorage, file_in_the_way, open_storage

# ---- How a checkpoint lies to what was committed.


def compare_with_committed(storage: FileStore, pipeline: str, newest: EpochRecord) -> Iterator[Problem]:
    """Whether Spark will go on from this checkpoint where the sinks stand."""
    lineage = newest.epoch.lineage
    remedy = f"onceonly recover rebuild-checkpoint {shlex.quote(storage.url)} --query {shlex.quote(pipeline)}"
    if lineage is None:
        return
    query_id = spark_offsets.query_id(storage)
    if query_id != lineage.query_id:
        yield Problem(
            "metadata",
            f"query id {query_id}, but epoch {newest.epoch.number} came from {lineage.query_id}",
            Effect.REPEATS,
            "Spark reads from this other checkpoint's position. onceonly stops it if rows would be lost or duplicated.",
            remedy,
        )
        return
    yield from _compare_entry(storage, newest, lineage.batch_id, remedy)


def _compare_entry(storage: FileStore, newest: EpochRecord, batch: int, remedy: str) -> Iterator[Problem]:
    path = f"offsets/{batch}"
    end = newest.epoch.planned.end
    if not storage.exists(path):
        yield Problem(
            path,
            f"missing, but epoch {newest.epoch.number} came from this batch",
            Effect.REPEATS,
            "Spark plans the batch again, perhaps with other rows; onceonly stops it then.",
            remedy,
        )
        return
    entry = spark_offsets.offset_entry(storage, batch)
    if entry.offsets != end:
        yield Problem(
            path,
            f"ends at {describe(entry.offsets)}, but epoch {newest.epoch.number} at {describe(end)}",
            Effect.LOSES,
            "One batch has two ranges, so onceonly stops the query.",
            f"{remedy} --entry {batch}",
        )


# ---- The command.

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="The query's checkpointLocation.")]


@contextmanager
def opened(path: str) -> Generator[FileStore]:
    """Storage of a checkpoint. Raises E601, E602 or E603: it cannot be read, or holds something else."""
    storage = open_storage(path)
    if isinstance(storage, LocalStorage) and (obstacle := file_in_the_way(Path(storage.url))):
        raise refuse("E603", path=path, reason=f"{obstacle} is a file")
    try:
        yield storage
    except UnreadableCheckpoint as error:
        if error.kind == "not-a-checkpoint":
            raise refuse("E603", path=path, reason=error.reason) from error
        if error.kind == "unknown-version":
            raise refuse("E601", path=error.path, found=error.reason) from error
        raise refuse("E602", path=error.path, reason=error.reason, checkpoint=path) from error


def default_ledger(storage: FileStore, ledger: str | None, sinks: Sequence[str] | None) -> str | None:
    """The ledger that was named, else the one that ``exactly_once`` puts beside a local checkpoint, if it is there."""
    if ledger is not None or sinks or not isinstance(storage, LocalStorage):
        return ledger
    ledger_path = location.default_path(Path(storage.url))
    return str(ledger_path) if ledger_path.is_file() else None


VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Look for damage that Spark would not mention, or only at the next start.")
]


def command(
    path: PathArgument,
    *,
    verify: VerifyOption = False,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = 10,
) -> None:
    """Show a checkpoint: query id, batches, which of them is pending.

    --verify looks for damage, with --query also whether Spark will continue where your sinks are. Its exit code:
    0 sound, 1 problems.
    """
    with opened(path) as storage:
        if not verify:
            _show(_contents(storage, limit), output)
            return
        problems = list(find_damage(storage))
        if query is not None and not problems:
            with connect(default_ledger(storage, ledger, sink), query, sink, forgiving=True) as connection:
                problems = list(compare_with_committed(storage, query, records.one_epoch(connection, None)))
    if output is Output.JSON:
        emit_json({"checkpoint": storage.url, "problems": [problem.to_json() for problem in problems]})
    else:
        _show_problems(problems)
    raise typer.Exit(FINDINGS if problems else CLEAN)


def _show(document: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        emit_json(document)
        return
    batches = document.pop("batches")
    emit_pairs(document.items())
    say()
    columns = ("batch", "committed", "planned", "watermark", "up to")
    emit_table(columns, (_row(batch) for batch in batches))


def _contents(storage: FileStore, limit: int) -> dict[str, Any]:
    query_id = spark_offsets.query_id(storage)
    planned, committed = spark_offsets.offset_ids(storage), set(spark_offsets.commit_ids(storage))
    return {
        "checkpoint": storage.url,
        "query id": query_id,
        "planned": len(planned),
        "committed": len(committed),
        "pending": next((batch for batch in planned[-1:] if batch not in committed), None),
        "batches": [_batch(storage, batch, batch in committed) for batch in planned[-limit:]],
    }


def _batch(storage: FileStore, batch: int, committed: bool) -> dict[str, Any]:
    try:
        entry = spark_offsets.offset_entry(storage, batch)
    except UnreadableCheckpoint as error:
        return {"batch": batch, "committed": committed, "problem": error.reason}
    return {
        "batch": batch,
        "committed": committed,
        "batch_timestamp_ms": entry.batch_timestamp_ms,
        "watermark_ms": entry.watermark_ms,
        "offsets": entry.offsets.to_json(),
    }


def _row(batch: dict[str, Any]) -> tuple[object, ...]:
    committed = "yes" if batch["committed"] else "no"
    if "problem" in batch:
        return batch["batch"], committed, "-", "-", f"unreadable: {batch['problem']}"
    ends = describe(SourceOffsets.from_json(batch["offsets"]))
    return batch["batch"], committed, clock(batch["batch_timestamp_ms"]), clock(batch["watermark_ms"]), ends


def _show_problems(problems: Sequence[Problem]) -> None:
    for problem in problems:
        say(f"{problem.path}: {problem.description}", style="red")
        say(f"  Spark: {problem.consequence}")
        say(f"  next: {problem.remedy}")
    say(plural(len(problems), "problem") if problems else "no problem found")


# ---- ``onceonly recover rebuild-checkpoint``: write a checkpoint from epochs.

_PARTS = {"metadata", "offsets", "commits", "sources", "state"}
"""Names that Spark gives to the parts of a checkpoint."""


def plan_rebuild(connection: Connection, storage: FileStore, at: int | None, batch: int | None) -> list[FileToWrite]:
    """Plan the whole checkpoint at epoch ``at``, by default the newest, or the entry of ``batch`` alone.

    Raises E603: the directory is something else, E604: the records do not say enough.
    """
    names = set(storage.names(""))
    if names and not names & _PARTS:
        raise refuse("E603", path=storage.url, reason=f"it holds other things: {', '.join(sorted(names)[:3])}")
    known = records.read(connection)
    try:
        return _plan_all(storage, known, at) if batch is None else _plan_entry(connection, storage, known, batch)
    except CannotRebuild as error:
        raise refuse(
            "E604", pipeline=connection.pipeline, reason=error.reason, cause=error.cause, next=error.next
        ) from error


def _plan_all(storage: FileStore, records: Sequence[EpochRecord], at: int | None) -> list[FileToWrite]:
    epoch = at if at is not None else records[-1].epoch.number if records else 0
    records = ledger_sync.completed(records)
    target = next((record for record in records if record.epoch.number == epoch), None)
    files = _still_there(storage, records, target) if target else []
    # Where a sink lacks what others hold, the driver that runs the batch again brings that sink to it.
    pending = target is not None and bool(target.lacking)
    return checkpoint_rebuild.plan_rebuild(records, epoch, files, repeat_last=pending)


def _still_there(storage: FileStore, records: Sequence[EpochRecord], target: EpochRecord) -> list[InputFile]:
    """Files that the damaged checkpoint's own source logs hold and no record does."""
    recorded = {(file.source, file.log_offset) for record in records for file in record.files}
    files: list[InputFile] = []
    for source, offset in target.epoch.planned.end.entries:
        last = spark_offsets.log_offset(offset)
        for number in range(0 if last is None else last + 1):
            if (source, number) not in recorded:
                with suppress(UnreadableCheckpoint):
                    files += input_files(storage, source, number - 1 if number else None, number)
    return files


def _plan_entry(
    connection: Connection, storage: FileStore, records: Sequence[EpochRecord], batch: int
) -> list[FileToWrite]:
    query_id = spark_offsets.query_id(storage)
    lineages = ((record, record.epoch.lineage) for record in reversed(records))
    for record, lineage in lineages:
        if lineage is not None and (lineage.query_id, lineage.batch_id) == (query_id, batch):
            return [*checkpoint_rebuild.plan_inputs(record, storage), checkpoint_rebuild.plan_entry(record)]
    raise CannotRebuild(
        f"no epoch came from batch {batch} of query id {query_id}",
        "the batch was never written, or the checkpoint is another query's",
        f"onceonly epochs list --query {shlex.quote(connection.pipeline)}",
    )


def rebuild(
    path: PathArgument,
    *,
    query: QueryOption = None,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="N", help="The last epoch that counts as done; default: the newest."),
    ] = None,
    entry: Annotated[
        int | None,
        typer.Option("--entry", min=0, metavar="BATCH", help="Write back only this batch's entry in the offset log."),
    ] = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Write a checkpoint with which Spark continues exactly where your sinks are. Stop the query first."""
    if at is not None and entry is not None:
        raise misused(
            "recover rebuild-checkpoint takes --at or --entry, not both.",
            "--at rebuilds the whole checkpoint at an epoch, --entry one batch's entry",
            "leave one of them out",
        )
    with (
        opened(path) as storage,
        connect(default_ledger(storage, ledger, sink), query, sink, forgiving=True) as connection,
    ):
        plan = plan_rebuild(connection, storage, at, entry)
        obstacles = checkpoint_rebuild.in_the_way(plan, storage)
        planned = {file.path for file in plan}
        rows = [(_verb(file.path, storage, obstacles), file.path) for file in plan]
        rows += [("delete", path) for path in obstacles if path not in planned]
        rows += _lost_state(connection, storage, at) if entry is None else []
        emit_table(("does", "file"), rows, title=f"in {storage.url}")
        if confirmed(yes):
            written = checkpoint_rebuild.apply(plan, storage, replacing=True)
            say(f"{plural(len(written), 'file')} written to {storage.url}; now start the query")


def _lost_state(connection: Connection, storage: FileStore, at: int | None) -> list[tuple[str, str]]:
    """The state that Spark would begin with and that no epoch holds, as a row of the plan."""
    known = [record.epoch for record in records.read(connection) if record.epoch.lineage]
    newest = next((epoch for epoch in reversed(known) if at in (None, epoch.number)), None)
    state = newest.lineage.state if newest and newest.lineage else None
    there = read_state(storage, state.version) if state else None
    return [("restore", f"state, from a backup: {state.text}")] if state and there and there.text != state.text else []


def _verb(path: str, storage: FileStore, obstacles: Sequence[str]) -> str:
    if path in obstacles:
        return "replace"
    return "keep" if storage.exists(path) else "write"
