"""``format("onceonly")`` on Spark Connect and in declarative pipelines: found without an import, exact across kills."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def client(server: ConnectServer, inbox: Path, delta: DeltaTarget, root: Path, name: str, **more: Any) -> Driver:
    options = {"to": delta.sink().address, "checkpointLocation": str(root / "ck")}
    task = root / f"{name}.json"
    task.write_text(json.dumps({"remote": server.url, "inbox": str(inbox), "options": options, **more}))
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
    first = client(server, inbox.folder, delta, tmp_path, "first")
    until(lambda: first.poll() is not None or bool(stopped_in(server.pid)), "the second epoch is being committed")
    assert first.poll() is None, ended(first)
    kill_session(server.pid)
    first.close()
    assert delta.ids() == [*range(2 * ROWS)]
    assert not (tmp_path / "ck" / "commits" / "1").exists()
    inbox.fill(4)
    server.start()
    assert "done []" in ended(client(server, inbox.folder, delta, tmp_path, "second"))
    assert delta.ids() == [*range(4 * ROWS)]


PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink(name="orders", format="onceonly", options={options!r})


@dp.append_flow(target="orders", name="to_orders")
def to_orders():
    files = spark.readStream.schema("id bigint, word string").option("maxFilesPerTrigger", 1).parquet({inbox!r})
    return files.selectExpr("id", {word!r})
"""


class Project:
    """A declarative pipeline in a folder of its own.

    Args:
        root: the folder.
        inbox: what it reads.
        dsn: of the database that it writes to.
    """

    def __init__(self, root: Path, inbox: Inbox, dsn: str) -> None:
        self.root, self._inbox, self._dsn = root, inbox, dsn
        root.mkdir()
        self.define()
        (root / "spark-pipeline.yml").write_text(
            f"name: shop\nstorage: file://{root}/storage\nlibraries:\n  - glob:\n      include: flow.py\n"
        )
        self._runs = 0

    def define(self, word: str = "word", **options: str) -> None:
        """Have the flow give the words by an expression, and the sink be made with more options."""
        given = {"to": "postgres:#orders", "dsn_env": "ORDERS_DSN", **options}
        flow = PIPELINE.format(options=given, inbox=str(self._inbox.folder), word=word)
        (self.root / "flow.py").write_text(flow)

    def run(self, *arguments: str, **environment: str) -> Driver:
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
        return Driver.command([*command, *arguments], self.root / f"run-{self._runs}", given, self.root)

    def finish(self, *arguments: str) -> None:
        """Run to the end of the input."""
        done = self.run(*arguments)
        assert done.wait(PATIENCE_S) == 0, done.last_words(40)
        done.close()

    def fail(self, *arguments: str) -> str:
        """A run that must fail, and what its user sees."""
        failed = self.run(*arguments)
        code = failed.wait(PATIENCE_S)
        said = failed.out.read_text() + failed.err.read_text()
        failed.close()
        assert code != 0, said[-4000:]
        return said

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
    project.finish()
    assert pg.ids() == [*range(2 * ROWS)]
    inbox.fill(4)
    killed = project.run(ONCEONLY_FAULT=f"{Point.COMMIT_SENT}:stop:1")
    kill_when(killed, lambda: bool(stopped_in(killed.pid)), "an epoch is being committed")
    assert pg.ids() == [*range(3 * ROWS)]
    project.finish()
    assert pg.ids() == [*range(4 * ROWS)]
    [checkpoint] = project.checkpoints
    assert {path.name for path in (checkpoint / "commits").iterdir() if path.name.isdigit()} == {"0", "1", "2", "3"}


FULL = "--full-refresh-all"


@pytest.mark.postgres
def test_a_full_refresh_stops_or_replaces_and_one_that_is_killed_in_its_first_commit_is_exact(
    inbox: Inbox, pg: PostgresTarget, tmp_path: Path
) -> None:
    project = Project(tmp_path / "shop", inbox, pg.dsn)
    inbox.fill(3)
    project.finish()
    project.define(word="upper(word) as word")
    said = project.fail(FULL)
    assert "[ONCE-E246]" in said
    assert f"3 epochs, {3 * ROWS} rows" in said
    assert "onceonly recover refresh to_orders" in said
    assert '.option("on_refresh", "replace") of format("onceonly")' in said
    assert "a new pipeline name on a new table" in said
    assert written(pg) == [(number, f"w{number}") for number in range(3 * ROWS)]

    project.define(word="upper(word) as word", on_refresh="replace")
    killed = project.run(FULL, ONCEONLY_FAULT=f"{Point.COMMIT_SENT}:stop:1")
    kill_when(killed, lambda: bool(stopped_in(killed.pid)), "the first epoch of the refresh is being committed")
    assert written(pg) == [(number, f"W{number}") for number in range(ROWS)], "old rows left with the first new ones"
    newest = project.checkpoints[-1]
    assert not (newest / "commits" / "0").exists()
    inbox.fill(4)
    project.finish()
    assert written(pg) == [(number, f"W{number}") for number in range(4 * ROWS)]
    assert project.checkpoints[-1] == newest, "it went on where it was killed"


def written(pg: PostgresTarget) -> list[tuple[int, str]]:
    return pg.says("select id, word from orders order by id")
