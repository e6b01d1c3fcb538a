"""Every error is raised inside a real ``foreachBatch``; its code, cause and commands must reach the user unharmed."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.streams import FileStream
from pyspark.sql import DataFrame

from onceonly import Storage, exactly_once
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.codes import CATALOGUE, Entry
from onceonly_sinks.memory import MemorySink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ERRORS = [code for code in CATALOGUE if code.startswith("E")]
AWKWARD = '{"a":{"0":5}} in "C:\\new", 100 % of $1 and it\'s ünïcode'
"""What Java, Python or a template could take for something of their own."""


class Raises:
    """A callback's ``transform=`` that raises whatever it is told."""

    error: OnceOnlyError

    def __call__(self, batch: DataFrame) -> DataFrame:
        raise self.error


def details(entry: Entry) -> Iterator[tuple[str, object]]:
    """An awkward value for every detail that a text wants."""
    for text in (entry.what, entry.matter, entry.cause, entry.remedy):
        for _, name, form, _ in string.Formatter().parse(text):
            if name:
                yield name, 7 if form else AWKWARD


def test_code_cause_and_commands_reach_the_user(stream: FileStream, tmp_path: Path) -> None:
    """One input and one checkpoint for all codes: nothing is ever written, so batch 0 is offered every time."""
    raises, harmed = Raises(), []
    stream.receive(range(1))
    for code in ERRORS:
        raises.error = refuse(code, **dict(details(CATALOGUE[code])))
        seen = stream.fail(exactly_once(MemorySink(), storage=Storage(ledger=tmp_path / "ledger.db"), transform=raises))
        wanted = (f"[ONCE-{code}]", str(raises.error), raises.error.remedy.splitlines()[-1])
        harmed += [(code, part) for part in wanted if part not in seen]
    assert harmed == []
