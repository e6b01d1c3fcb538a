"""What each line of Spark must do on Spark Connect: an append that is exact over a kill of the server and a replay.

`make line` runs it on each line, in a process of its own. A line without Spark Connect refuses it by name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.connect.client import Wish, fired, session, start, wish
from integration.connect.streams import patiently, revived, until
from integration.servers import PostgresAddress
from integration.stage import Scene

import onceonly
from onceonly import exactly_once
from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly.spark import detect
from onceonly_checkpoints.ledger import EventKind
from onceonly_lab.servers.connect import ConnectServer
from onceonly_sinks.delta import DeltaSink

pytestmark = pytest.mark.connect

LINE = detect.line()


@pytest.mark.kill
@pytest.mark.postgres
@pytest.mark.skipif(not LINE.spark_connect, reason=f"PySpark {LINE.minor} has no Spark Connect that runs a callback")
def test_an_append_is_exact_over_a_kill_of_the_server_and_a_replay(
    mortal: ConnectServer, any_postgres: PostgresAddress, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, "postgres", any_postgres.database("connect-line"))
    wishes = tmp_path / "wishes"
    wishes.mkdir()
    wish(wishes, scene.name, Wish(1, "server", str(Point.COMMIT_AFTER)))
    scene.inbox.fill(1)
    first = session(mortal.url)
    patiently(lambda: start(first, wishes, scene.job()))
    until(lambda: bool(fired(wishes)), lambda: mortal.log.read_text(errors="replace")[-3000:])
    revived(mortal)
    assert (scene.batches("offsets"), scene.batches("commits")) == ([0], []), "the batch was to come again"
    scene.holds_exactly(1)
    scene.inbox.fill(3)
    second = session(mortal.url)
    query = patiently(lambda: start(second, wishes, scene.job()))
    until(lambda: 2 in scene.batches("commits"), lambda: f"{query.exception()}")
    query.stop()
    second.stop()
    scene.holds_exactly(3)
    assert scene.recorded() == [1, 2, 3]
    assert len(scene.events(EventKind.SKIPPED)) == 1


@pytest.mark.skipif(LINE.spark_connect, reason=f"Spark Connect of PySpark {LINE.minor} is not refused")
def test_a_spark_connect_that_is_too_old_is_refused_before_the_start() -> None:
    from pyspark.sql.connect.session import SparkSession

    # Nobody is asked before the start, so no server is needed; this PySpark brings none.
    rows = SparkSession("sc://127.0.0.1:1").readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match="E113") as caught:
        onceonly.start(rows.writeStream, exactly_once(DeltaSink("nowhere"), name="orders", checkpoint="nowhere"))
    assert f"Spark Connect needs PySpark 4.0 or newer; this is {LINE.minor}" in caught.value.what
