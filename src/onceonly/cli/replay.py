"""``onceonly replay``: run epochs again, compare them, publish a backfill."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceonly.audit import Severity, gather
from onceonly.cli import user_code
from onceonly.cli.audit import FailOnOption, HtmlOption, LimitOption, UncountedOption, exit_code, report
from onceonly.cli.change import Change, carry_out
from onceonly.cli.connect import Connection, connect, reads_topics
from onceonly.cli.options import LedgerOption, OutputOption, QueryOption, SinkOption, YesOption, epoch_range
from onceonly.cli.output import Output, emit_json, emit_table, plural, say
from onceonly.errors.options import misused
from onceonly.protocol import Sink
from onceonly.protocol.registry import sink_from_address
from onceonly.replay import publication
from onceonly.replay.publication import Publication
from onceonly.runtime import remedies
from onceonly_checkpoints.digests import LATE, STATE
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from onceonly.replay import Rerun
    from onceonly.replay.rerun import Difference

EpochsArgument = Annotated[str, typer.Argument(metavar="A..B", help="The first and the last epoch, both included.")]
IntoOption = Annotated[
    str, typer.Option("--into", metavar="KIND:TARGET", help="Address of the target, which holds nothing else.")
]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Name of the backfill's pipeline. Default: NAME~v2.")
]
CoalesceOption = Annotated[
    int,
    typer.Option(
        "--coalesce", min=1, help="Write up to so many epochs as one, where rows need neither state nor clock."
    ),
]
OtherWindowsOption = Annotated[
    str | None,
    typer.Option(
        "--windows",
        metavar="MODULE:NAME",
        help="Windows over the rows, the query's or others: results and state are written.",
    ),
]
DiffOption = Annotated[bool, typer.Option("--diff", help="Then compare the rows with the current ones, as bags.")]


def run(
    epochs: EpochsArgument,
    *,
    into: IntoOption,
    with_: user_code.JobOption,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    as_: AsOption = None,
    transform: user_code.TransformOption = None,
    windows: OtherWindowsOption = None,
    state: user_code.StateOption = StateFrom.COPIED,
    coalesce: CoalesceOption = 1,
    diff: DiffOption = False,
    output: OutputOption = Output.TABLE,
    yes: YesOption = False,
) -> None:
    """Run recorded epochs again, with the same or other code, into their own target, exactly once.

    The running query is not touched. Given again after a crash, the command continues where the target is.
    """
    numbers = epoch_range(epochs)
    job = user_code.function("--with", with_)
    shape = user_code.function("--transform", transform) if transform else None
    defined = user_code.windows_of(windows) if windows else None
    reads = reads_topics(ledger, query, None)
    with connect(ledger, query, forgiving=True) as connection, closing(sink_from_address(into, ledger)) as target:
        name = as_ or f"{connection.pipeline}~v2"
        plan = list(_plan(connection, numbers, (name, target.address), state, coalesce))
        if defined:
            state_words = f"their state is kept next to {target.id}"
            plan.append(("windows", f"{defined.words}, over the clock and the time on record; {state_words}"))

        def run() -> None:
            from onceonly.replay import rerun

            options: dict[str, Any] = {
                "transform": shape,
                "windows": defined,
                "state": str(state),
                "coalesce": coalesce,
            }
            options |= {"job": job, "into": target, "ledger": connection.certain_ledger, "name": name}
            topics = "kafka" in {sink.address.partition(":")[0] for sink in (target, *connection.sinks)}
            with user_code.spark_session("replay run", kafka=reads or (diff and topics)) as spark:
                made = rerun(connection.pipeline, numbers, spark=spark, **options)
                results = _of_results(connection)
                difference = made.diff(spark, results) if diff and results else None
            if output is Output.JSON:
                emit_json(_document(made, difference))
            else:
                _show(made, difference, has_diff=diff)

        carry_out(Change(plan, run, output=output), yes=yes)


def _plan(
    connection: Connection, epoch_range: range, into: tuple[str, str], state: StateFrom, coalesce: int
) -> Iterator[tuple[str, object]]:
    records = connection.certain_ledger.epochs(connection.pipeline, epoch_range.start, epoch_range.stop - 1)
    tally = remedies.tally(records, epoch_range.start, epoch_range.stop - 1)
    yield "runs again", f"epochs {epoch_range.start}..{epoch_range.stop - 1} of {connection.pipeline} ({tally})"
    name, address = into
    yield "into", address
    yield "as", f"{name}, a pipeline of its own; {connection.pipeline} is neither stopped nor fenced"
    yield "ledger", connection.certain_ledger.address
    yield (
        "state",
        "copied from the checkpoint, if there is any" if state is StateFrom.COPIED else "from the first batch",
    )
    yield "coalesced", f"{plural(coalesce, 'epoch')} at a time" if coalesce > 1 else None


def _of_results(connection: Connection) -> Sink | None:
    """The sink whose rows are compared: the first that gets neither state nor rows that came too late."""
    outputs = (
        output for record in connection.certain_ledger.epochs(connection.pipeline) for output in record.epoch.outputs
    )
    apart = {sink for output in outputs if output.name in (STATE, LATE) for sink in output.sinks}
    return next((sink for sink in connection.sinks if sink.id not in apart), None)


def _document(made: Rerun, difference: Difference | None) -> dict[str, Any]:
    return {
        "pipeline": made.name,
        "epochs": len(made.held),
        "written": made.written,
        "rows": made.rows,
        "same": made.same,
        "different": [{"epoch": epoch.number, **ran.to_json()} for epoch, ran in made.different],
        "diff": difference
        and {
            "less": difference.less,
            "more": difference.more,
            "examples": [[sign, row.asDict()] for sign, row in difference.examples],
        },
    }


def _show(made: Rerun, difference: Difference | None, *, has_diff: bool) -> None:
    say(f"{made.name} holds {plural(len(made.held), 'epoch')}, {plural(made.rows, 'row')}; {made.written} written now")
    say(f"{made.same} have the rows on record")
    if made.different:
        emit_table(
            ("epoch", "runs again", "rows"),
            ((epoch.number, ran.text, epoch.digest.rows) for epoch, ran in made.different),
        )
    if has_diff:
        _show_rows(difference)


def _show_rows(difference: Difference | None) -> None:
    if difference is None:
        say("no row differs, by the digests of all epochs")
        return
    for sign, names in (("-", difference.only_before), ("+", difference.only_after)):
        if names:
            say(f"{sign} columns {', '.join(names)}")
    say(f"- {plural(difference.less, 'row')}, + {plural(difference.more, 'row')}")
    emit_table(("", *difference.columns), ((sign, *row) for sign, row in difference.examples))


# ---- ``onceonly replay check``: compute epochs again, and compare with the record.


def check(
    epochs: EpochsArgument,
    *,
    with_: user_code.JobOption,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    limit: LimitOption = None,
    fail_on: FailOnOption = Severity.WARN,
    uncounted_ok: UncountedOption = False,
    html: HtmlOption = None,
    transform: user_code.TransformOption = None,
    windows: user_code.WindowsOption = None,
    state: user_code.StateOption = StateFrom.COPIED,
) -> None:
    """Audit a pipeline, and compute these epochs again from their source, through Spark and the query's own code.

    Prints for each range whether the rows are the same, differ, or cannot be computed. Writes nothing. Exit code: as of
    onceonly audit.
    """
    numbers = epoch_range(epochs)
    job = user_code.function("--with", with_)
    shape = user_code.function("--transform", transform) if transform else None
    defined = user_code.windows_of(windows) if windows else None
    topics = reads_topics(ledger, query, sink)
    with user_code.spark_session("replay check", kafka=topics) as spark, connect(ledger, query, sink) as connection:
        from onceonly.replay import recompute

        facts = gather(connection.ledger, connection.pipeline, connection.sinks)
        made = recompute(
            connection.pipeline,
            numbers,
            job=job,
            ledger=connection.certain_ledger,
            spark=spark,
            sinks=connection.sinks,
            transform=shape,
            windows=defined,
            state="copied" if state is StateFrom.COPIED else "beginning",
        )
    results = report([replace(facts, recomputed=made)], output, limit, html)
    raise typer.Exit(exit_code(results, fail_on, uncounted_ok=uncounted_ok))


# ---- ``onceonly replay publish``: replace a pipeline's rows by a rerun's.

RerunArgument = Annotated[str, typer.Argument(metavar="NAME~v2", help="Name of the backfill.")]
OverOption = Annotated[str, typer.Option("--over", metavar="NAME", help="The pipeline whose epochs were backfilled.")]


def publish(rerun: RerunArgument, *, over: OverOption, ledger: LedgerOption = None, yes: YesOption = False) -> None:
    """Replace all rows of a pipeline by those of a backfill, in one transaction of its sink.

    Stops every driver of the pipeline; its next start continues at its position in the source.
    """
    with connect(ledger, over) as connection, connect(ledger, rerun) as rerun_connection:
        of = Publication(over, _sink(connection), rerun, _sink(rerun_connection), connection.certain_ledger)
        of.source.open(rerun)
        planned = publication.plan(of)
        carry_out(Change(tuple(_pairs(of, planned)), partial(_publish, of, planned)), yes=yes)


def _publish(of: Publication, planned: Epoch) -> None:
    from onceonly.replay.publication import carry_out as publish

    with user_code.spark_session("replay publish") as spark:
        done = publish(of, planned, spark)
    summary = f"{of.name} replaces the old rows as epoch {done.number} of {of.pipeline}: {done.digest.rows} rows"
    say(f"{summary}; now start the query")


def _sink(connection: Connection) -> Sink:
    """One of its sinks; that there are others is refused by the rules (E242)."""
    if not connection.sinks:
        where = f"{shlex.quote(connection.pipeline)} --ledger {shlex.quote(connection.certain_ledger.address)}"
        raise misused(
            f'No sink of "{connection.pipeline}" can be found from here.',
            "it is in the memory of another process, or has no address",
            f"see its address: onceonly status {where}; or, in the process of the sink: onceonly.replay.publish()",
        )
    return connection.sinks[0]


def _pairs(of: Publication, planned: Epoch) -> Iterator[tuple[str, object]]:
    ran = planned.replays
    yield "publishes", f"{of.name}, epochs {ran.first}..{ran.last}, {planned.digest.rows} rows" if ran else of.name
    yield "over", f"{of.pipeline}, {of.sink.id} ({of.sink.address})"
    yield (
        "as",
        f"epoch {planned.number}; rows of epochs 1..{planned.number - 1} leave in the transaction that brings these",
    )
    yield "ledger", of.ledger.address
    yield "does", "fences every running driver out; the position of the query in its source does not change"
    yield "after", "readers see the old rows or the new ones; start the query, with the code of the backfill"
