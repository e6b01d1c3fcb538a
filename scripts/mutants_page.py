"""Writes ``docs/how-it-is-proven/mutants.md`` from the mutants in the code of the lab; prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onceonly_lab import cuts
from onceonly_lab.mutants.play import mutants
from onceonly_lab.writers import designs

PAGE = Path(__file__).parent.parent / "docs" / "how-it-is-proven" / "mutants.md"

_TEXT = """# Mutants: broken on purpose

You see here each part that the lab breaks on purpose, and the anomaly that its checker must then report. You need the
list when you ask if the checker would find a real bug, or when you add a mutant. `make mutants` tries the first table
in about a minute. `python scripts/mutants_page.py` writes this page from the code.

## Sinks, runners and readers on real stores

`onceonly lab mutants` breaks one part, and plays the schedule that shows it on real stores. The checker must report
exactly these anomalies. The same schedule without the defect must be clean. If a fault of the schedule never acted, the
result is inconclusive.

| id | broken on purpose | schedule | stores | anomalies |
|---|---|---|---|---|
{stores}

- **M3, M4, M9 and M15** write rows and marker by plain SQL without a condition. With the shipped transaction they would
  do no harm: it checks fence and previous chain again, in the commit.
- **In M23 to M27 people and destinations act,** also in the run without the defect: a program that calls twice, an
  operator, a constraint, a killed server. That run may end in the refusal that fits.
- **M10 needs a broker with `transaction.version` 2.** Its client keeps the producer epoch, so the broker takes a late
  EndTxn for the end of the open transaction. The shipped sink makes a producer for each epoch, and the broker refuses
  the same EndTxn.

You can add mutants of your own sink under the entry-point group `onceonly.mutants`.

## Changes of keys

Random runs cut the same changes into epochs in different ways. A table that depends on the cut is X-CUT.

| id | broken on purpose |
|---|---|
{cuts}

Real stores pass the claim `the_cut_of_a_batch_decides_nothing`.

## Several writers of one dataset

`onceonly lab writers` plays random runs in which writers commit, poll late, crash, become idle and are rewound. X-TIME
is a recorded time that goes back, or an uncounted row before the low watermark.

| id | broken on purpose |
|---|---|
{writers}
"""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _of_stores() -> Iterator[str]:
    for mutant in mutants():
        stores, anomalies = ", ".join(mutant.schedule.sinks), ", ".join(mutant.expected)
        yield _row(mutant.id, mutant.broken, mutant.killer, stores, anomalies)


def page() -> str:
    """The page, as Markdown."""
    return _TEXT.format(
        stores="\n".join(_of_stores()),
        cuts="\n".join(_row(mutant.id, mutant.broken) for mutant in cuts.MUTANTS),
        writers="\n".join(_row(mutant.id, mutant.broken) for mutant in designs.MUTANTS),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
