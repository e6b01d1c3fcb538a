"""``onceonly epochs publish``: replace a pipeline's rows by a rerun's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated

import typer

from onceonly.cli.connect import Connection, place
from onceonly.cli.options import LedgerOption, YesOption, confirmed
from onceonly.cli.output import emit_pairs, say
from onceonly.cli.spark_session import spark_session
from onceonly.errors import refuse
from onceonly.protocol import Sink
from onceonly.replay import publish_swap
from onceonly.replay.publish_swap import Publication
from onceonly_checkpoints.epoch import Epoch

RerunArgument = Annotated[str, typer.Argument(metavar="NAME~v2", help="Name of the rerun.")]
OverOption = Annotated[str, typer.Option("--over", metavar="NAME", help="The pipeline whose epochs were run again.")]


def command(rerun: RerunArgument, *, over: OverOption, ledger: LedgerOption = None, yes: YesOption = False) -> None:
    """Swap all rows of a pipeline for those of a rerun, in one transaction of its sink.

    Stops every driver of the pipeline; its next start goes on where it stood in its source.
    """
    with place(ledger, over) as here, place(ledger, rerun) as again:
        of = Publication(over, _sink(here), rerun, _sink(again), here.certain_ledger)
        of.source.open(rerun)
        planned = publish_swap.plan(of)
        emit_pairs(tuple(_pairs(of, planned)))
        if not confirmed(yes):
            return
        from onceonly.replay.publish import carry_out

        with spark_session(True, "epochs publish") as spark:
            assert spark is not None
            done = carry_out(of, planned, spark)
        say(f"{rerun} is published as epoch {done.number} of {over}: {done.digest.rows} rows; now start the query")


def _sink(here: Connection) -> Sink:
    """One of its sinks; that there are others is refused by the rules (E242)."""
    if not here.sinks:
        where = f"{shlex.quote(here.pipeline)} --ledger {shlex.quote(here.certain_ledger.address)}"
        raise refuse(
            "E110",
            problem=f'No sink of "{here.pipeline}" can be found from here.',
            cause="it lies in the memory of another process, or has no address that leads to it",
            next=f"what it writes to: onceonly queries show {where}; where the sink is: onceonly.replay.publish()",
        )
    return here.sinks[0]


def _pairs(of: Publication, planned: Epoch) -> Iterator[tuple[str, object]]:
    ran = planned.replays
    yield "publishes", f"{of.name}, epochs {ran.first}..{ran.last}, {planned.digest.rows} rows" if ran else of.name
    yield "over", f"{of.pipeline}, {of.sink.id} ({of.sink.address})"
    yield (
        "as",
        f"epoch {planned.number}; rows of epochs 1..{planned.number - 1} leave in the transaction that brings these",
    )
    yield "ledger", of.ledger.address
    yield "does", "fences every running driver out; where the query stands in its source does not change"
    yield "after", "readers see the old rows or the new ones; start the query, with the code that the rerun was made by"
