"""``onceonly lab rules-off``: the product without one of its rules, and which world notices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say, talk
from onceonly.errors import refuse
from onceonly_lab.rulesoff.rules import rules
from onceonly_lab.rulesoff.trial import Trial, chosen, record, recorded, tried
from onceonly_lab.rulesoff.trial import page as page_of

OnlyOption = Annotated[list[str] | None, typer.Option("--only", metavar="RULE", help="This rule alone. May repeat.")]
ChangedOption = Annotated[bool, typer.Option("--changed", help="Rules whose text is not the one that was recorded.")]
CountOption = Annotated[int | None, typer.Option("--count", min=0, metavar="N", help="So many others, by seed.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Draws the others.")]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Where each was noticed last; else in worlds that take seconds.")
]
PageOption = Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Write what is recorded as a page.")]
RecordOption = Annotated[bool, typer.Option("--record", help="Keep what is found for the table and for --changed.")]


def command(
    *,
    only: OnlyOption = None,
    changed: ChangedOption = False,
    count: CountOption = None,
    seed: SeedOption = 1,
    quick: QuickOption = False,
    keep: RecordOption = False,
    page: PageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Switch each rule of recovery and comparison off, in the source of what ships, and see which world notices.

    A rule that is not noticed alone is tried beside each that may stand in for it: one that reads the same field or is
    part of the same proof, and is not noticed at that place by itself. Exit code: 0 each is noticed, 1 one is not, 3
    there is no such rule.
    """
    known = [rule.name for rule in rules()]
    if unknown := [name for name in only or () if name not in known]:
        line = "onceonly lab rules-off --only comparison.same_batch#1"
        cause = f"rules are {', '.join(known)}"
        raise refuse("E110", problem=f"There is no rule {unknown[0]!r}.", cause=cause, next=line)
    wanted = chosen(only or (), new=changed, count=count, seed=seed)
    talk(f"{len(wanted)} of {len(known)} rules, seed {seed}")
    trials = tried(wanted, talk, quick=quick, keep=(lambda trial: record((trial,))) if keep else lambda trial: None)
    if page:
        page.write_text(page_of(tuple(recorded().values())), encoding="utf-8")
    if output is Output.JSON:
        emit_json({"seed": seed, "rules": [one.to_json() for one in trials]})
    else:
        _show(trials)
    raise typer.Exit(0 if all(one.noticed for one in trials) else 1)


def _show(trials: list[Trial]) -> None:
    heads = ("rule", "off beside", "noticed by", "called", "first")
    rows = [(one.rule, one.beside, f"{one.world or 'none'} {one.at}".strip(), one.noticed, one.first) for one in trials]
    emit_table(heads, rows)
    noticed = sum(bool(one.noticed) for one in trials)
    style = "bold green" if noticed == len(trials) else "bold red"
    say(f"{noticed} of {len(trials)} rules that were off are noticed", style=style)
