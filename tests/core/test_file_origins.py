"""A file source that does not say which directory it reads, as on Spark Connect: its files say what it is."""

from __future__ import annotations

import pytest

from onceonly.machine.source_order import carried, same_inputs, same_origins
from onceonly_checkpoints.model import SourceIdentity

HERE, THERE, UNSAID = "files:FileStreamSource[file:/in]", "files:FileStreamSource[file:/out]", "files:FileStreamSource"


def reads(identity: str | None, inputs: str = "hash of the list") -> tuple[SourceIdentity, ...]:
    return (SourceIdentity("0", identity, inputs),)


@pytest.mark.parametrize(("was", "now"), [(HERE, HERE), (HERE, UNSAID), (UNSAID, HERE), (UNSAID, UNSAID)])
def test_a_directory_that_is_not_said_agrees_with_any(was: str, now: str) -> None:
    assert same_origins(reads(was), reads(now))
    assert same_inputs(reads(was), reads(now))
    assert not same_inputs(reads(was), reads(now, "hash of another list"))


@pytest.mark.parametrize("now", [THERE, None, 'kafka:{"cluster":"c","topics":{}}'])
def test_another_directory_or_kind_is_another_source(now: str | None) -> None:
    assert not same_origins(reads(HERE), reads(now))
    assert same_origins(reads(UNSAID), reads(now)) is (now == THERE)


@pytest.mark.parametrize(
    ("was", "now", "recorded"),
    [
        (HERE, UNSAID, HERE),
        (UNSAID, UNSAID, UNSAID),
        (UNSAID, THERE, THERE),
        (HERE, "delta:id", "delta:id"),
        (None, None, None),
    ],
)
def test_a_directory_that_was_said_stays_the_measure_where_it_is_not_said(
    was: str | None, now: str | None, recorded: str | None
) -> None:
    assert carried(reads(was), reads(now)) == reads(recorded)
    assert same_origins(carried(reads(was), reads(now)), reads(recorded))
