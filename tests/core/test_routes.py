"""Routes: what they make of a call, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from onceonly import Output, Quality, Route, exactly_once
from onceonly.errors import ConfigurationError
from onceonly.quality.outputs import expecting
from onceonly_sinks.memory import MemorySink


def sink(name: str) -> MemorySink:
    return MemorySink(id=f"memory:{name}")


def wanted(route: Route) -> list[tuple[str, tuple[str, ...], Any]]:
    return [(output.name, tuple(sink.id for sink in output.sinks), output.where) for output in route.outputs]


def test_each_sink_gets_an_output_of_the_rows_with_its_values() -> None:
    orders, refunds = sink("orders"), sink("refunds")
    route = Route("kind", {"order": orders, "refund": refunds, "reorder": orders})
    assert wanted(route) == [
        ("order", ("memory:orders",), "(kind) IN ('order', 'reorder')"),
        ("refund", ("memory:refunds",), "(kind) = 'refund'"),
    ]
    assert route.expected == "(kind) IN ('order', 'refund', 'reorder')"


def test_an_output_keeps_its_name_its_columns_and_its_condition() -> None:
    large = Output(sink("large"), name="large", where="amount > 9 OR vip", select=["id"])
    [one] = Route("kind", {"order": large}).outputs
    assert (one.name, one.where, one.select) == ("large", "(kind) = 'order' AND (amount > 9 OR vip)", ("id",))


@pytest.mark.parametrize("value", ["it's", "back\\slash", "both\\'"])
def test_a_value_is_one_whatever_it_holds(value: str) -> None:
    [one] = Route("kind", {value: Output(sink("a"), name="a")}).outputs
    assert one.where == f"(kind) = CAST(X'{value.encode().hex()}' AS STRING)"


def test_a_row_is_expected_to_have_a_sink_unless_that_is_ignored() -> None:
    known = Route("kind", {"order": sink("a")})
    assert expecting(None, [known]) == Quality(expect={"a known kind": "(kind) = 'order'"})
    assert expecting(None, [Route("kind", {"order": sink("a")}, unknown="ignore")]) is None
    both = expecting(
        Quality(expect={"it": "id > 3"}), [known, Route("kind", {"b": sink("b")}), Route('x["y"]', {"c": sink("c")})]
    )
    assert both is not None
    assert dict(both.expect) == {
        "it": "id > 3",
        "a known kind": "(kind) = 'order'",
        "a known kind (2)": "(kind) = 'b'",
        "a known value": "(x[\"y\"]) = 'c'",
    }


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        (lambda: Route("", {"order": sink("a")}), "names no column"),
        (lambda: Route(3, {"order": sink("a")}), "names no column"),  # type: ignore[arg-type]
        (lambda: Route("kind", {}), "names no sink"),
        (lambda: Route("kind", [sink("a")]), "names no sink"),  # type: ignore[arg-type]
        (lambda: Route("kind", {"order": sink("a")}, unknown="drop"), "unknown='drop'"),  # type: ignore[arg-type]
        (lambda: Route("kind", {3: sink("a")}), "has the value 3"),  # type: ignore[dict-item]
        (lambda: Route("kind", {"order.v1": sink("a")}), "names no output"),
        (lambda: Route("kind", {"late": sink("a")}), "is what onceonly calls an output of its own"),
        (lambda: Route("kind", {"A": sink("a"), "a": sink("b")}), 'two outputs are called "A"'),
        (lambda: Route("kind", {"order": Output(sink("a"), name="a", where=object())}), "is a Column"),  # type: ignore[arg-type]
        (lambda: Route("kind", {f"k{number}": sink(str(number)) for number in range(17)}), "there are 17 outputs"),
    ],
    ids=lambda said: said if isinstance(said, str) else "",
)
def test_a_route_that_leads_nowhere_is_refused(route: Callable[[], Route], problem: str) -> None:
    with pytest.raises(ConfigurationError, match="E120") as refused:
        exactly_once(route())
    assert problem in str(refused.value)


def obeyed(way: str) -> Any:
    """The call that a way out prints, made."""
    [said] = re.findall(r"Route\(.*\)", way) or re.findall(r'\{"[^}]*\}', way)
    said = said if said.startswith("Route") else f'Route("kind", {said})'
    return eval(said, {"Route": Route, "Output": Output, "sink": sink("obeyed")})


@pytest.mark.parametrize(
    "value", [1, 2.5, True, "1", "new york", "late", "State", "public.orders", "日本", "", "A" * 99, 'a "b"']
)
def test_what_is_printed_for_a_value_that_is_no_name_is_taken(value: Any) -> None:
    for by in ("n", "string(n)"):
        with pytest.raises(ConfigurationError, match="E120") as refused:
            exactly_once(Route(by, {value: sink("a")}))
        route = obeyed(refused.value.remedy)
        assert exactly_once(route)
        assert [*route.to] == [str(value) if value is not True else "true"]
        assert (route.by == "string(n)") is (by == "string(n)" or not isinstance(value, str))


def test_a_value_of_a_sink_that_has_a_name_by_another_value_needs_none() -> None:
    both = sink("both")
    assert [output.name for output in Route("kind", {"order": both, "new york": both}).outputs] == ["order"]
    assert exactly_once(Route("kind", {"order": both, "new york": both}))


def test_what_is_no_sink_is_refused_where_it_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r"E120.*'orders' for .order., which is no sink"):
        Route("kind", {"order": "orders"})  # type: ignore[dict-item]
    with pytest.raises(ConfigurationError, match="E110"):
        exactly_once(Route("kind", {"order": sink("a")}), quality="good")  # type: ignore[arg-type]


def test_the_promise_says_which_rows_go_where() -> None:
    route = Route("kind", {"order": sink("orders")})
    told = str(exactly_once(route, quality=Quality(quarantine=sink("bad"))).explain())
    assert "memory:orders holds every row of output order once: the rows where (kind) = 'order', without" in told
    assert "every row that breaks an expectation (a known kind: (kind) = 'order')." in told
