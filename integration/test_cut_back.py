"""What a query does after a cut back whose source could not be asked: a topic that has lost what lies beyond it."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from integration.printed import command, obey, run
from integration.targets import Backup
from integration.waysout.world import Topic

from onceonly import Storage, exactly_once

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]


def test_records_that_a_topic_lacks_beyond_a_cut_back_are_given_up_as_the_plan_says(spark, any_kafka, pg, tmp_path):
    topic, place = Topic(spark, any_kafka, "cutback"), tmp_path / "ledger.db"

    def start(first: int = 0) -> str:
        rows = topic.read(10, first).selectExpr("id", "cast(id as string) as word")
        writer = rows.writeStream.foreachBatch(exactly_once(pg.sink(), storage=Storage(ledger=place))).queryName(
            "orders"
        )
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception as error:  # whatever class the client makes of it: the text is what users get
            return str(error)
        return ""

    topic.receive(range(20))
    assert not start()
    backup = Backup(pg.dsn)
    topic.receive(range(20, 40))
    assert not start()
    backup.put_back()
    topic.receive(range(40, 50))
    said = start()
    assert "[ONCE-E207]" in said
    admin = AdminClient({"bootstrap.servers": any_kafka.servers, "log_level": 0})
    for done in admin.delete_records([TopicPartition(topic.name, 0, 25)]).values():
        done.result(30)
    planned = " ".join(run(command(said, "recover rewind"), code=4).split())
    assert f"whether topic {topic.name} still holds the input after epoch 2" in planned
    assert "Spark's own error: begin it with a new checkpoint at the remaining input" in planned
    run(command(said, "recover rewind"), "--yes")
    lost = start()
    assert "KafkaIllegalStateException" in lost
    assert "[ONCE-" not in lost
    shutil.rmtree(tmp_path / "ck")
    said = start(25)
    assert "[ONCE-E204]" in said
    obey(said, "--accept-loss")
    assert not start(25)
    assert pg.ids() == [*range(20), *range(25, 50)]
    assert run(["onceonly", "audit", "--query", "orders", "--ledger", str(place)]).startswith("EXACTLY ONCE")
