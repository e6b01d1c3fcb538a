"""A topic that was created again beside a sink that stands: filled again only where its markers are gone, too."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from tests.cli.test_rewind_command import Job
from tests.cli.test_ways_out import obeys, printed
from tests.kafka_client import committed
from tests.sinks.test_kafka_outcomes import anew
from typer.testing import CliRunner, Result

from onceonly.cli.app import app
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink, KafkaTuning

_numbers = itertools.count(1)


def rows(number: int) -> pa.Table:
    return pa.table({"value": [f"row {number}", f"again {number}"]})


class TopicJob(Job):
    """A query into memory and, after it, a topic; nine staged epochs stay."""

    def __init__(self, root: Path, servers: str, topic: str) -> None:
        super().__init__(root, ("a",), keep=9)
        self.servers, self.topic, self.marker_topic = servers, topic, f"{topic}-markers"
        memory = self.pipeline.sinks
        self.pipeline.sinks = lambda: [
            *memory(),
            KafkaSink(servers, topic, tuning=KafkaTuning(marker_topic=self.marker_topic)),
        ]  # type: ignore[method-assign, list-item]

    def written(self, *numbers: int) -> None:
        self.writes(*numbers, table=rows)


@pytest.fixture
def job(tmp_path: Path, kafka: EmbeddedKafka) -> TopicJob:
    return TopicJob(tmp_path, kafka.servers, kafka.topic(f"anew-{next(_numbers)}"))


def run(*words: str, **env: Any) -> Result:
    return CliRunner().invoke(app, list(words), env=env)


def delete(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)


def test_a_topic_is_filled_from_the_first_epoch_on_where_its_markers_are_gone_too(
    job: TopicJob, kafka: EmbeddedKafka
) -> None:
    job.written(1, 2, 3)
    delete(job.servers, job.marker_topic)
    anew(kafka, job.topic)
    plan = obeys(run, job.said("E208", 4), "recover rewind orders")
    assert "gets epochs 1..3, 6 rows: 3 from stage" in plan
    job.written(4)
    wanted = [value for number in (1, 2, 3, 4) for value in rows(number)["value"].to_pylist()]
    assert committed(job.servers, job.topic) == wanted
    assert job.audited(run).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_a_topic_whose_markers_stand_is_given_up_by_number_and_not_filled(job: TopicJob, kafka: EmbeddedKafka) -> None:
    job.written(1, 2, 3)
    anew(kafka, job.topic)
    said = job.said("E208", 4)
    assert "recover rewind" not in said
    ledger, sink = str(job.pipeline.root / "ledger.db"), f"kafka:{job.topic}"
    command = ("recover", "rewind", "orders", "--ledger", ledger, "--to", "0", "--sink", sink)
    for typed in (run(*command), run(*command, "--yes")):
        assert typed.exit_code == 2
        assert typed.stdout == ""
        assert f"[ONCE-E110] {sink} was created again" in typed.stderr
        assert "take all of them out" not in typed.stderr
        assert printed(typed.stderr, "recover adopt") == printed(said, "recover adopt")
    obeys(run, typed.stderr, "recover adopt")
    job.written(4)
    assert committed(job.servers, job.topic) == rows(4)["value"].to_pylist()
