"""What a query must be before its first epoch: rules over names, without a destination."""

from __future__ import annotations

import re
from typing import Any

import pytest

from onceonly.errors import ConfigurationError
from onceonly.machine.admission import (
    Target,
    check_apart,
    check_loop,
    check_names,
    check_output,
    further_rows,
    renamed,
)
from onceonly.machine.source_order import kafka_identity
from onceonly.protocol.values import Names
from onceonly.spark.engine import output_of
from onceonly_checkpoints.model import SourceIdentity

PLAIN, CUTS, FOLDS = Names(), Names(most=8), Names(folds=True)


def refused(names: Names, *columns: str) -> dict[str, object]:
    try:
        check_names("orders", "sink", names, columns)
    except ConfigurationError as error:
        return {**error.details, "code": error.code}
    return {"problem": "", "next": "", "code": ""}


@pytest.mark.parametrize(
    ("names", "columns", "said"),
    [
        (PLAIN, ("id", "v", "id"), "two columns are called id"),
        (PLAIN, ("id", ""), "column 2 has no name"),
        (PLAIN, ("id", "ID", "a.b", "a b", "x" * 400), ""),
        (FOLDS, ("id", "ID"), "id and ID are one name there"),
        (CUTS, ("exactly8",), ""),
        (CUTS, ("exactly8_",), "column exactly8_ has 9 bytes, of which 8 are kept: exactly8"),
        (CUTS, ("größeren",), "column größeren has 10 bytes, of which 8 are kept: größer"),
    ],
)
def test_names_that_a_destination_cannot_tell_apart_are_refused(
    names: Names, columns: tuple[str, ...], said: str
) -> None:
    found = refused(names, *columns)
    assert (found["problem"], found["code"]) == (said, "E138" if said else "")


def test_the_printed_names_fit_and_the_call_gives_them() -> None:
    wrong = {
        PLAIN: [("id", "v", "id"), ("id", "id_2", "id", "id"), ("", "a", "column_1"), ('say "a"', 'say "a"', "\\")],
        CUTS: [("exactly8", "exactly8_1", "exactly8_2"), ("größeren", "größerer"), ("", "column_1", "a" * 9)],
        FOLDS: [("id", "ID", "Id_2"), ("A", "a", "b", "B")],
    }
    for names, cases in wrong.items():
        for columns in cases:
            wanted = renamed(names, columns)
            assert len(wanted) == len(columns)
            assert refused(names, *wanted)["problem"] == "", columns
            call = re.search(r"df\.toDF\((.*)\)", str(refused(names, *columns)["next"]))
            assert call
            assert eval(f"({call[1]},)") == wanted  # as the user pastes it


def test_a_name_that_fits_stays() -> None:
    assert renamed(PLAIN, ("id", "v", "id")) == ("id", "v", "id_2")
    assert renamed(PLAIN, ("", "a", "column_1")) == ("column_1_2", "a", "column_1")
    assert renamed(CUTS, ("a", "exactly8_1", "exactly8")) == ("a", "exactl_2", "exactly8")


def target(sink: str, place: str = "pg:7/shop.public.orders", **more: Any) -> Target:
    return Target(sink, f"address of {sink}", place, **more)


def test_two_sinks_on_one_target_are_refused_unless_an_id_was_given() -> None:
    plain, other, named = target("t", named=False), target("public.t", named=False), target("again", named=True)
    elsewhere, unknown = target("u", "pg:7/shop.public.u", named=False), target("v", "", named=False)
    assert check_apart("orders", [plain, elsewhere, unknown, target("w", "", named=False)]) == ()
    assert check_apart("orders", [plain, named]) == ((plain, named),)
    with pytest.raises(ConfigurationError, match=r"t and public\.t .*one target, pg:7/shop\.public\.orders") as refused:
        check_apart("orders", [elsewhere, plain, other])
    assert refused.value.code == "E139"
    assert 'id="public.t-2"' in str(refused.value)


@pytest.mark.parametrize("keeps", ["bad rows", "ids", "windows", "late rows"])
def test_what_is_kept_apart_has_a_target_of_its_own_whatever_its_id(keeps: str) -> None:
    with pytest.raises(ConfigurationError, match=f"give {keeps} a target of their own") as refused:
        check_apart("orders", [target("t"), target("kept", keeps=keeps)])
    assert refused.value.code == "E139"


TOPICS = SourceIdentity("0", kafka_identity("c", {"a": "1", "b": "2"}))
TABLE = SourceIdentity("0", "4b1e")
FOLDER = SourceIdentity("0", "files:FileStreamSource[file:/lake/in]", "hash")


@pytest.mark.parametrize(
    ("written", "source", "loops"),
    [
        (target("k", "", feeds=kafka_identity("c", {"b": "2"})), TOPICS, True),
        (target("k", "", feeds=kafka_identity("c", {"out": "3"})), TOPICS, False),
        (target("k", "", feeds=kafka_identity("other", {"b": "2"})), TOPICS, False),
        (target("k", "", feeds=kafka_identity("c", {"b": "made anew"})), TOPICS, False),
        (target("d", "", feeds="4b1e"), TABLE, True),
        (target("d", "", feeds="5c2f"), TABLE, False),
        (target("d", "delta:/lake/in"), FOLDER, True),
        (target("d", "delta:/lake/in/out"), FOLDER, False),
        (target("d", "delta:/lake/in"), SourceIdentity("0", "files:FileStreamSource", "hash"), False),
        (target("p"), FOLDER, False),
    ],
)
def test_a_target_that_a_source_reads_is_refused(written: Target, source: SourceIdentity, loops: bool) -> None:
    if not loops:
        return check_loop("orders", written, (source,))
    with pytest.raises(ConfigurationError, match=f"reads what {written.sink} writes to") as refused:
        check_loop("orders", written, (source,))
    assert refused.value.code == "E147"
    return None


PLAN = '[{"class":"org.apache.spark.sql.catalyst.plans.logical.%s","num-children":1}]'


def test_a_group_that_changes_is_a_further_row_in_output_mode_update_alone() -> None:
    aggregate, distinct = PLAN % "Aggregate", PLAN % "Deduplicate"
    cases = {
        ("update", aggregate, True): True,
        ("update", PLAN % "TransformWithStateInPySpark", True): True,
        ("update", None, True): True,
        ("update", distinct, True): False,
        ("update", aggregate, False): False,
        ("append", aggregate, True): False,
        ("", aggregate, True): False,
    }
    found = {case: further_rows(case[0], case[1], stateful=case[2]) for case in cases}
    assert found == cases


def test_a_whole_result_in_each_epoch_is_not_for_sinks_that_only_add_rows() -> None:
    for output, adding in (("append", ["t"]), ("update", ["t"]), ("", ["t"]), ("complete", [])):
        check_output("sums", output, adding)
    with pytest.raises(ConfigurationError, match='"sums" runs in output mode complete, and t, u only adds') as refused:
        check_output("sums", "complete", ["t", "u"])
    assert refused.value.code == "E137"


def test_a_writer_of_spark_connect_tells_its_output_mode_before_the_start() -> None:
    from pyspark.sql.connect.plan import LogicalPlan
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    writer: Any = DataStreamWriter(LogicalPlan(None), None)  # type: ignore[arg-type]
    assert output_of(writer) == ""
    assert output_of(writer.outputMode("Complete")) == "complete"
