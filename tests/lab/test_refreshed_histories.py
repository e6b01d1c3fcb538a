"""The judge tells series apart: rows of a replaced epoch must be gone, those of the new one are due, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from onceonly_lab.checker import Anomaly, Judgement, Verdict, judge
from onceonly_lab.history import Entry, Header, History, Kind, Mark, Op, Promise, Range, Row

EPOCHS = ((0, 1, None), (1, 2, None), (0, 2, (1, 2)))
"""Start and end in the source, and what is replaced, of epochs 1, 2 and 3: the third begins anew and takes all."""


def row(record: int, epoch: int) -> Row:
    return Row(f"r{record}", epoch)


def of_epoch(number: int) -> tuple[Row, ...]:
    start, end, _ = EPOCHS[number - 1]
    return tuple(row(record, number) for record in range(start, end))


def told(epochs: int, reads: Sequence[tuple[int, tuple[Row, ...]]], final: tuple[Row, ...]) -> History:
    """A history of one driver.

    Args:
        epochs: how many are committed.
        reads: after which epoch a reader looks, and what it sees.
        final: what lies there at the end.
    """
    entries = [
        Entry("source", Kind.OK, Op.INPUT, slice=(Range("0", at, at + 1),), rows=(Row(f"r{at}"),)) for at in range(2)
    ]
    for number in range(1, epochs + 1):
        start, end, replaces = EPOCHS[number - 1]
        said = {"sink": "pg", "epoch": number, "generation": 1, "incarnation": 1}
        asked = Entry(
            "driver",
            Kind.INVOKE,
            Op.COMMIT,
            slice=(Range("0", start, end),),
            rows=tuple(Row(f"r{record}") for record in range(start, end)),
            replaces=replaces,
            **said,  # type: ignore[arg-type]
        )
        entries += [asked, Entry("driver", Kind.OK, Op.COMMIT, **said)]  # type: ignore[arg-type]
        entries += [line for after, rows in reads if after == number for line in read(number, rows)]
    entries += [Entry("judge", Kind.INVOKE, Op.SETTLE), Entry("judge", Kind.OK, Op.SETTLE)]
    entries += read(epochs, final, final=True)
    return History(Header((Promise("pg"),), "a refresh"), tuple(entries))


def read(upto: int, rows: tuple[Row, ...], *, final: bool = False) -> list[Entry]:
    marks = tuple(Mark(number, 1) for number in range(1, upto + 1))
    return [
        Entry("reader", Kind.INVOKE, Op.READ, sink="pg"),
        Entry("reader", Kind.READ, sink="pg", rows=rows, markers=marks, final=final),
    ]


def judged(*arguments: object) -> Judgement:
    history = told(*arguments)  # type: ignore[arg-type]
    assert History(history.header, tuple(Entry.from_json(entry.to_json()) for entry in history.entries)) == history
    return judge(history)


BEFORE = (*of_epoch(1), *of_epoch(2))


def test_a_refresh_whose_old_rows_left_with_the_new_ones_is_clean() -> None:
    found = judged(3, [(1, of_epoch(1)), (2, BEFORE), (3, of_epoch(3))], of_epoch(3))
    assert found.verdict is Verdict.CLEAN, found.findings


@pytest.mark.parametrize(
    ("reads", "final", "anomaly"),
    [
        pytest.param([], (*BEFORE, *of_epoch(3)), Anomaly.DUP, id="the old rows stayed"),
        pytest.param([], (row(0, 1), *of_epoch(3)), Anomaly.DUP, id="one of them stayed"),
        pytest.param([], (), Anomaly.LOSS, id="the new rows never came"),
        pytest.param([], (row(0, 3),), Anomaly.TORN, id="some of the new rows came"),
        pytest.param([(2, BEFORE), (2, ())], of_epoch(3), Anomaly.REGRESS, id="the old rows left before"),
        pytest.param([], (*of_epoch(3), *of_epoch(3)), Anomaly.DUP, id="the new rows came twice"),
    ],
)
def test_each_way_to_mishandle_the_rows_is_called_by_its_name(
    reads: list[tuple[int, tuple[Row, ...]]], final: tuple[Row, ...], anomaly: Anomaly
) -> None:
    assert anomaly in judged(3, reads, final).anomalies


def test_the_same_rows_without_a_refresh_are_doubled() -> None:
    history = told(3, [], (*BEFORE, *of_epoch(3)))
    plain = tuple(replace(entry, replaces=None) for entry in history.entries)
    assert Anomaly.DUP in judge(History(history.header, plain)).anomalies
