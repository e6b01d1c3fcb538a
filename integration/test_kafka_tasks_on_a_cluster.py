"""Tasks on a cluster that send in the driver's transaction: a producer each, a partition's rows in one of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from integration.cluster_driver import Work
from integration.processes import until
from integration.servers import KafkaAddress
from tests.sinks.kafka_harness import messages

from onceonly_lab.servers.spark import StandaloneCluster, kill_executor

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS, ROWS, PATIENCE_S = 5, 20_000, 240
READ_ALL = {"isolation.level": "read_uncommitted", "log_level": 0}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("tasks") / "cluster") as made:
        yield made


def receive(folder: Path, *numbers: int) -> None:
    inbox = folder / "in"
    inbox.mkdir(exist_ok=True)
    for number in numbers:
        ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids}), inbox / f".{number}.parquet")
        (inbox / f".{number}.parquet").rename(inbox / f"{number}.parquet")


def run(work: Work) -> str:
    ran = subprocess.run(work.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


def sent(asking: Consumer, topic: str) -> int:
    """Records of partition 0, also of open transactions. A consumer that has to connect first comes too late."""
    return int(asking.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)[1])


def ids(any_kafka: KafkaAddress, topic: str) -> list[int]:
    return sorted(int(message.value()) for message in messages(any_kafka.servers, topic, PARTITIONS))


def test_keys_go_where_the_driver_sends_them(
    cluster: StandaloneCluster, any_kafka: KafkaAddress, tmp_path: Path
) -> None:
    placed = []
    for load in ("executors", "driver"):
        folder = tmp_path / load
        folder.mkdir()
        receive(folder, 0, 1, 2)
        topic = any_kafka.topic(load, partitions=PARTITIONS)
        said = run(Work(cluster.options, str(folder), any_kafka.servers, topic, load))
        assert ("filled by the tasks of Spark" in said) is (load == "executors")
        placed.append(
            {(message.key(), message.partition()) for message in messages(any_kafka.servers, topic, PARTITIONS)}
        )
        assert ids(any_kafka, topic) == [*range(3 * ROWS)]
    by_tasks, by_driver = placed
    assert by_tasks == by_driver
    assert {partition for _, partition in by_tasks} == {*range(PARTITIONS)}


def test_rows_without_keys_come_into_each_partition(
    cluster: StandaloneCluster, any_kafka: KafkaAddress, tmp_path: Path
) -> None:
    receive(tmp_path, 0, 1, 2)
    topic = any_kafka.topic("keyless", partitions=PARTITIONS)
    assert "filled by the tasks of Spark" in run(Work(cluster.options, str(tmp_path), any_kafka.servers, topic, key=""))
    found = [message.partition() for message in messages(any_kafka.servers, topic, PARTITIONS)]
    assert {*found} == {*range(PARTITIONS)}
    assert ids(any_kafka, topic) == [*range(3 * ROWS)]


def test_rows_whose_key_is_null_come_into_each_partition(
    cluster: StandaloneCluster, any_kafka: KafkaAddress, tmp_path: Path
) -> None:
    receive(tmp_path, 0, 1)
    topic = any_kafka.topic("null", partitions=PARTITIONS)
    run(Work(cluster.options, str(tmp_path), any_kafka.servers, topic, key="IF(id < 100, CAST(id AS STRING), NULL)"))
    found = messages(any_kafka.servers, topic, PARTITIONS)
    assert {message.partition() for message in found if message.key() is None} == {*range(PARTITIONS)}
    assert ids(any_kafka, topic) == [*range(2 * ROWS)]


@pytest.mark.kill
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
def test_an_executor_that_is_killed_while_it_sends_leaves_nothing(
    keyed: bool, cluster: StandaloneCluster, any_kafka: KafkaAddress, tmp_path: Path
) -> None:
    """The query ends, as a transaction takes the rows of a task once. Each start writes the epoch again."""
    topic = any_kafka.topic("killed", partitions=PARTITIONS)
    work = Work(cluster.options, str(tmp_path), any_kafka.servers, topic, key="CAST(id AS STRING)" if keyed else "")
    for number in range(3):
        receive(tmp_path, 2 * number, 2 * number + 1)
        slow = range(2 * number * ROWS + ROWS // 2, 2 * (number + 1) * ROWS, ROWS // 4)
        slowly = replace(work, pad=4000) if keyed else replace(work, slow=tuple(slow))
        with (tmp_path / f"driver-{number}.log").open("w+") as log, ExitStack() as stack:
            asking = Consumer({"bootstrap.servers": any_kafka.servers, "group.id": "t", **READ_ALL})
            stack.callback(asking.close)
            before = sent(asking, topic)
            driver = subprocess.Popen(slowly.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            stack.callback(driver.kill)
            until(lambda asking=asking, before=before: sent(asking, topic) > before, "the first rows")
            log.seek(0)
            application = next(line.split()[1] for line in log if line.startswith("application "))
            assert kill_executor(application)
            assert driver.wait(PATIENCE_S) != 0
            log.seek(0)
            assert "ONCE-E533" in log.read()
        assert ids(any_kafka, topic) == [*range(2 * number * ROWS)]
        assert "filled by the tasks of Spark" in run(work)
        assert ids(any_kafka, topic) == [*range(2 * (number + 1) * ROWS)]
