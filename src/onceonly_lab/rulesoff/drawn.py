"""Drawn facts for tables that decide in one go.

Each verdict is compared with the true state. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from random import Random

from onceonly_lab.rulesoff import publications, replays, rewinds

CASES = 2000
"""How many are drawn for each table."""

TABLES: dict[str, Callable[[Random], str]] = {
    "rewind": rewinds.play,
    "rerun": replays.play,
    "publication": publications.play,
}
"""What plays a case of each: it says what is wrong, or nothing."""


def played(case_id: str = "") -> Iterator[tuple[str, str | Exception]]:
    """The case of a place, ``rewind 17``, or each, with what is wrong or has broken it; empty: nothing."""
    for table, seed in _places(case_id):
        try:
            yield f"{table} {seed}", TABLES[table](Random(seed))
        except Exception as error:  # noqa: BLE001 - a table that breaks for want of a rule has noticed it
            yield f"{table} {seed}", error


def _places(case_id: str) -> Iterator[tuple[str, int]]:
    if not case_id:
        yield from product(TABLES, range(1, CASES + 1))
    else:
        table, _, seed = case_id.partition(" ")
        yield table, int(seed)
