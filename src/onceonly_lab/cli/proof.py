"""``onceonly lab mutants``, ``necessity``, ``rules-off``, ``points``.

They show that checker and rules are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say, talk
from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly_lab.chaos.campaign import seconds_of
from onceonly_lab.chaos.cells import Matrix
from onceonly_lab.chaos.coverage import Covered, covered
from onceonly_lab.cli import jobs
from onceonly_lab.cli.run import LevelOption, level_among
from onceonly_lab.fuzzer.draw import aimed, draw
from onceonly_lab.fuzzer.world import fuzz_all
from onceonly_lab.mutants.play import LEVEL, Mutant, Trial, chosen, tried
from onceonly_lab.necessity.crashes import Shown, crash_rows, shown, spelled
from onceonly_lab.necessity.world import MEANING, Function
from onceonly_lab.play.many import Report, unshrunk
from onceonly_lab.rulesoff.rules import rules
from onceonly_lab.rulesoff.trial import Trial as RuleTrial
from onceonly_lab.rulesoff.trial import chosen as chosen_rules
from onceonly_lab.rulesoff.trial import page as page_of
from onceonly_lab.rulesoff.trial import record, recorded
from onceonly_lab.rulesoff.trial import tried as tried_rules
from onceonly_lab.schedule import NOT_SENT, SIMULATED, Action, Level, actions_at
from onceonly_lab.stores.places import temporary_servers

# ---- ``onceonly lab mutants``: sinks, runners and readers broken on purpose, and what the checker calls each of
# them.

OnlyMutantOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ID", help="Play only this mutant, as M5. May be given more than once."),
]
KeepOption = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Write the history of each mutant and of its twin to this folder."),
]


def mutants(only: OnlyMutantOption = None, keep: KeepOption = None, output: OutputOption = Output.TABLE) -> None:
    """Break sinks, runners and readers, one at a time, and check that the checker reports the anomaly of each.

    Runs on a real Postgres, a real Delta log and a real broker, which are started for it. Each mutant plays the
    schedule that kills it, and its unbroken twin the same one. Exit code: 0 each is recognised and its
    twin is clean, 1 one is not, 2 a fault of a schedule never came to act, 3 there is no such mutant or a server is
    missing.
    """
    selected = chosen(only or ())
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    trials = _all_tried(selected, keep)
    if output is Output.JSON:
        documents = [trial.to_json() for trial in trials]
        emit_json({"level": LEVEL, "killed": sum(trial.killed for trial in trials), "mutants": documents})
    else:
        _show_mutants(trials)
    raise typer.Exit(_code(trials))


def _all_tried(selected: Sequence[Mutant], keep: Path | None) -> list[Trial]:
    trials: list[Trial] = []
    with temporary_servers(frozenset(kind for candidate in selected for kind in candidate.kinds)) as servers:
        for mutant in selected:
            talk(f"{mutant.id}: {mutant.broken}")
            trial = tried(mutant, servers)
            trials.append(trial)
            if keep is not None:
                for name, played in zip((mutant.id, f"{mutant.id}-twin"), trial.histories, strict=True):
                    played.history.keep(keep / f"{name}.jsonl", "mutants", "--only", mutant.id)
    return trials


def _code(trials: Sequence[Trial]) -> int:
    if any(trial.conclusive and not trial.killed for trial in trials):
        return 1
    return 0 if all(trial.conclusive for trial in trials) else 2


def _show_mutants(trials: Sequence[Trial]) -> None:
    heads = ("", "broken on purpose", "killer schedule", "on", "called", "must be called", "twin")
    emit_table(heads, map(_mutant_row, trials))
    for trial in trials:
        for fault in trial.unstruck:
            say(f"{trial.mutant.id} is inconclusive: never came to act: {fault}", style="bold yellow")
    killed = sum(trial.killed for trial in trials)
    style = "bold green" if killed == len(trials) else "bold red"
    say(f"{killed}/{len(trials)} are called exactly what they are, and their twins are clean", style=style)


def _mutant_row(trial: Trial) -> tuple[object, ...]:
    mutant = trial.mutant
    called, expected = (", ".join(names) for names in (trial.verdict, mutant.expected))
    on = ", ".join(mutant.schedule.sinks)
    return mutant.id, mutant.broken, mutant.killer, on, called or "nothing", expected, trial.twin.verdict


# ---- ``onceonly lab necessity``: each condition of exactness dropped in a model, and what that breaks.


def necessity(output: OutputOption = Output.TABLE) -> None:
    """Drop each condition of exactness in a model, and show which anomaly follows.

    Every variant runs through every schedule of up to two crashes. Exit code: 0 each shows what it must, 1 one
    does not.
    """
    summary = shown()
    if output is Output.JSON:
        emit_json(summary.to_json())
    else:
        _show_necessity(summary)
    raise typer.Exit(1 if summary.surprises else 0)


def _show_necessity(summary: Shown) -> None:
    emit_table(("variant", "condition dropped", "schedules", *Function), crash_rows(summary))
    say()
    interleaved = ((variant.fencing, variant.orders, spelled(variant.counts)) for variant in summary.interleaved)
    emit_table(("a zombie beside its successor", "orders", "seen"), interleaved)
    say()
    for symptom, meaning in MEANING.items():
        say(f"{symptom}: {meaning}")
    for surprise in summary.surprises:
        say(surprise, style="bold red")
    if not summary.surprises:
        say(f"{summary.runs:,} runs; every variant shows what it must, and nothing else", style="bold green")


# ---- ``onceonly lab rules-off``: the product without one of its rules, and which world notices.

OnlyRuleOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="RULE", help="Switch off only this rule. May be given more than once."),
]
ChangedOption = Annotated[
    bool, typer.Option("--changed", help="Switch off the rules whose source has changed since it was recorded.")
]
CountOption = Annotated[
    int | None, typer.Option("--count", min=0, metavar="N", help="Switch off this many other rules, drawn by --seed.")
]
RuleSeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed that draws the other rules.")]
QuickOption = Annotated[
    bool,
    typer.Option(
        "--quick", help="Try each rule only in the world that noticed it last, else in worlds that take seconds."
    ),
]
PageOption = Annotated[
    Path | None, typer.Option("--page", metavar="FILE", help="Write the recorded results as a page.")
]
RecordOption = Annotated[bool, typer.Option("--record", help="Record the results, for the table and for --changed.")]


def rules_off(
    *,
    only: OnlyRuleOption = None,
    changed: ChangedOption = False,
    count: CountOption = None,
    seed: RuleSeedOption = 1,
    quick: QuickOption = False,
    keep: RecordOption = False,
    page: PageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Switch each rule of recovery and comparison off, in the shipped source, and show which world notices.

    A rule that is not noticed alone is tried together with each that may replace it: one that reads the same field
    or is part of the same proof, and is not noticed at that place by itself. Exit code: 0 each is noticed, 1 one is
    not, 3 there is no such rule.
    """
    names = [rule.name for rule in rules()]
    if unknown := [name for name in only or () if name not in names]:
        line = "onceonly lab rules-off --only comparison.same_batch#1"
        cause = f"rules are {', '.join(names)}"
        raise refuse("E110", problem=f"There is no rule {unknown[0]!r}.", cause=cause, next=line)
    selected = chosen_rules(only or (), new=changed, count=count, seed=seed)
    talk(f"{len(selected)} of {len(names)} rules, seed {seed}")
    trials = tried_rules(
        selected, talk, quick=quick, keep=(lambda trial: record((trial,))) if keep else lambda trial: None
    )
    if page:
        page.write_text(page_of(tuple(recorded().values())), encoding="utf-8")
    if output is Output.JSON:
        emit_json({"seed": seed, "rules": [trial.to_json() for trial in trials]})
    else:
        _show_rules(trials)
    raise typer.Exit(0 if all(trial.noticed for trial in trials) else 1)


def _show_rules(trials: list[RuleTrial]) -> None:
    heads = ("rule", "off beside", "noticed by", "called", "first")
    rows = [
        (trial.rule, trial.beside, f"{trial.world or 'none'} {trial.at}".strip(), trial.noticed, trial.first)
        for trial in trials
    ]
    emit_table(heads, rows)
    noticed = sum(bool(trial.noticed) for trial in trials)
    style = "bold green" if noticed == len(trials) else "bold red"
    say(f"{noticed} of {len(trials)} rules that were off are noticed", style=style)


# ---- ``onceonly lab points``: every fault point and action, and how often schedules passed and struck it.

BUDGET = "20m"
"""The longest that the jobs of one matrix may take."""

SCHEDULES = 500
"""Random schedules in the simulated world."""

BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help=f"Longest time for jobs (L3, L4): 90s, 3m. Default {BUDGET}."),
]
SchedulesOption = Annotated[
    int | None,
    typer.Option(
        "--schedules",
        min=0,
        metavar="N",
        help=f"Random schedules to play at L1, besides those that are aimed; default {SCHEDULES}.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the first schedule.")]


def points(
    job: jobs.JobArgument = None,
    *,
    level: LevelOption = None,
    budget: BudgetOption = None,
    schedules: SchedulesOption = None,
    seed: SeedOption = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the fault points, with how often schedules passed each and how often each action struck there.

    One schedule is aimed at each point and action, others are random. Exit code: 0 every action that applies struck at
    every point, 1 one did not, or something broke.

    At L3 and L4 on a real Spark: of a job, or of jobs of our own that together pass all points. Exit code: 0 every
    point that can be passed was, 1 something broke, 2 a point was not passed, 3 the lab could not do it.
    """
    fit = (Level.WARM, Level.COLD) if job is not None else (Level.SIMULATED, Level.WARM, Level.COLD)
    where = level_among(level, *fit)
    if where.runs_jobs:
        jobs.demand_none({"--schedules": schedules}, "schedules of a job are drawn from what it passes")
        with jobs.folder(None) as at:
            raise typer.Exit(
                _show_real(covered(where, job, seconds_of(budget or BUDGET), seed, at, progress=talk), output)
            )
    jobs.demand_job(budget=budget)
    random = map(draw, range(seed, seed + (SCHEDULES if schedules is None else schedules)))
    fuzzed = fuzz_all(chain((schedule for _, _, schedule in aimed()), random))
    if output is Output.JSON:
        emit_json({"seed": seed, "schedules": fuzzed.schedules, **_document(fuzzed)})
    else:
        _show(fuzzed)
    raise typer.Exit(1 if fuzzed.unreached or fuzzed.unstruck or fuzzed.failed else 0)


def _show_real(real: Covered, output: Output) -> int:
    if output is Output.TABLE:
        matrix = real.matrix
        shown = sorted({action for _, action in matrix.cells})
        emit_table(("point", "passed", *shown), _real_rows(matrix, shown))
    return jobs.shown_all(real, output)


def _real_rows(matrix: Matrix, shown: list[Action]) -> Iterator[tuple[object, ...]]:
    """``-`` stands where nothing can come to act."""
    cells = frozenset(matrix.cells)
    for point in Point:
        struck = (matrix.struck.get((point, action), 0) if (point, action) in cells else "-" for action in shown)
        yield point, matrix.passed.get(point, 0), *struck


def _document(fuzzed: Report) -> dict[str, Any]:
    points = [
        {
            "point": point,
            "passed": fuzzed.passed[point],
            "struck": {action: fuzzed.struck[point, action] for action in actions_at(point)},
            "not_applicable": {action: NOT_SENT for action in SIMULATED if action not in actions_at(point)},
        }
        for point in Point
    ]
    smallest = fuzzed.shrunk or fuzzed.failed
    schedule = smallest and smallest.schedule
    return {
        "points": points,
        "unreached": list(fuzzed.unreached),
        "unstruck": [list(pair) for pair in fuzzed.unstruck],
        "anomaly": str(fuzzed.shrunk.name) if fuzzed.shrunk else None,
        "judgement": fuzzed.judgement and fuzzed.judgement.to_json(),
        "schedule": schedule and schedule.to_json(),
    }


def _show(fuzzed: Report) -> None:
    emit_table(("point", "passed", *SIMULATED), _rows(fuzzed))
    say(f"-: {NOT_SENT}")
    if fuzzed.unreached:
        say(f"never passed: {', '.join(fuzzed.unreached)}", style="bold red")
    if fuzzed.unstruck:
        never = ", ".join(f"{point} {action}" for point, action in fuzzed.unstruck)
        say(f"never struck: {never}", style="bold red")
    if fuzzed.shrunk:
        say(
            f"{fuzzed.shrunk.name}: stopped there; for onceonly lab replay (as a file):",
            style="bold red",
        )
        say(fuzzed.shrunk.schedule.text.rstrip())
    elif fuzzed.failed:
        sentence, *rest = unshrunk(fuzzed)
        say(sentence, style="bold red")
        for line in rest:
            say(line.rstrip())
    if not (fuzzed.unreached or fuzzed.unstruck or fuzzed.failed):
        pairs = sum(len(actions_at(point)) for point in Point)
        say(f"{pairs} of {pairs} points and actions struck in {fuzzed.schedules:,} schedules", style="bold green")


def _rows(fuzzed: Report) -> Iterator[tuple[object, ...]]:
    """``-`` stands where an action does not apply."""
    for point in Point:
        applicable = actions_at(point)
        struck = (fuzzed.struck[point, action] if action in applicable else "-" for action in SIMULATED)
        yield point, fuzzed.passed[point], *struck
