"""``onceonly checkpoint``: reads Spark's checkpoint files, compares and rebuilds them from what was committed."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.audit.verdict import CLEAN, FINDINGS
from onceonly.cli import records, restore
from onceonly.cli.confirm import confirmed
from onceonly.cli.epochs import clock
from onceonly.cli.options import LedgerOption, LimitOption, OutputOption, QueryOption, SinkOption, YesOption
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, plural, say, talk
from onceonly.cli.places import place
from onceonly.errors import refuse
from onceonly.sources import describe
from onceonly_checkpoints import sparklog, surgery
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.slices import SourceOffsets
from onceonly_checkpoints.sparklog import OffsetEntry, UnreadableCheckpoint
from onceonly_checkpoints.storage import LocalStorage, Storage, file_in_the_way, open_storage
from onceonly_checkpoints.surgery import FileToWrite, Problem

app = typer.Typer(no_args_is_help=True, help="Spark's checkpoint files.")

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="The query's checkpointLocation.")]


@contextmanager
def opened(path: str) -> Generator[Storage]:
    """Storage of a checkpoint; what cannot be read is put into the words of E601 to E603.

    Raises:
        CheckpointError: E601, E602 or E603.
    """
    storage = open_storage(path)
    if isinstance(storage, LocalStorage) and (found := file_in_the_way(Path(storage.url))):
        raise refuse("E603", path=path, reason=f"{found} is a file")
    try:
        yield storage
    except UnreadableCheckpoint as error:
        if error.kind == "not-a-checkpoint":
            raise refuse("E603", path=path, reason=error.reason) from error
        code = "E601" if error.kind == "unknown-version" else "E602"
        raise refuse(code, path=error.path, found=error.reason, reason=error.reason, checkpoint=path) from error


def beside(storage: Storage, ledger: str | None, sinks: Sequence[str] | None) -> str | None:
    """The ledger that was named, else the one that ``exactly_once`` puts beside a local checkpoint, if it is there."""
    if ledger is not None or sinks or not isinstance(storage, LocalStorage):
        return ledger
    root = Path(storage.url)
    found = root.with_name(f"{root.name}.onceonly.db")
    return str(found) if found.is_file() else None


@app.command()
def show(path: PathArgument, *, output: OutputOption = Output.TABLE, limit: LimitOption = 10) -> None:
    """Show a checkpoint: query id, batches, which of them is pending."""
    with opened(path) as storage:
        found = _contents(storage, limit)
    if output is Output.JSON:
        emit_json(found)
        return
    batches = found.pop("batches")
    emit_pairs(found.items())
    say()
    columns = ("batch", "committed", "planned", "watermark", "up to")
    emit_table(columns, (_row(batch) for batch in batches))


def _contents(storage: Storage, limit: int) -> dict[str, Any]:
    query_id = sparklog.query_id(storage)
    planned, committed = sparklog.offset_ids(storage), set(sparklog.commit_ids(storage))
    return {
        "checkpoint": storage.url,
        "query id": query_id,
        "planned": len(planned),
        "committed": len(committed),
        "pending": next((batch for batch in planned[-1:] if batch not in committed), None),
        "batches": [_batch(storage, batch, batch in committed) for batch in planned[-limit:]],
    }


def _batch(storage: Storage, batch: int, committed: bool) -> dict[str, Any]:
    try:
        entry = sparklog.offset_entry(storage, batch)
    except UnreadableCheckpoint as error:
        return {"batch": batch, "committed": committed, "problem": error.reason}
    return {"batch": batch, "committed": committed, **_entry(entry)}


def _entry(entry: OffsetEntry) -> dict[str, Any]:
    return {
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


@app.command()
def offsets(
    *,
    query: QueryOption = None,
    epoch: Annotated[int | None, typer.Option("--epoch", min=1, metavar="N", help="Default: the newest.")] = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print where an epoch ended, also when the checkpoint is gone.

    For one Kafka source the line can be pasted as startingOffsets.
    """
    with place(ledger, query, sink, forgiving=True) as here:
        record = records.one(here, epoch)
    ends = {source: plain(text) for source, text in record.epoch.slice.end.entries}
    if output is Output.JSON:
        emit_json({"pipeline": record.pipeline, "epoch": record.epoch.number, "offsets": ends})
        return
    print(json.dumps(next(iter(ends.values())) if len(ends) == 1 else ends, separators=(",", ":")))
    talk(_advice(record))


def plain(text: str | None) -> Any:
    """An offset as JSON where it is JSON, else its text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _advice(record: EpochRecord) -> str:
    where = f"end of epoch {record.epoch.number} of {record.pipeline}"
    hints = [hint for _, text in record.epoch.slice.end.entries if (hint := _hint(plain(text)))]
    return f"{where}; {'; '.join(dict.fromkeys(hints))}" if hints else where


def _hint(offset: object) -> str:
    if not isinstance(offset, dict):
        return ""
    if "logOffset" in offset:
        rebuild = "onceonly checkpoint rebuild PATH --query NAME"
        return f"a file source has no starting offsets, its position lies in the checkpoint: {rebuild}"
    if "reservoirVersion" in offset:
        return f"a Delta source starts with startingVersion {offset['reservoirVersion']} (index {offset.get('index')})"
    if offset and all(isinstance(partitions, dict) for partitions in offset.values()):
        return "paste it as .option('startingOffsets', '...') of the Kafka source"
    return ""


@app.command()
def verify(
    path: PathArgument,
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Look for damage that Spark would not mention, or only at the next start.

    With --query also: whether Spark will go on where the sinks stand. Exit code: 0 sound, 1 problems.
    """
    with opened(path) as storage:
        problems = list(surgery.verify(storage))
        if query is not None and not problems:
            with place(beside(storage, ledger, sink), query, sink, forgiving=True) as here:
                problems = list(restore.compare(storage, query, records.one(here, None)))
    if output is Output.JSON:
        emit_json({"checkpoint": storage.url, "problems": [_problem_json(problem) for problem in problems]})
    else:
        _show_problems(problems)
    raise typer.Exit(FINDINGS if problems else CLEAN)


def _problem_json(problem: Problem) -> dict[str, str]:
    return {
        "path": problem.path,
        "found": problem.found,
        "effect": str(problem.effect),
        "consequence": problem.consequence,
        "remedy": problem.remedy,
    }


def _show_problems(problems: Sequence[Problem]) -> None:
    for problem in problems:
        say(f"{problem.path}: {problem.found}", style="red")
        say(f"  Spark: {problem.consequence}")
        say(f"  next: {problem.remedy}")
    say(plural(len(problems), "problem") if problems else "no problem found")


@app.command()
def rebuild(
    path: PathArgument,
    *,
    query: QueryOption = None,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="N", help="The last epoch that counts as done; default: the newest."),
    ] = None,
    entry: Annotated[
        int | None, typer.Option("--entry", min=0, metavar="BATCH", help="Write back this batch's entry alone.")
    ] = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Write a checkpoint with which Spark goes on exactly where the sinks stand. Stop the query first."""
    if at is not None and entry is not None:
        raise refuse(
            "E110",
            problem="checkpoint rebuild takes --at or --entry, not both.",
            cause="--at rebuilds the whole checkpoint at an epoch, --entry one batch's entry",
            next="leave one of them out",
        )
    with opened(path) as storage, place(beside(storage, ledger, sink), query, sink, forgiving=True) as here:
        plan = restore.plan(here, storage, at, entry)
        obstacles = surgery.in_the_way(plan, storage)
        _show_plan(storage, plan, obstacles)
        if confirmed(yes):
            written = surgery.apply(plan, storage, replacing=True)
            say(f"{plural(len(written), 'file')} written to {storage.url}; now start the query")


def _show_plan(storage: Storage, plan: Sequence[FileToWrite], obstacles: Sequence[str]) -> None:
    planned = {file.path for file in plan}
    rows = [(_verb(file.path, storage, obstacles), file.path) for file in plan]
    rows += [("delete", path) for path in obstacles if path not in planned]
    emit_table(("does", "file"), rows, title=f"in {storage.url}")


def _verb(path: str, storage: Storage, obstacles: Sequence[str]) -> str:
    if path in obstacles:
        return "replace"
    return "keep" if storage.exists(path) else "write"
