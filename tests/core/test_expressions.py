"""Expressions as text: what stands in ``explain()`` and in the log is the same in each process."""

from __future__ import annotations

import pytest

from onceonly.spark.expression_check import text_of

NODE = (
    "columnnodeexpression(UnresolvedAttribute(List({name}),None,false,Origin(None,None,None,None,None,None,None,"
    "Some([Ljava.lang.StackTraceElement;@{at}),Some((col,/home/me/job.py:10)),None)))"
)


class Shown:
    """What has the text of a Column."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def both(at: str) -> str:
    first, second = NODE.format(name="b", at=at), NODE.format(name="c", at=at)
    return f"Column<'and(>(a, 1), <lambda>({first}, {second}), like(x, (%))'>"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("amount > 9", "amount > 9"),
        (Shown("Column<'(amount > 9)'>"), "(amount > 9)"),
        (Shown(both("44b7cbe9")), "and(>(a, 1), <lambda>(..., ...), like(x, (%))"),
        (Shown("Column<'f(columnnodeexpression(cut"), "Column<'f(..."),
    ],
    ids=["text", "no function", "a function", "cut"],
)
def test_a_column_has_one_text_without_addresses(said: object, text: str) -> None:
    assert text_of(said) == text  # type: ignore[arg-type]
