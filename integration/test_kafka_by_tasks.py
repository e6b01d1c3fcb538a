"""Rows that Spark's tasks send in the driver's transaction: each once, nothing of a failure, where its key belongs."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from integration.jobs import Job
from integration.processes import Drivers, was_killed
from integration.servers import KafkaAddress
from integration.streams import FileStream
from integration.test_order_per_key import STEPS, fill
from py4j.clientserver import ClientServerConnection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.kafka_client import ends, more_partitions
from tests.sinks.kafka_harness import messages
from tests.sinks.kafka_writer import Writer

from onceonly import exactly_once
from onceonly.errors import OnceOnlyError
from onceonly.protocol import Batch, Estimate, Superseded
from onceonly.spark.batch import SparkBatch
from onceonly.spark.detect import line
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink, KafkaTuning, executors

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.skipif(line().kafka is None, reason="no jars with Kafka's client for this Spark"),
]

BY_TASKS, BY_DRIVER = KafkaTuning(load="executors"), KafkaTuning(load="driver")


def records(df: DataFrame) -> DataFrame:
    return df.select(f.col("word").alias("key"), f.col("id").cast("string").alias("value"))


PARTITIONS = 3
UNKNOWN = Estimate(None, None)


def ids(kafka: KafkaAddress, topic: str) -> list[int]:
    return sorted(int(message.value()) for message in messages(kafka.servers, topic, PARTITIONS))


def producers(spark: SparkSession) -> list[str]:
    """Of ours in the JVM, where an epoch that has ended leaves none."""
    names = [thread.getName() for thread in spark.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()]
    return [name for name in names if name.startswith("kafka-producer-network-thread") and "onceonly" in name]


def places(kafka: KafkaAddress, topic: str) -> set[tuple[bytes, int]]:
    return {(message.key(), message.partition()) for message in messages(kafka.servers, topic, PARTITIONS)}


def test_rows_are_sent_once_and_a_replay_sends_none(stream: FileStream, any_kafka: KafkaAddress) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    sink = KafkaSink(any_kafka.servers, topic, tuning=BY_TASKS)
    stream.receive(range(1000), range(1000, 3000), []).run(exactly_once(sink), shape=records)
    stream.remove("commits", 2)
    stream.receive(range(3000, 3010)).run(exactly_once(sink), shape=records)
    assert ids(any_kafka, topic) == [*range(3010)]
    assert "filled by the tasks of Spark" in sink.capabilities.committer
    assert producers(stream.spark) == []


def test_an_epoch_asks_the_jvm_seldom(
    stream: FileStream, any_kafka: KafkaAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, begun = itertools.count(), list[int]()
    ask, send = ClientServerConnection.send_command, executors.send

    def counted(connection: Any, command: str) -> Any:
        next(asked)
        return ask(connection, command)

    def noted(*arguments: Any) -> int:
        begun.append(next(asked))
        return send(*arguments)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    monkeypatch.setattr(executors, "send", noted)
    sink = KafkaSink(any_kafka.servers, any_kafka.topic("tasks", partitions=PARTITIONS), tuning=BY_TASKS)
    stream.receive(*(range(at, at + 10) for at in range(0, 50, 10))).run(exactly_once(sink), shape=records)
    assert len(begun) == 5
    # The end of a Java list alone, where Python iterates over it, is an exception that PySpark asks 80 times about.
    # Now and then objects are given back as well.
    most = 200 if line().minor == "4.0" else 150  # where each collection of rows asks for more
    assert min(after - before for before, after in itertools.pairwise(begun)) < most


def test_keys_go_where_the_driver_sends_them(stream: FileStream, any_kafka: KafkaAddress) -> None:
    topics = [any_kafka.topic(name, partitions=PARTITIONS) for name in ("tasks", "driver")]
    stream.receive(range(500))
    for topic, tuning in zip(topics, (BY_TASKS, BY_DRIVER), strict=True):
        stream.name = topic
        stream.run(exactly_once(KafkaSink(any_kafka.servers, topic, tuning=tuning)), shape=records)
        stream.lose_checkpoint()
    by_tasks, by_driver = (places(any_kafka, topic) for topic in topics)
    assert by_tasks == by_driver
    assert len(by_tasks) == 500
    assert {partition for _, partition in by_tasks} == {*range(PARTITIONS)}


def test_a_row_that_is_refused_leaves_nothing_and_the_next_start_goes_on(
    stream: FileStream, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS, config={"max.message.bytes": "20000"})
    sink = KafkaSink(any_kafka.servers, topic, tuning=BY_TASKS)

    def large(df: DataFrame) -> DataFrame:
        text = f.when(f.col("id") == 900, f.repeat(f.lit("x"), 500_000)).otherwise(f.col("id").cast("string"))
        return df.select("word", text.alias("value")).withColumnRenamed("word", "key")

    stream.receive(range(1000))
    said = stream.fail(exactly_once(sink), shape=large)
    assert "ONCE-E517" in said
    assert ids(any_kafka, topic) == []
    stream.run(exactly_once(sink), shape=records)
    assert ids(any_kafka, topic) == [*range(1000)]


def test_what_only_the_driver_can_send_is_sent_by_it_or_refused_by_name(
    stream: FileStream, any_kafka: KafkaAddress
) -> None:
    """The size of the batch says tasks: the limit is a byte."""
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)

    def placed(df: DataFrame) -> DataFrame:
        return records(df).withColumn("partition", f.lit(1))

    sink = KafkaSink(any_kafka.servers, topic, tuning=KafkaTuning(driver_limit=1))
    stream.receive(range(100)).run(exactly_once(sink), shape=placed)
    assert sink.capabilities.committer == "transaction, filled by the driver: rows have a column partition"
    stream.receive(range(100, 200))
    asked = KafkaSink(any_kafka.servers, topic, tuning=BY_TASKS)
    said = stream.fail(exactly_once(asked), shape=placed)
    assert "ONCE-E110" in said
    assert "rows have a column partition" in said
    stream.run(exactly_once(KafkaSink(any_kafka.servers, topic)), shape=placed)
    assert ids(any_kafka, topic) == [*range(200)]


def test_an_epoch_for_which_spark_runs_no_task_is_one(spark: SparkSession, any_kafka: KafkaAddress) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    with writer(any_kafka, topic) as driver:
        driver.write(batch(spark, range(10)))
        receipt = driver.write(SparkBatch(spark.createDataFrame([], "key string, value string"), UNKNOWN))
        assert (receipt.epoch, receipt.rows) == (2, 0)
        driver.write(batch(spark, range(10, 20)))
    assert ids(any_kafka, topic) == [*range(20)]


def test_rows_that_tasks_have_sent_and_the_brokers_have_not_are_missed_before_the_commit(
    stream: FileStream, any_kafka: KafkaAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers take a record under a number that they have seen for a repeated one, and say that they have it."""
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    sink, send = KafkaSink(any_kafka.servers, topic, tuning=BY_TASKS), executors.send
    stream.receive(range(100)).run(exactly_once(sink), shape=records)

    def short(destination: Any, state: Any, rows: Batch, epoch: int) -> int:
        counted = len(rows.dataframe.collect())
        send(destination, state, batch(stream.spark, range(9)), epoch)
        return counted

    monkeypatch.setattr(executors, "send", short)
    assert "ONCE-E510" in stream.receive(range(100, 200)).fail(exactly_once(sink), shape=records)
    monkeypatch.setattr(executors, "send", send)
    stream.run(exactly_once(sink), shape=records)
    assert ids(any_kafka, topic) == [*range(200)]


@pytest.mark.parametrize("tuning", [BY_TASKS, BY_DRIVER], ids=["tasks", "driver"])
def test_partitions_that_a_topic_gets_between_epochs_are_counted(
    spark: SparkSession, any_kafka: KafkaAddress, tuning: KafkaTuning
) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    with Writer(any_kafka.servers, topic, 1, tuning=tuning) as driver:
        driver.write(batch(spark, range(1000)))
        time.sleep(1)  # until what the next epoch needs is ready, which looks at the topic
        more_partitions(any_kafka.servers, topic, 2 * PARTITIONS)
        receipt = driver.write(batch(spark, range(1000, 2000)))
        assert receipt.rows == 1000
        assert len(json.loads(str(receipt.at("end")))[topic]) == 2 * PARTITIONS
        assert driver.sink.recount() == {1: 1000, 2: 1000}
    found = {message.partition() for message in messages(any_kafka.servers, topic, 2 * PARTITIONS)}
    # The driver's client hears of new partitions only minutes later.
    assert found == {*range(2 * PARTITIONS if tuning is BY_TASKS else PARTITIONS)}


@pytest.mark.parametrize("rows", [100, 0])
def test_a_topic_that_is_made_anew_between_epochs_is_refused_by_name(
    spark: SparkSession, any_kafka: KafkaAddress, rows: int
) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    admin = AdminClient({"bootstrap.servers": any_kafka.servers})
    with writer(any_kafka, topic) as driver:
        driver.write(batch(spark, range(100)))
        time.sleep(1)  # until what the next epoch needs is ready, which looks at the topic
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: topic not in admin.list_topics(timeout=30).topics, "the end of the topic")
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        until(lambda: topic in admin.list_topics(timeout=30).topics, "the topic")
        with pytest.raises(OnceOnlyError) as caught:
            driver.write(batch(spark, range(rows)))
        assert caught.value.code == "E208"


# ---- faults, without a stream: the sink is called as the coordinator calls it


def sent(kafka: KafkaAddress, topic: str) -> int:
    """Records of partition 0, also of open transactions."""
    return ends(kafka.servers, topic)[1]


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def writer(kafka: KafkaAddress, topic: str, generation: int = 1) -> Writer:
    return Writer(kafka.servers, topic, generation, tuning=BY_TASKS)


def batch(spark: SparkSession, numbers: range, *columns: str) -> SparkBatch:
    rows = spark.range(numbers.start, numbers.stop, 1, 2)
    return SparkBatch(rows.selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value", *columns), UNKNOWN)


def slowly(spark: SparkSession, numbers: range, at: int, seconds: int) -> SparkBatch:
    """Rows of which one takes long, in a task that has sent others before."""
    sleeps = f"java_method('java.lang.Thread', 'sleep', {seconds * 1000}L)"
    value = f"IF(id = {at}, concat(CAST(id AS STRING), coalesce(nullif({sleeps}, 'null'), '')), CAST(id AS STRING))"
    rows = spark.range(numbers.start, numbers.stop, 1, 2)
    return SparkBatch(rows.selectExpr("CAST(id AS STRING) AS key", f"{value} AS value"), UNKNOWN)


def raising(spark: SparkSession, numbers: range, at: int) -> SparkBatch:
    value = f"IF(id = {at}, raise_error('in the middle'), CAST(id AS STRING))"
    rows = spark.range(numbers.start, numbers.stop, 1, 2)
    return SparkBatch(rows.selectExpr("CAST(id AS STRING) AS key", f"{value} AS value"), UNKNOWN)


def test_nothing_of_a_task_that_throws_is_seen_and_the_epoch_is_written_again(
    spark: SparkSession, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    with writer(any_kafka, topic) as driver:
        with pytest.raises(Exception, match="in the middle"):
            driver.prepare(raising(spark, range(20_000), 19_000))
        assert ids(any_kafka, topic) == []
        driver.write(batch(spark, range(20_000)))
        driver.write(batch(spark, range(20_000, 20_010)))
    assert ids(any_kafka, topic) == [*range(20_010)]


def test_a_driver_that_is_fenced_out_while_its_tasks_send_leaves_nothing(
    spark: SparkSession, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    with writer(any_kafka, topic) as zombie, ThreadPoolExecutor(1) as pool:
        filling = pool.submit(zombie.prepare, slowly(spark, range(20_000), 19_000, 6))
        until(lambda: sent(any_kafka, topic) > 300, "the first rows")
        with writer(any_kafka, topic, 2) as driver:
            driver.write(batch(spark, range(20_000)))
            with pytest.raises(Superseded):
                filling.result(60)
            driver.write(batch(spark, range(20_000, 20_010)))
    assert ids(any_kafka, topic) == [*range(20_010)]


def test_what_a_task_sends_after_the_end_of_its_epoch_is_never_seen(
    spark: SparkSession, any_kafka: KafkaAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that the driver takes for ended, and that goes on: its rows come after commit and next fence."""
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    with writer(any_kafka, topic) as driver, ThreadPoolExecutor(1) as pool:
        real, late = executors.send, []

        def and_another(destination: Any, state: Any, _: Batch, epoch: int) -> int:
            late.append(pool.submit(real, destination, state, slowly(spark, range(50_000, 70_000), 69_000, 8), epoch))
            until(lambda: sent(any_kafka, topic) > 300, "the first rows of the late one")
            monkeypatch.setattr(executors, "send", real)
            return 0

        monkeypatch.setattr(executors, "send", and_another)
        driver.commit(driver.prepare(batch(spark, range(0))))
        with pytest.raises(KafkaException):
            late[0].result(60)
        driver.write(batch(spark, range(100)))
    # What was there at the commit is the fault of a driver that did not wait: it is played here, and never done.
    seen = ids(any_kafka, topic)
    assert [number for number in seen if number < 50_000] == [*range(100)]
    assert 69_000 not in seen
    until(lambda: len({*ends(any_kafka.servers, topic)}) == 1, "the end of every transaction")


def test_a_late_task_of_an_older_epoch_has_no_part_in_a_newer_one(
    spark: SparkSession, any_kafka: KafkaAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins when the tasks of the newer one send, in the same JVM, whose producer is not its own."""
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    with writer(any_kafka, topic) as driver, ThreadPoolExecutor(1) as pool:
        real, first = executors.send, []

        def noted(destination: Any, state: Any, rows: Batch, epoch: int) -> int:
            ids = state.transaction.ids()
            monkeypatch.setattr(state.transaction, "ids", lambda: ids)
            first.append((destination, state))
            monkeypatch.setattr(executors, "send", real)
            return real(destination, state, rows, epoch)

        monkeypatch.setattr(executors, "send", noted)
        driver.write(batch(spark, range(100)))
        before = sent(any_kafka, topic)
        filling = pool.submit(driver.prepare, slowly(spark, range(100, 20_100), 19_100, 6))
        until(lambda: sent(any_kafka, topic) > before + 300, "the first rows")
        with pytest.raises(KafkaException) as late:
            real(*first[0], batch(spark, range(50_000, 50_100)), 1)
        assert late.value.args[0].code() == KafkaError.INVALID_PRODUCER_EPOCH
        driver.commit(filling.result(60))
    assert ids(any_kafka, topic) == [*range(20_100)]


@pytest.mark.slow
def test_tasks_that_take_longer_than_a_transaction_may_stay_open_are_refused_with_the_setting(
    spark: SparkSession, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("tasks", partitions=PARTITIONS)
    options = {"kafka.transaction.timeout.ms": "1000"}
    with Writer(any_kafka.servers, topic, 1, tuning=BY_TASKS, options=options) as driver:
        with pytest.raises(OnceOnlyError) as caught:
            # The brokers look for old transactions every ten seconds.
            driver.write(slowly(spark, range(20_000), 19_000, 15))
        assert caught.value.code == "E513"
        assert "kafka.transaction.timeout.ms" in caught.value.remedy
        driver.write(batch(spark, range(20_000)))
    assert ids(any_kafka, topic) == [*range(20_000)]


@pytest.mark.slow
@pytest.mark.kill
def test_a_broker_that_is_killed_while_tasks_send_loses_and_doubles_nothing(
    spark: SparkSession, kafka: EmbeddedKafka
) -> None:
    """The tasks wait for it, as for a leader that moves: each producer sends what was not answered once more."""
    topic = kafka.topic("tasks-killed", PARTITIONS)
    address = KafkaAddress(kafka.servers)
    with writer(address, topic) as driver, ThreadPoolExecutor(1) as pool:
        for first in range(0, 60_000, 20_000):
            before = sent(address, topic)
            filling = pool.submit(driver.prepare, slowly(spark, range(first, first + 20_000), first + 19_000, 3))
            until(lambda before=before: sent(address, topic) > before + 300, "the first rows")
            kafka.kill()
            kafka.start()
            driver.commit(filling.result(120))
    assert ids(address, topic) == [*range(60_000)]


# ---- killed


@pytest.mark.slow
@pytest.mark.kill
def test_drivers_that_are_killed_while_their_tasks_send_write_each_row_once(
    any_kafka: KafkaAddress, tmp_path: Path, warm_drivers: Drivers
) -> None:
    """The JVM lives on, and with it the tasks of the dead driver."""
    topic, inbox, rows = any_kafka.topic("tasks", partitions=PARTITIONS), tmp_path / "in", 50_000
    places = (str(inbox), str(tmp_path / "ck"), str(tmp_path / "ledger.db"))
    job = Job("orders", "kafka:executors", f"{any_kafka.servers} {topic}", *places)
    for number in range(10):
        fill(inbox, [number], rows)
        before = sent(any_kafka, topic)
        driver = warm_drivers.start(job)
        until(lambda before=before: sent(any_kafka, topic) > before + 100, "the first rows")
        driver.kill()
    for number, point in enumerate(STEPS, 10):
        fill(inbox, [number], rows)
        assert was_killed(warm_drivers.start(job, fault=f"{point}:killgroup")), point
    warm_drivers.finish(job)
    found = sorted(json.loads(m.value())["id"] for m in messages(any_kafka.servers, topic, PARTITIONS))
    assert found == [*range((10 + len(STEPS)) * rows)]
