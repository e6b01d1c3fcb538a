"""A sink that takes rows one by one: what is promised of it, and what it cannot carry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceonly import OnceOnlyError, Output, Quality, Recovery, Storage, exactly_once
from onceonly.api import guarantee
from onceonly.api.arguments import refuse_plan
from onceonly.errors.codes import CATALOGUE
from onceonly.protocol import Capabilities
from onceonly.spark import engine
from onceonly.spark.fingerprint import Determinism
from onceonly_sinks.memory import MemorySink

STATELESS = engine.QueryPlan(stateful=False, nondeterministic=None, sources=())
STATEFUL = replace(STATELESS, stateful=True)


class OneByOne(MemorySink):
    """The reference sink, which says less of itself than it does."""

    said: dict[str, Any]

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, **{"transactional": False, "append_only": False, **self.said})


def one_by_one(id: str = "store", **said: Any) -> OneByOne:
    sink = OneByOne(id=id)
    sink.said = said
    return sink


def told(plan: engine.QueryPlan | None = None, written: Determinism | None = None, **chosen: Any) -> str:
    return guarantee.explain([one_by_one()], plan, written, guarantee.GuaranteeInputs(**chosen))


def test_a_sink_is_transactional_unless_it_says_otherwise() -> None:
    assert MemorySink().capabilities.transactional


def test_the_weaker_promise_is_said_in_plain_words() -> None:
    said = exactly_once(one_by_one(committer="PUT by key")).explain()
    promise, *lines = said.splitlines()
    assert promise == "store ends with the same final result as if every row of the stream had taken effect once."
    assert lines[0] == (
        "  because  each row is put by itself under its key, and the marker last, once every row was acknowledged "
        "(PUT by key)"
    )
    assert "  because  an interrupted epoch is put again, whole, by the replay of its batch" in lines
    [readers] = [line for line in lines if line.startswith("  readers")]
    assert readers.startswith("  readers  may see parts of an epoch, and rows put again; ")


def test_the_weaker_promise_names_what_breaks_it() -> None:
    dangers = [line for line in told().splitlines() if line.startswith("  unless")]
    for what in ("two drivers run at once", "arrives late", "gives other rows", "never replayed"):
        assert [line for line in dangers if what in line], what


@pytest.mark.parametrize("plan", [None, STATELESS, STATEFUL], ids=["none", "stateless", "stateful"])
def test_the_weaker_promise_claims_nothing_of_a_transaction_or_a_fence(plan: engine.QueryPlan | None) -> None:
    said = told(plan, Determinism(functions=("shout",), nondeterministic="rand() AS draw"))
    for claim in ("committed together", "fences older drivers out", "exactly", "stream once", "run that committed"):
        assert claim not in said
    assert ("the function shout() gives another result for the same rows" in said) == (plan is not None)


def test_a_function_before_the_sink_is_named_where_a_cut_off_run_may_have_put_other_rows() -> None:
    assert "transform= gives another result for the same rows" in told(STATELESS, Determinism(), transform=True)


def test_a_transactional_sink_is_promised_what_it_was() -> None:
    said = exactly_once(MemorySink(id="store")).explain()
    assert said.startswith("store holds every row of the stream once.")
    assert "rows and marker are committed together" in said
    assert "one by one" not in said


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"append_only": True}, "only adds rows"),
        ({"carries_ledger": True}, "carry the ledger's record"),
    ],
    ids=["append", "ledger"],
)
def test_a_sink_that_contradicts_itself_is_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(OnceOnlyError, match=problem) as caught:
        exactly_once(one_by_one(**said))
    assert caught.value.code == "E128"


@pytest.mark.parametrize("first", [True, False])
def test_it_stands_beside_no_other_sink(first: bool) -> None:
    sinks = [one_by_one("store"), MemorySink(id="other")]
    with pytest.raises(OnceOnlyError, match="given with other") as caught:
        exactly_once(*(sinks if first else reversed(sinks)))
    assert caught.value.code == "E128"
    assert str(caught.value).startswith("[ONCE-E128] store ")


@pytest.mark.parametrize(
    ("chosen", "word"),
    [
        ({"storage": Storage(staging="/nowhere")}, "staging="),
        ({"storage": Storage(keep_epochs=2)}, "keep_epochs="),
        ({"recovery": Recovery(overlap="trim")}, 'overlap="trim"'),
    ],
)
def test_what_hangs_on_a_transaction_is_refused_by_name(chosen: dict[str, Any], word: str) -> None:
    with pytest.raises(OnceOnlyError) as caught:
        exactly_once(one_by_one(), **chosen)
    assert caught.value.code == "E128"
    assert word in str(caught.value.what)
    assert word in caught.value.remedy


def test_rows_of_a_part_of_its_own_are_refused_with_the_way_out() -> None:
    few = Output(one_by_one(), name="few", where="id < 3")
    small = Quality(expect={"small": "id < 3"})
    for given, said in (([few], {}), ([one_by_one()], {"quality": small})):
        with pytest.raises(OnceOnlyError) as caught:
            exactly_once(*given, **said)
        assert caught.value.code == "E128"
        assert "transform=lambda df: df.where(...)" in caught.value.remedy


def test_alone_with_keys_it_is_taken() -> None:
    assert exactly_once(
        one_by_one(), recovery=Recovery(overlap="stop", adopt="here"), storage=Storage(ledger="x.db"), name="orders"
    )


DRAWN = replace(STATELESS, nondeterministic="rand() AS draw")


def test_a_plan_that_draws_is_refused_although_it_keeps_no_state() -> None:
    refuse_plan(DRAWN, "orders", None, DRAWN.nondeterministic, one_by_one="")
    with pytest.raises(OnceOnlyError, match=r"rand\(\) AS draw") as caught:
        refuse_plan(DRAWN, "orders", None, DRAWN.nondeterministic, one_by_one="store")
    assert caught.value.code == "E129"


def test_a_plan_that_draws_and_keeps_state_is_refused_for_its_state() -> None:
    with pytest.raises(OnceOnlyError) as caught:
        refuse_plan(replace(DRAWN, stateful=True), "orders", None, DRAWN.nondeterministic, one_by_one="store")
    assert caught.value.code == "E109"


def test_the_page_that_allows_draws_says_for_which_sinks() -> None:
    assert "E129" in CATALOGUE["E109"].more
