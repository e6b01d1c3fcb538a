"""A text that orders rows is warned of, with the cast that mends it; a removal that is not remembered is said."""

from __future__ import annotations

from typing import Any

from onceonly import exactly_once
from onceonly.api.admission import warn_text_order
from onceonly.quality.spark_outputs import OutputSpec, ResolvedOutput
from onceonly.windows import Count, Last, Max, Min, Sum, Tumbling, Windows
from onceonly.windows.rules.spec import Definition, define
from onceonly.windows.windows_argument import WindowsArgument
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import Keep, PostgresSink

PG = PostgresSink("postgresql://u@h/d", table="docs", key="doc", sequence="pos")
DELTA = DeltaSink("/lake/docs", key="doc", sequence="POS")
NONE = MemorySink(key="doc")


def texts(*args: Any) -> list[str]:
    return [str(one.reason) for one in warn_text_order(*args)]


def test_a_text_as_sequence_is_warned_of_for_every_sink_that_has_one() -> None:
    said = texts((PG, DELTA, NONE), [("doc", "int"), ("pos", "string")])
    assert [one.split(",")[0] for one in said] == ["[ONCE-W715] postgres:docs", "[ONCE-W715] delta:docs"]
    assert "cast(pos AS bigint) in transform=" in said[0]


def test_what_orders_as_it_looks_is_not_warned_of() -> None:
    for kind in ("bigint", "timestamp", "timestamp_ntz", "decimal(38,0)", "date", "double"):
        assert texts((PG, DELTA), [("doc", "string"), ("pos", kind)]) == []
    assert texts((PG,), [("doc", "string")]) == []


def test_the_columns_of_an_output_count_for_its_sinks() -> None:
    import pyarrow as pa

    def output(kind: pa.DataType) -> ResolvedOutput:
        wanted: Any = OutputSpec("docs", (PG.id,))
        return ResolvedOutput(wanted, "", pa.schema([("doc", pa.int32()), ("pos", kind)]), frozenset(), wanted)

    rows = [("doc", "int"), ("pos", "string")]
    assert texts((PG,), rows, [output(pa.int64())]) == []
    assert len(texts((PG,), [("doc", "int"), ("pos", "bigint")], [output(pa.string())])) == 1


def test_values_of_windows_that_order_texts_are_warned_of() -> None:
    values = {"n": Count(), "s": Sum("n"), "low": Min("pos"), "top": Max("n"), "end": Last("n", by="pos")}
    made = Windows(key="doc", aggregates=values, time="at", window=Tumbling("1 minute"))
    found: Definition = define(made, {"doc": "string", "pos": "string", "n": "bigint", "at": "timestamp"})
    said = texts((NONE,), [], (), WindowsArgument.ordered_by(found))
    assert [one.split(" in aggregates")[0] for one in said] == ["[ONCE-W715] Min", "[ONCE-W715] Last"]


def test_a_removal_that_an_older_change_undoes_is_said_unless_it_is_remembered() -> None:
    said: dict[str, Any] = {"key": "doc", "sequence": "pos", "delete_flag": "gone"}
    forgets = {sink.id: "is older than the removal" in str(exactly_once(sink).explain()) for sink in _removing(said)}
    assert forgets == {"postgres:docs": True, "delta:docs": True, "memory": True, "remembers": False, "keeps": False}


def _removing(said: dict[str, Any]) -> tuple[Any, ...]:
    return (
        PG.table("docs", **said),
        DeltaSink("/lake/docs", **said),
        MemorySink("memory", **said),
        PG.table("docs", id="remembers", keep=Keep(tombstones="7 days"), **said),
        DeltaSink("/lake/docs", id="keeps", key="doc", sequence="pos"),
    )
