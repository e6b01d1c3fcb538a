"""A topic as the source of ``format("onceonly")``: exact across kills and replays; its brokers are asked by nobody."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from integration.datasource_job import records
from integration.printed import obey
from integration.processes import PATIENCE_S, stopped_in
from integration.servers import KafkaAddress
from integration.targets import PostgresTarget, events
from integration.test_datasource_kills import kill_when
from integration.test_overlap import Topic, by_offset, eventually
from pyspark.sql import SparkSession

from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import SourceKind
from onceonly_lab.driver import Driver

pytestmark = [pytest.mark.source, pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

EACH = 10
"""Records of an epoch."""


class Through:
    """A topic and a query over it that writes through the data source.

    Args:
        topic: what is read; its checkpoint is the query's.
        pg: where to.
    """

    def __init__(self, topic: Topic, pg: PostgresTarget) -> None:
        self.topic, self.pg = topic, pg
        self.reading = {
            "kafka.bootstrap.servers": topic.servers,
            "subscribe": topic.name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(EACH),
        }
        self.sink = {"to": pg.sink().address, "checkpointLocation": str(topic.checkpoint)}

    def run(self, *, places: bool = True, **reading: str) -> str:
        """Run to the end of the topic on the shared session; returns what the query died of, or nothing."""
        rows = records(self.topic.spark, {**self.reading, **reading})
        writer = (rows if places else rows.select("id")).writeStream.format("onceonly").queryName("orders")
        query = writer.options(**self.sink).trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
        except Exception as error:  # whatever class the client makes of it: the text is what users get
            return str(error)
        return ""

    def driver(self, log: Path, fault: str = "") -> Driver:
        """A program that does the same, to be killed."""
        task = log.with_suffix(".json")
        task.write_text(json.dumps({"topic": self.reading, "options": self.sink}))
        return Driver.module("integration.datasource_job", task, log=log, env={"ONCEONLY_FAULT": fault})

    def held(self) -> list[tuple[int, int, int]]:
        """Each row: the number, its partition and its offset."""
        return self.pg.says('select id, partition, "offset" from orders order by id, partition, "offset"')

    def noted(self, log: str) -> list[int]:
        """Batches in a log of the checkpoint."""
        return sorted(int(path.name) for path in (self.topic.checkpoint / log).iterdir() if path.name.isdigit())

    def ledger(self) -> closing[SqlLedger]:
        opened = SqlLedger(self.pg.dsn)
        opened.open()
        return closing(opened)


@pytest.fixture
def through(spark: SparkSession, any_kafka: KafkaAddress, pg: PostgresTarget, tmp_path: Path) -> Through:
    return Through(Topic(spark, any_kafka, tmp_path), pg)


def sent(count: int) -> list[tuple[int, int, int]]:
    """What a topic holds into which the numbers below ``count`` were sent."""
    return [(number, number % 2, number // 2) for number in range(count)]


def killed_in(session: int) -> bool:
    """Whether a process of a session is stopped; it is SIGKILLed: one that is continued could still commit."""
    workers = stopped_in(session)
    for worker in workers:
        worker.kill()
    return bool(workers)


@pytest.mark.kill
def test_each_record_is_written_once_over_kills_before_and_after_the_rows_are_visible(
    through: Through, tmp_path: Path
) -> None:
    through.topic.send(range(3 * EACH))
    # The second epoch of a life, then the first one: what that life begins with is a replay, which prepares nothing.
    for life, (point, hit, visible) in enumerate([(Point.COMMIT_SENT, 2, 2), (Point.PREPARE_SENT, 1, 2)]):
        driver = through.driver(tmp_path / f"life-{life}", f"{point}:stop:{hit}")
        kill_when(driver, lambda: killed_in(driver.pid), f"{point} is passed {hit} times")  # noqa: B023
        assert through.held() == sent(visible * EACH)
        assert through.noted("offsets")[-1] == 1 + life
        assert through.noted("commits")[-1] == life
    through.topic.send(range(3 * EACH, 4 * EACH))
    last = through.driver(tmp_path / "last")
    assert last.wait(PATIENCE_S) == 0, last.last_words()
    last.close()
    assert through.held() == sent(4 * EACH)
    with through.ledger() as ledger:
        assert [record.epoch.digest.rows for record in ledger.epochs("orders")] == [EACH] * 4
        assert len(events(ledger, EventKind.SKIPPED)) == 1


def test_a_query_changes_its_way_in_and_back_with_its_checkpoint_and_a_replay_is_skipped(through: Through) -> None:
    topic, wrapped = through.topic, by_offset(through.pg.sink())
    assert topic.send(range(EACH)).run(wrapped) == ""
    topic.send(range(EACH, 2 * EACH))
    assert through.run(places=False) == ""
    (topic.checkpoint / "commits" / "1").unlink()
    (topic.checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    topic.send(range(2 * EACH, 3 * EACH))
    assert through.run(places=False) == ""
    assert topic.send(range(3 * EACH, 4 * EACH)).run(by_offset(through.pg.sink())) == ""
    assert through.pg.ids() == [*range(4 * EACH)]
    with through.ledger() as ledger:
        [known] = {source.identity for record in ledger.epochs("orders") for source in record.epoch.sources}
        assert known is not None, "what was known before goes on"
        assert len(events(ledger, EventKind.SKIPPED)) == 1


def test_spark_stops_where_a_topic_that_was_made_anew_is_shorter_than_the_old_one(through: Through) -> None:
    through.topic.send(range(EACH))
    assert through.run() == ""
    made_anew(through.topic).send(range(100, 104))
    stopped = through.run()
    assert "failOnDataLoss" in stopped
    assert "ONCE-" not in stopped
    assert through.held() == sent(EACH)


def test_a_topic_that_was_made_anew_and_is_longer_is_not_told_from_the_old_one(through: Through) -> None:
    through.topic.send(range(EACH))
    assert through.run() == ""
    made_anew(through.topic).send(range(100, 120))
    assert through.run() == ""
    later = [(100 + number, partition, offset) for number, partition, offset in sent(20)[EACH:]]
    assert through.held() == [*sent(EACH), *later], "the new topic's first ten are in no epoch"
    with through.ledger() as ledger:
        epochs = [record.epoch for record in ledger.epochs("orders")]
        assert {source.kind for epoch in epochs for source in epoch.sources} == {SourceKind.UNNAMED}
        assert "unless   a topic is deleted and created again" in events(ledger, EventKind.PROMISED)[0]


def made_anew(topic: Topic) -> Topic:
    admin = AdminClient({"bootstrap.servers": topic.servers, "log_level": 0})
    admin.delete_topics([topic.name])[topic.name].result(30)
    eventually(lambda: admin.create_topics([NewTopic(topic.name, 2, 1)])[topic.name].result(30))
    return topic


def test_a_new_checkpoint_is_refused_even_where_it_begins_at_the_last_end(through: Through) -> None:
    topic = through.topic.send(range(EACH))
    assert through.run() == ""
    topic.lose_checkpoint()
    topic.send(range(EACH, 2 * EACH))
    ends = json.dumps({topic.name: {"0": EACH // 2, "1": EACH // 2}})
    said = through.run(startingOffsets=ends)
    assert "[ONCE-E211]" in said
    obey(said, "--continue")
    assert through.run(startingOffsets=ends) == ""
    assert through.held() == sent(2 * EACH)
