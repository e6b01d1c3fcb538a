"""What the text of ``explain(True)`` says of a plan: state, expressions that change, sources of a stream."""

from __future__ import annotations

import pytest

from onceonly.spark.connect.reads import PlanText

COUNTS = """== Parsed Logical Plan ==
'Aggregate ['word], ['word, 'rand(7) AS x#1]
== Analyzed Logical Plan ==
word: string, count: bigint
~Aggregate [word#2], [word#2, count(1) AS count#6L]
+- StreamingRelation FileSource[/in], [id#1L, word#2], name=<Unassigned>

== Optimized Logical Plan ==
~Aggregate [word#2], [word#2, count(1) AS count#6L]

== Physical Plan ==
+- StateStoreSave [word#2], state info [ checkpoint = <unknown>, opId = 0, ver = 0, numPartitions = 2], Append, 0
"""


def analysed(tree: str, columns: str = "x: double") -> str:
    return f"== Analyzed Logical Plan ==\n{columns}\n{tree}\n== Optimized Logical Plan ==\n{tree}\n"


def test_state_is_seen_by_what_its_operators_print() -> None:
    assert PlanText(COUNTS).stateful
    assert PlanText("FlatMapGroupsInPandasWithState f(id#1), state info [ checkpoint = <unknown>]").stateful
    assert not PlanText("*(1) Project [id#1]\n+- FileScan parquet [id#1]").stateful


@pytest.mark.parametrize(
    ("operator", "stateful"),
    [("~Aggregate [word#2]", True), ("+- Deduplicate [id#1]", True), (":  +- ~Project [Aggregate#1]", False)],
)
def test_state_of_a_stream_that_is_not_planned_yet_is_seen_by_its_operators(operator: str, stateful: bool) -> None:
    failed = "org.apache.spark.sql.AnalysisException: Queries with streaming sources must be executed with ..."
    text = f"== Analyzed Logical Plan ==\nword: string\n{operator}\n== Physical Plan ==\n{failed}"
    assert PlanText(text).stateful is stateful
    assert not PlanText(text.replace(failed, "*(1) Project [word#2]")).stateful


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("rand(1490815121257337629) AS r#5", "rand(1490815121257337629)"),
        ("sum(uuid(Some(3))) AS u#5", "uuid(Some(3))"),
        ("shuffle(array(1, (2)), Some(4)) AS s#5", "shuffle(array(1, (2)), Some(4))"),
        ("now() AS n#5", "now()"),
        ("monotonically_increasing_id() AS m#5L", "monotonically_increasing_id()"),
    ],
)
def test_an_expression_that_changes_is_named_with_its_arguments(expression: str, found: str) -> None:
    assert PlanText(analysed(f"Project [id#1L, {expression}]")).nondeterministic() == found


@pytest.mark.parametrize(
    "expression",
    ["rand(7)#3 AS x#4", "my_rand(7) AS x#4", "brand#3", "table.rand(7) AS x#4", "`now`(1) AS x#4"],
)
def test_what_is_only_called_like_one_is_none(expression: str) -> None:
    assert PlanText(analysed(f"Project [{expression}]")).nondeterministic() is None


def test_names_of_columns_are_no_expressions() -> None:
    assert PlanText(analysed("Project [x#1]", columns="rand(7): double")).nondeterministic() is None
    assert PlanText(COUNTS).nondeterministic() is None


def test_a_clock_counts_where_the_callback_reads_it() -> None:
    text = analysed("Project [current_timestamp() AS at#4]")
    assert PlanText(text).nondeterministic() is None
    assert PlanText(text, clocks=True).nondeterministic() == "current_timestamp()"


def test_a_text_without_sections_is_taken_whole() -> None:
    assert PlanText("Project [rand(3) AS x#4]").nondeterministic() == "rand(3)"


def test_a_list_that_spark_cut_off_is_noticed() -> None:
    assert PlanText("Project [a#1, ... 8 more fields]").cut
    assert not PlanText(COUNTS).cut


def test_sources_of_a_stream_are_its_relations() -> None:
    assert PlanText(COUNTS).relations == ("StreamingRelation FileSource[/in], [id#1L, word#2], name=<Unassigned>",)
