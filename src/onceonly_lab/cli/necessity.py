"""``onceonly lab necessity``: each condition of exactness dropped in a model, and what that breaks."""

from __future__ import annotations

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say
from onceonly_lab.necessity.report import Shown, crash_rows, shown, spelled
from onceonly_lab.necessity.symptoms import MEANING
from onceonly_lab.necessity.world import Function


def command(output: OutputOption = Output.TABLE) -> None:
    """Drop each condition of exactness in a model, and see what breaks.

    Every variant runs through every schedule of up to two crashes. Exit code: 0 each shows what it must, 1 one
    does not.
    """
    found = shown()
    if output is Output.JSON:
        emit_json(found.to_json())
    else:
        _show(found)
    raise typer.Exit(1 if found.surprises else 0)


def _show(found: Shown) -> None:
    emit_table(("variant", "condition dropped", "schedules", *Function), crash_rows(found))
    say()
    interleaved = ((one.fencing, one.orders, spelled(one.counts)) for one in found.interleaved)
    emit_table(("a zombie beside its successor", "orders", "seen"), interleaved)
    say()
    for symptom, meaning in MEANING.items():
        say(f"{symptom}: {meaning}")
    for surprise in found.surprises:
        say(surprise, style="bold red")
    if not found.surprises:
        say(f"{found.runs:,} runs; every variant shows what it must, and nothing else", style="bold green")
