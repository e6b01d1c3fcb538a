"""Upserted results of windows once nothing follows: the same, wherever the rows were cut into epochs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.panes.making import Pipeline, made

from onceonly.windows import AtCount, AtWatermark, Count, Global, Last, Max, Sessions, Sliding, Sum, Tumbling
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import pane_table

DELAY, LATEST = 7, 60
WINDOWS: dict[str, dict[str, Any]] = {
    "fixed": {"window": Tumbling(10)},
    "sliding": {"window": Sliding(10, 4)},
    "sessions": {"window": Sessions(5), "accumulation": "retracting"},
    "global": {"window": Global()},
}
TRIGGERS = (
    AtWatermark(),
    AtWatermark(early=AtCount(1), late=AtCount(1)),
    AtWatermark(late=AtCount(2)),
)
VALUES = {"total": Sum("amount"), "n": Count(), "top": Max("amount"), "end": Last("amount", by="amount")}


def defined(shape: dict[str, Any], trigger: Any) -> Definition:
    return made(**shape, trigger=trigger, results="upserts", allowed_lateness="unlimited", aggregates=VALUES)


def cut(dice: random.Random, rows: Sequence[Any]) -> list[Sequence[Any]]:
    ends = sorted(dice.sample(range(1, len(rows)), dice.randrange(len(rows))))
    return [rows[begin:end] for begin, end in zip([0, *ends], [*ends, len(rows)], strict=True)]


def stands(definition: Definition, epochs: Sequence[Sequence[tuple[int, int]]]) -> dict[Any, Any]:
    """The table of the last result of each window, as a sink with a key and delete_flag="deleted" holds it."""
    run, table, latest = Pipeline(definition), dict[Any, Any](), 0
    made = []
    for clock, rows in enumerate(epochs, 1):
        latest = max([latest, *(time for time, _ in rows)])
        made.append(run.epoch(clock, rows, noted=max(0, latest - DELAY)))
    for found in (*made, run.ends(len(epochs) + 1)):
        for row in pane_table(definition, found).to_pylist():
            key = row["team"], row["window_start"], row["window_end"]
            table[key] = None if row["deleted"] else [row[name] for name in VALUES]
    assert run.dropped == 0
    return {key: values for key, values in table.items() if values is not None}


def test_upserted_results_do_not_depend_on_the_cuts() -> None:
    seed = random.SystemRandom().randrange(1_000_000_000)
    print(f"seed {seed}")
    dice, wrong = random.Random(seed), list[Any]()
    for name, shape in WINDOWS.items():
        for trigger in TRIGGERS:
            definition = defined(shape, trigger)
            for _ in range(5):
                rows = [(dice.randrange(LATEST), dice.randrange(5)) for _ in range(dice.randint(2, 9))]
                tables = [stands(definition, epochs) for epochs in ([rows], [[row] for row in rows], cut(dice, rows))]
                wrong += [(name, trigger, rows)] if tables.count(tables[0]) < len(tables) else []
    assert wrong == []
