"""``onceonly epochs rerun``: run recorded epochs into another target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceonly.cli.connect import Connection, place, reads_topics
from onceonly.cli.lateness import span
from onceonly.cli.options import LedgerOption, OutputOption, QueryOption, YesOption, confirmed
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, plural, say
from onceonly.cli.spark_session import spark_session
from onceonly.cli.user_code import BeforeOption, JobOption, StateOption, function, panes_of
from onceonly.protocol.registry import sink_from_address
from onceonly.runtime import remedies
from onceonly_checkpoints.digests import LATE, STATE
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from onceonly.protocol import Sink
    from onceonly.replay import Rerun
    from onceonly.replay.diff import Difference
    from onceonly.windows import Panes

EpochsArgument = Annotated[str, typer.Argument(metavar="A..B", help="The first and the last epoch, both included.")]
IntoOption = Annotated[
    str, typer.Option("--into", metavar="KIND:TARGET", help="Address of the target, which holds nothing else.")
]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Name of the rerun's pipeline. Default: NAME~v2.")
]
CoalesceOption = Annotated[
    int,
    typer.Option(
        "--coalesce", min=1, help="Write up to so many epochs as one, where rows need neither state nor clock."
    ),
]
WindowsOption = Annotated[
    str | None,
    typer.Option(
        "--panes",
        metavar="MODULE:NAME",
        help="Windows over the rows, the query's or others: results are written, and state beside them.",
    ),
]
DiffOption = Annotated[bool, typer.Option("--diff", help="Then compare the rows with those that stand, as bags.")]


def command(
    epochs: EpochsArgument,
    *,
    into: IntoOption,
    with_: JobOption,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    as_: AsOption = None,
    before: BeforeOption = None,
    panes: WindowsOption = None,
    state: StateOption = StateFrom.COPIED,
    coalesce: CoalesceOption = 1,
    diff: DiffOption = False,
    output: OutputOption = Output.TABLE,
    yes: YesOption = False,
) -> None:
    """Run recorded epochs again, with the same or other code, into a target of their own, exactly once.

    The running query is not touched. Given again after a crash, the command goes on where the target stands.
    """
    first, last = span(epochs, "A..B")
    wanted = range(first or 1, (last or 0) + 1)
    job, shape = function("--with", with_), function("--before", before) if before else None
    windows = panes_of(panes) if panes else None
    reads = reads_topics(ledger, query, None)
    with place(ledger, query, forgiving=True) as here, closing(sink_from_address(into, ledger)) as target:
        name = as_ or f"{here.pipeline}~v2"
        plan = (*_plan(here, wanted, (name, target.address), state, coalesce), *_windows(windows, target))
        if output is Output.TABLE:
            emit_pairs(plan)
        if not confirmed(yes, plan):
            return
        from onceonly.replay import rerun

        given: dict[str, Any] = {"before": shape, "panes": windows, "state": str(state), "coalesce": coalesce}
        topics = "kafka" in {one.address.partition(":")[0] for one in (target, *here.sinks)}
        with spark_session(True, "epochs rerun", kafka=reads or (diff and topics)) as spark:
            assert spark is not None
            made = rerun(
                here.pipeline, wanted, job=job, into=target, ledger=here.certain_ledger, spark=spark, name=name, **given
            )
            stands = _of_results(here)
            found = made.diff(spark, stands) if diff and stands else None
    if output is Output.JSON:
        emit_json(_document(made, found))
    else:
        _show(made, found, asked=diff)


def _plan(
    here: Connection, wanted: range, into: tuple[str, str], state: StateFrom, coalesce: int
) -> Iterator[tuple[str, object]]:
    records = here.certain_ledger.epochs(here.pipeline, wanted.start, wanted.stop - 1)
    told = remedies.tally(records, wanted.start, wanted.stop - 1)
    yield "runs again", f"epochs {wanted.start}..{wanted.stop - 1} of {here.pipeline} ({told})"
    name, address = into
    yield "into", address
    yield "as", f"{name}, a pipeline of its own; {here.pipeline} is neither stopped nor fenced"
    yield "ledger", here.certain_ledger.address
    yield (
        "state",
        "copied from the checkpoint, if there is any" if state is StateFrom.COPIED else "from the first batch",
    )
    yield "coalesced", f"{plural(coalesce, 'epoch')} at a time" if coalesce > 1 else None


def _windows(panes: Panes | None, target: Sink) -> Iterator[tuple[str, object]]:
    if panes:
        yield "windows", f"{panes.words}, over the clock and the time on record; their state is kept beside {target.id}"


def _of_results(here: Connection) -> Sink | None:
    """The sink whose rows are compared: the first that gets neither state nor rows that came too late."""
    outputs = (output for record in here.certain_ledger.epochs(here.pipeline) for output in record.epoch.outputs)
    apart = {sink for output in outputs if output.name in (STATE, LATE) for sink in output.sinks}
    return next((sink for sink in here.sinks if sink.id not in apart), None)


def _document(made: Rerun, found: Difference | None) -> dict[str, Any]:
    return {
        "pipeline": made.name,
        "epochs": len(made.held),
        "written": made.written,
        "rows": made.rows,
        "same": made.same,
        "different": [{"epoch": epoch.number, **ran.to_json()} for epoch, ran in made.different],
        "diff": found
        and {
            "less": found.less,
            "more": found.more,
            "examples": [[sign, row.asDict()] for sign, row in found.examples],
        },
    }


def _show(made: Rerun, found: Difference | None, *, asked: bool) -> None:
    say(f"{made.name} holds {plural(len(made.held), 'epoch')}, {plural(made.rows, 'row')}; {made.written} written now")
    say(f"{made.same} have the rows on record")
    if made.different:
        emit_table(
            ("epoch", "runs again", "rows"),
            ((epoch.number, ran.text, epoch.digest.rows) for epoch, ran in made.different),
        )
    if asked:
        _show_rows(found)


def _show_rows(found: Difference | None) -> None:
    if found is None:
        say("no row differs, by the digests of all epochs")
        return
    for sign, names in (("-", found.only_before), ("+", found.only_after)):
        if names:
            say(f"{sign} columns {', '.join(names)}")
    say(f"- {plural(found.less, 'row')}, + {plural(found.more, 'row')}")
    emit_table(("", *found.columns), ((sign, *row) for sign, row in found.examples))
