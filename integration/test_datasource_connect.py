"""``format("onceonly")`` on Spark Connect and in declarative pipelines: found without an import, exact across kills."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.processes import PATIENCE_S, REPOSITORY, kill_session, stopped_in, until
from integration.stage import ROWS, Inbox
from integration.targets import DeltaTarget, PostgresTarget
from integration.test_datasource_kills import kill_when

from onceonly.faults import Point
from onceonly_lab.driver import Driver
from onceonly_lab.servers.connect import HOME, ConnectServer

pytestmark = [pytest.mark.source, pytest.mark.kill]

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConnectServer]:
    """One that a test starts."""
    made = ConnectServer(tmp_path, REPOSITORY)
    yield made
    made.kill()


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "in")


@pytest.fixture
def delta(tmp_path: Path) -> DeltaTarget:
    return DeltaTarget(str(tmp_path / "orders"))


def client(server: ConnectServer, inbox: Inbox, delta: DeltaTarget, root: Path, name: str) -> Driver:
    options = {"to": delta.sink().address, "checkpointLocation": str(root / "ck")}
    task = root / f"{name}.json"
    task.write_text(json.dumps({"remote": server.url, "inbox": str(inbox.folder), "options": options}))
    # Without the variables of a session that this process may have: a client of Connect has no JVM.
    return Driver.command([sys.executable, "-m", "integration.connect_client", task], root / name)


def ended(driver: Driver) -> str:
    driver.wait(PATIENCE_S)
    said = driver.out.read_text() + driver.last_words()
    driver.close()
    return said


def test_on_connect_a_client_imports_nothing_and_a_server_killed_in_its_commit_loses_nothing(
    server: ConnectServer, inbox: Inbox, delta: DeltaTarget, tmp_path: Path
) -> None:
    inbox.fill(3)
    server.start(ONCEONLY_FAULT=f"{Point.COMMIT_SENT}:stop:2")
    first = client(server, inbox, delta, tmp_path, "first")
    until(lambda: first.poll() is not None or bool(stopped_in(server.pid)), "the second epoch is being committed")
    assert first.poll() is None, ended(first)
    kill_session(server.pid)
    first.close()
    assert delta.ids() == [*range(2 * ROWS)]
    assert not (tmp_path / "ck" / "commits" / "1").exists()
    inbox.fill(4)
    server.start()
    assert "done []" in ended(client(server, inbox, delta, tmp_path, "second"))
    assert delta.ids() == [*range(4 * ROWS)]


PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink(name="orders", format="onceonly", options={{"to": {to!r}, "dsn_env": "ORDERS_DSN"}})


@dp.append_flow(target="orders", name="to_orders")
def to_orders():
    return spark.readStream.schema("id bigint, word string").option("maxFilesPerTrigger", 1).parquet({inbox!r})
"""


class Project:
    """A declarative pipeline in a folder of its own.

    Args:
        root: the folder.
        inbox: what it reads.
        dsn: of the database that it writes to.
    """

    def __init__(self, root: Path, inbox: Inbox, dsn: str) -> None:
        self.root, self._dsn = root, dsn
        root.mkdir()
        (root / "flow.py").write_text(PIPELINE.format(to="postgres:#orders", inbox=str(inbox.folder)))
        (root / "spark-pipeline.yml").write_text(
            f"name: shop\nstorage: file://{root}/storage\nlibraries:\n  - glob:\n      include: flow.py\n"
        )
        self._runs = 0

    def run(self, **environment: str) -> Driver:
        """Start ``spark-pipelines run``."""
        self._runs += 1
        given = {
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "ORDERS_DSN": self._dsn,
            **environment,
        }
        command = [str(HOME / "bin" / "spark-pipelines"), "run", "--spec", str(self.root / "spark-pipeline.yml")]
        return Driver.command(command, self.root / f"run-{self._runs}", given, self.root)

    @property
    def checkpoints(self) -> list[Path]:
        """Roots of the flow's checkpoints."""
        return sorted(path.parent for path in (self.root / "storage").rglob("metadata") if path.is_file())


@pytest.mark.postgres
def test_a_pipeline_that_runs_again_goes_on_and_one_that_is_killed_loses_nothing(
    inbox: Inbox, pg: PostgresTarget, tmp_path: Path
) -> None:
    project = Project(tmp_path / "shop", inbox, pg.dsn)
    inbox.fill(2)
    first = project.run()
    assert first.wait(PATIENCE_S) == 0, first.last_words(40)
    first.close()
    assert pg.ids() == [*range(2 * ROWS)]
    inbox.fill(4)
    killed = project.run(ONCEONLY_FAULT=f"{Point.COMMIT_SENT}:stop:1")
    kill_when(killed, lambda: bool(stopped_in(killed.pid)), "an epoch is being committed")
    assert pg.ids() == [*range(3 * ROWS)]
    last = project.run()
    assert last.wait(PATIENCE_S) == 0, last.last_words(40)
    last.close()
    assert pg.ids() == [*range(4 * ROWS)]
    [checkpoint] = project.checkpoints
    assert {path.name for path in (checkpoint / "commits").iterdir() if path.name.isdigit()} == {"0", "1", "2", "3"}
