"""``explain(df)`` says before the start what ``explain()`` says once the query runs; it runs nothing."""

from __future__ import annotations

import pytest
from integration.streams import settings
from integration.targets import ids
from pyspark.sql import functions as f

from onceonly import OnceOnlyError, Output, Quality, Recovery, Route, Storage, exactly_once
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark


def plain(df):
    return df


def drawn(df):
    return df.select("id", f.rand(7).alias("word"))


def own(df):
    shout = f.udf(lambda word: word.upper())
    return df.select("id", shout("word").alias("word"))


def once(df):
    return df.dropDuplicates(["id"])


def summed(df):
    return df.groupBy("word").count()


def joined(df):
    return df.join(df.sparkSession.createDataFrame([("w1", 1)], "word string, n int"), "word", "left")


@pytest.mark.parametrize(
    "shape",
    [drawn, once, *(pytest.param(shape, marks=pytest.mark.slow) for shape in (plain, summed, joined))],
    ids=lambda shape: shape.__name__,
)
def test_what_is_said_before_the_start_is_what_is_said_of_the_run(stream, sink, ledger, shape):
    wrapped = exactly_once(MemorySink(key="word") if shape is summed else sink, storage=Storage(ledger=ledger))
    stream.receive(range(5))
    before = wrapped.explain(shape(stream.read()))
    assert "looked at when the query starts" not in before
    assert "will be refused" not in before
    assert "looked at when the query starts" in wrapped.explain()
    stream.run(wrapped, shape=shape, mode="complete" if shape is summed else "append")
    assert before == wrapped.explain()


def test_a_function_before_the_sink_and_its_own_functions_are_named(stream, sink):
    said = exactly_once(sink, transform=own).explain(stream.receive(range(5)).read())
    assert "transform= writes anywhere by itself" in said
    assert "the function <lambda>() writes anywhere by itself" in said
    assert ids(sink) == []


def test_sources_are_told_by_their_options_and_settings(stream, sink, spark):
    reader = spark.readStream.schema("id bigint, word string")
    stream.receive(range(5))
    kept = reader.option("cleanSource", "delete").parquet(str(stream.inbox))
    assert "cleanSource=delete has removed the files" in exactly_once(sink).explain(kept)
    with settings(spark, {"spark.sql.files.ignoreMissingFiles": "true"}):
        assert "[ONCE-E126]" in exactly_once(sink).explain(stream.read())
    assert "[ONCE-E126]" not in exactly_once(sink).explain(stream.read())


def test_what_will_be_refused_is_said_with_its_code(stream, sink, spark):
    socket = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 1).load()
    assert "[ONCE-E127]" in exactly_once(sink).explain(socket)
    accepted = exactly_once(sink, recovery=Recovery(lossy_source="socket")).explain(socket)
    assert "[ONCE-E127]" not in accepted
    assert "socket sources cannot give rows again" in accepted
    stream.receive(range(5))
    assert "[ONCE-E109]" in exactly_once(sink, name="orders").explain(once(drawn(stream.read())))


def test_a_join_of_two_streams_keeps_state_and_one_with_a_table_does_not(stream, sink):
    stream.receive(range(5))
    both = stream.read().join(stream.read().withColumnRenamed("word", "other"), "id")
    assert "the plan keeps state" in exactly_once(sink).explain(both)
    assert "the plan keeps no state" in exactly_once(sink).explain(joined(stream.read()))


def test_rows_that_are_no_stream_are_refused(spark, sink):
    with pytest.raises(OnceOnlyError, match="no stream") as caught:
        exactly_once(sink).explain(spark.range(3))
    assert caught.value.code == "E110"


OTHERS = (
    ({"where": "sum(id) > 3"}, "E121"),
    ({"select": ["id + 1"]}, "E121"),
    ({"where": "rand() > 0.5"}, "E121"),
    ({"where": "amount > 3"}, "E121"),
    ({"where": "id > 3", "select": ["id AS key"]}, None),
    ({"select": ["to_json(struct(*)) AS value"]}, None),  # as E506 of a topic prints it
)


def test_outputs_are_looked_at_before_the_start(stream, sink):
    df, otherwise = stream.receive(range(5)).read(), []
    for said, code in OTHERS:
        told = str(exactly_once(sink, Output(MemorySink("memory:few"), name="few", **said)).explain(df))
        if ("will be refused" in told) is not (code is not None) or (code and f"[ONCE-{code}]" not in told):
            otherwise.append((said, told))
    assert otherwise == []
    assert ids(sink) == []


SEVERAL = (  # what is given beside the sink, what is said of it, and what leads on, as it is given
    ({"where": "wrd > 'a'"}, "name one that they have: id, word (did you mean word?)", {"where": "word > 'a'"}),
    ({"where": 5}, "correct it, in Spark SQL over the columns of the rows: id, word", {"where": "id = 5"}),
    ({"where": ""}, "correct it, in Spark SQL over the columns", {"where": "true"}),
    ({"where": "id"}, "correct it, in Spark SQL over the columns", {"where": "id > 0"}),
    ({"select": ["id + 1"]}, 'name it: select=["(id + 1) AS name"]', {"select": ["(id + 1) AS name"]}),
    ({"select": ["id", "word AS ID"]}, '"... AS id_2"', {"select": ["id", "word AS id_2"]}),
    ({"where": "rand() > 0.5"}, "compute it in transform=", {"where": "drawn > 0.5"}),
    ({"where": "sum(id) > 3"}, "compute it in transform=", {"where": "drawn > 3"}),
)


def test_an_expression_that_is_refused_says_what_leads_on(stream, sink, capfd):
    df, otherwise = stream.receive(range(5)).read(), []

    def told(**said):
        chosen = Output(MemorySink("memory:few"), name="few", **said)
        before = lambda rows: rows.withColumn("drawn", f.rand())  # noqa: E731
        return str(exactly_once(sink, chosen, transform=before if "drawn" in str(said) else None).explain(df))

    for said, way, instead in SEVERAL:
        if way not in (refused := told(**said)) or ("transform=" in refused) is not ("transform=" in way):
            otherwise.append((said, refused))
        if "will be refused" in told(**instead):
            otherwise.append((instead, told(**instead)))
    assert otherwise == []
    assert "QueryContextLogger" not in capfd.readouterr().err


def test_a_misspelt_column_of_a_route_is_said_of_the_route(stream, sink):
    df = stream.receive(range(5)).read()
    for unknown in ("bad", "ignore"):
        said = str(exactly_once(Route("wrd", {"a": sink}, unknown=unknown)).explain(df))
        assert 'Route("wrd")' in said
        assert "(did you mean word?)" in said
        assert "Expectation" not in said


def test_a_column_that_is_called_as_one_of_ours_is_to_be_renamed(stream, sink):
    df = stream.receive(range(5)).read()
    quality = Quality(expect={"fine": "id >= 0"}, quarantine=MemorySink("memory:bad"))
    clash = df.withColumnRenamed("word", "onceonly bad")
    assert 'withColumnRenamed("onceonly bad", "bad")' in str(exactly_once(sink, quality=quality).explain(clash))
    renamed = exactly_once(sink, quality=quality, transform=lambda rows: rows.withColumnRenamed("onceonly bad", "bad"))
    assert "will be refused" not in str(renamed.explain(clash))


def test_expectations_and_names_are_looked_at_before_the_start(stream, sink):
    df = stream.receive(range(5)).read()
    quality = Quality(expect={"positive": "id"}, quarantine=MemorySink("memory:bad"))
    assert "[ONCE-E121]" in exactly_once(sink, quality=quality).explain(df)
    named = Output(MemorySink("memory:few"), name="word")
    assert "[ONCE-E120]" in exactly_once(sink, named).explain(df)
    clock = Quality(expect={"after noon": "current_timestamp() > timestamp'2020-01-01'"})
    assert "gives another value in each run" in exactly_once(sink, quality=clock).explain(df)
    fine = Quality(expect={"positive": "id >= 0"})
    assert "will be refused" not in exactly_once(sink, quality=fine).explain(df)
