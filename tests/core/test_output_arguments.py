"""What ``Output(...)`` is called with: what forms no epoch is refused where it is said, with the way out."""

from __future__ import annotations

import re

import pytest

from onceonly import Output, exactly_once
from onceonly.errors import ConfigurationError
from onceonly_sinks.memory import MemorySink


def sink(name: str) -> MemorySink:
    return MemorySink(id=f"memory:{name}")


def output(name: str, **said: object) -> Output:
    return Output(sink(name), name=name, **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ([output("few"), Output(sink("other"), name="FEW")], 'two outputs are called "few"'),
        ([Output(name="few")], 'output "few" has no sink'),
        ([output("bad")], '"bad" is what onceonly calls'),
        ([output("Rows")], '"Rows" is what onceonly calls'),
        ([output("")], "'' names no output"),
        ([output("a b")], "'a b' names no output"),
        ([output(f"o{number}") for number in range(17)], "there are 17 outputs, and 16 is the most"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_outputs_that_form_no_epoch_are_refused(outputs: list[Output], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as refused:
        exactly_once(sink("rows"), *outputs)
    assert refused.value.code == "E120"


def test_columns_as_one_text_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=re.escape('give a list: select=["id, word"]')):
        output("few", select="id, word")


def test_a_sink_is_in_one_output_and_nowhere_else() -> None:
    with pytest.raises(ConfigurationError, match="E102"):
        exactly_once(sink("few"), output("few"))


def test_sixteen_outputs_and_nothing_beside_them_are_an_epoch() -> None:
    wrapped = exactly_once(*(output(f"o{number}") for number in range(16)))
    assert "memory:o3 holds every row of output o3 once: every row." in str(wrapped.explain())


def test_the_promise_says_what_each_sink_gets() -> None:
    few = output("few", where="amount > 1000", select=["id AS key", "amount"])
    told = str(exactly_once(sink("rows"), few).explain())
    assert "memory:rows holds every row of the stream once." in told
    assert "memory:few holds every row of output few once: the rows where amount > 1000, as id AS key, amount." in told
    assert repr(few) == f"Output({few.sinks[0]!r}, name='few', where='amount > 1000', select=['id AS key', 'amount'])"
