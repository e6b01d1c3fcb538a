"""A topic read on Spark Connect: exact over kills and replays, and what nobody there can see of it is said."""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from integration.connect.client import Wish, fired, session, strike, wish
from integration.connect.streams import patiently, refusal_of, revived, until
from integration.servers import KafkaAddress
from integration.targets import DeltaTarget, PostgresTarget, events
from integration.test_overlap import Topic, eventually
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import onceonly
from onceonly import Recovery, Storage, exactly_once
from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly.spark import detect
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.connect import ConnectServer
from onceonly_sinks.kafka import KafkaSink

LINE = detect.line()

pytestmark = [
    pytest.mark.connect,
    pytest.mark.kafka,
    pytest.mark.skipif(LINE.kafka is None, reason=f"no jars of a Kafka source for Spark {LINE.minor}"),
]


def numbers(df: DataFrame) -> DataFrame:
    return df.select(f.col("value").cast("string").cast("bigint").alias("id"))


def struck(folder: str, df: DataFrame) -> DataFrame:
    return numbers(strike(folder, "orders", df))


class ConnectTopic(Topic):
    """As ``Topic``; the query is started by ``onceonly.start``."""

    def begin(
        self, *sinks: Sink, transform: Any = numbers, source: dict[str, Any] | None = None, **options: Any
    ) -> StreamingQuery:
        """Start the query."""
        asked = {"kafka.bootstrap.servers": self.servers, "subscribe": self.name, "startingOffsets": "earliest"}
        ledger = Storage(ledger=str(self.checkpoint.with_name("ledger.db")))
        place: dict[str, Any] = {"checkpoint": str(self.checkpoint), "storage": ledger}

        def begin() -> StreamingQuery:
            rows = self.spark.readStream.format("kafka").options(**asked | (source or {})).load()
            writer = rows.writeStream.trigger(availableNow=True)
            return onceonly.start(writer, exactly_once(*sinks, name="orders", transform=transform, **place, **options))

        return patiently(begin)

    def write(self, *sinks: Sink, **options: Any) -> None:
        """Run until the topic is read."""
        self.begin(*sinks, **options).awaitTermination()

    def forget_newest_commit(self) -> None:
        """Have the newest batch come again."""
        newest = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        (self.checkpoint / "commits" / str(newest)).unlink()
        (self.checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)

    def make_anew(self) -> None:
        """Delete the topic, and make another one of its name."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        admin.delete_topics([self.name])[self.name].result(30)
        eventually(lambda: admin.create_topics([NewTopic(self.name, 2, 1)])[self.name].result(30))


@pytest.mark.kill
@pytest.mark.postgres
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_topic_is_in_both_sinks_once_whoever_is_killed(
    mortal: ConnectServer,
    any_kafka: KafkaAddress,
    pg: PostgresTarget,
    delta: DeltaTarget,
    ledger: SqlLedger,
    tmp_path: Path,
    victim: str,
) -> None:
    wishes = tmp_path / "wishes"
    wishes.mkdir()
    topic = ConnectTopic(session(mortal.url), any_kafka, tmp_path).send(range(10))
    topic.write(pg.sink(), delta.sink())
    wish(wishes, "orders", Wish(1, victim, str(Point.COMMIT_AFTER)))
    query = topic.send(range(10, 16)).begin(pg.sink(), delta.sink(), transform=partial(struck, str(wishes)))
    until(lambda: bool(fired(wishes)), lambda: mortal.log.read_text(errors="replace")[-3000:])
    if victim == "server":
        revived(mortal)
        topic.spark = session(mortal.url)
    else:
        with pytest.raises(Exception, match="crashed"):
            query.awaitTermination(120)
        assert (pg.ids(), delta.ids()) == ([*range(16)], [*range(10)]), "it was to die between the two sinks"
    topic.send(range(16, 20)).write(pg.sink(), delta.sink())
    assert pg.ids() == delta.ids() == [*range(20)]
    topic.forget_newest_commit()
    topic.send(range(20, 22)).write(pg.sink(), delta.sink())
    assert pg.ids() == delta.ids() == [*range(22)]
    assert events(ledger, EventKind.SKIPPED)
    topic.spark.stop()


@pytest.fixture
def topic(remote: SparkSession, any_kafka: KafkaAddress, tmp_path: Path) -> ConnectTopic:
    return ConnectTopic(remote, any_kafka, tmp_path)


def test_a_source_that_may_lose_offsets_is_refused_before_the_start(topic: ConnectTopic, delta: DeltaTarget) -> None:
    with pytest.raises(ConfigurationError, match="E116"):
        topic.send(range(3)).begin(delta.sink(), source={"failOnDataLoss": "false"})
    assert not topic.checkpoint.exists()


def test_a_callback_says_what_nobody_can_see_of_a_topic(
    topic: ConnectTopic, delta: DeltaTarget, ledger: SqlLedger, tmp_path: Path
) -> None:
    storage = Storage(ledger=str(tmp_path / "ledger.db"))
    wrapped = exactly_once(
        delta.sink(), name="orders", transform=numbers, checkpoint=str(topic.checkpoint), storage=storage
    )
    assert topic.send(range(4)).run(wrapped, failOnDataLoss="false") == ""
    assert delta.ids() == [*range(4)]
    [promised] = events(ledger, EventKind.PROMISED)
    assert "a source continues where input is gone (failOnDataLoss=false" in promised
    assert "a topic is created again under its name" in promised


def test_a_topic_that_was_made_anew_is_taken_for_the_old_one(topic: ConnectTopic, delta: DeltaTarget) -> None:
    topic.send(range(4)).write(delta.sink())
    topic.make_anew()
    topic.send(range(50, 58)).write(delta.sink())
    assert delta.ids() == [*range(4), *range(54, 58)], "its offsets go on where those of the old one ended"


def test_the_order_of_the_source_is_refused_as_its_plan_is_not_shown(
    topic: ConnectTopic, any_kafka: KafkaAddress
) -> None:
    sink = KafkaSink(any_kafka.servers, any_kafka.topic("ordered"), order="source")
    found = refusal_of(topic.send(range(4)).begin(sink, transform=methodcaller("select", "key", "value")))
    assert found.code == "E148"
    assert "this kind of session does not show its plan" in found.what


def test_a_topic_that_nobody_can_identify_cannot_be_trimmed(topic: ConnectTopic, delta: DeltaTarget) -> None:
    found = refusal_of(topic.send(range(4)).begin(delta.sink(), recovery=Recovery(overlap="trim")))
    assert found.code == "E115"
    assert "those of a topic without access to its brokers, as on Spark Connect" in found.what
    assert not Path(delta.path).exists()
