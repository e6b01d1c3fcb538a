"""What integration tests share: one JVM, one Postgres and one Kafka per session, and where the latter two come from."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from integration.containers import kafka_container, no_engine, postgres_container
from integration.processes import Drivers, Rivals, fork_server, make_archive
from integration.recorded import BATCHES, Inbox, Recorded
from integration.servers import (
    VARIABLES,
    Choice,
    KafkaAddress,
    Origin,
    PostgresAddress,
    choose,
    kafka_at,
    postgres_at,
)
from integration.streams import FileStream, all_settings
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import SparkSession

from onceonly import faults
from onceonly.spark.detect import line as spark_line
from onceonly.spark.jars import delta_jars, fast_options, fast_session
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.forkserver import ForkServer
from onceonly_lab.servers.kafka import EmbeddedKafka, temporary_kafka
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_lab.servers.spark import WarmJvm
from onceonly_lab.session.launch import JvmArchive
from onceonly_sinks.memory import MemorySink

if TYPE_CHECKING:
    from tests.secure_kafka import SecureKafka

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["PYSPARK_PYTHON"] = sys.executable


@cache
def chosen(kind: str) -> Choice:
    """Where a server comes from, decided once per run."""
    return choose(VARIABLES[kind], os.environ, no_engine)


def pytest_report_header() -> list[str]:
    """What was decided: a failure may belong to the server."""
    servers = [f"{kind} for tests that need an address only: {chosen(kind)}" for kind in VARIABLES]
    line = spark_line()
    absent = [name for name, version in (("Delta", line.delta), ("Kafka", line.kafka)) if version is None]
    without = f"; no jars of {' and '.join(absent)} are known for it: what needs them is refused" if absent else ""
    return [f"Spark {line.minor}{without}", *servers]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    """No fault stays armed behind a test."""
    yield
    faults.disarm()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that all Spark tests share, with Delta and Spark's Kafka source where this Spark has jars of them."""
    builder = SparkSession.builder.master("local[2]").appName("integration")
    line = spark_line()
    session = fast_session(builder, delta=line.delta is not None, kafka=line.kafka is not None)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Callable[[], int]:
    """How many classes Spark has compiled for plans so far: a plan that it has seen needs none."""
    metrics: Any = spark.sparkContext._jvm.org.apache.spark.metrics.source.CodegenMetrics
    return metrics.METRIC_COMPILATION_TIME().getCount


@pytest.fixture(autouse=True)
def _the_session_stays_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """A setting that a test leaves behind in the shared session would slow down or bend every later one."""
    if "spark" not in request.fixturenames:
        yield
        return
    session: SparkSession = request.getfixturevalue("spark")
    before = _sql_settings(session)
    yield
    # More of them there may be: Delta adds some by itself.
    assert before.items() <= _sql_settings(session).items()


def _sql_settings(session: SparkSession) -> dict[str, str]:
    return {name: value for name, value in all_settings(session).items() if name.startswith("spark.sql.")}


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The server for tests that stop it, look at its port or at its files; the same for all, each in its database."""
    # Not below pytest's own directory: the server runs as another user, and every session closes that one to others.
    with tempfile.TemporaryDirectory(prefix="onceonly-") as place, EmbeddedPostgres(Path(place) / "data") as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """The broker for tests that stop, pause or restart it; the same for all, each with its topics."""
    with temporary_kafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A broker of its own, with a listener that wants TLS and a login that may do what the page on rights grants."""
    # Here, as other versions of Spark are tried without the client of Kafka.
    from tests.secure_kafka import give, of_the_page, secure_kafka

    with secure_kafka(tmp_path_factory.mktemp("secure")) as broker:
        give(broker.broker.servers, of_the_page())
        yield broker


@pytest.fixture(scope="session")
def any_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresAddress]:
    """The server for tests that need an address only: the environment's, else a container's, else ``postgres``."""
    choice = chosen("Postgres")
    if choice.origin is Origin.CONTAINER:
        server = postgres_container()
    elif choice.origin is Origin.ENVIRONMENT:
        server = postgres_at(choice.address, outlives_us=True)
    else:
        server = postgres_at(request.getfixturevalue("postgres").dsn)
    with server as address:
        yield address


@pytest.fixture(scope="session")
def any_kafka(request: pytest.FixtureRequest) -> Iterator[KafkaAddress]:
    """The broker for tests that need an address only: the environment's, else a container's, else ``kafka``."""
    choice = chosen("Kafka")
    if choice.origin is Origin.CONTAINER:
        server = kafka_container()
    elif choice.origin is Origin.ENVIRONMENT:
        server = kafka_at(choice.address, outlives_us=True)
    else:
        server = kafka_at(request.getfixturevalue("kafka").servers)
    with server as address:
        yield address


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Drivers to stop, race and kill, each a process group with a JVM of its own."""
    folder = tmp_path_factory.mktemp("drivers")
    archive = JvmArchive("integration", delta_jars())
    if not archive.made:
        make_archive(archive, folder)
    made = Drivers(folder, archive.environment())
    yield made
    made.close()


@pytest.fixture(scope="session")
def warm_jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], list[WarmJvm]]]:
    """Starts JVMs that outlive their drivers, as many as are asked for."""
    folder = tmp_path_factory.mktemp("warm-jvms")
    options = {"spark.master": "local[2]", "spark.app.name": "warm"}
    options |= fast_options(kafka=spark_line().kafka is not None)
    with ExitStack() as running:
        made: list[WarmJvm] = []

        def at_least(number: int) -> list[WarmJvm]:
            while len(made) < number:
                made.append(running.enter_context(WarmJvm(options, folder / f"jvm-{len(made)}.log")))
            return made[:number]

        yield at_least


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Forks drivers that have loaded what they need."""
    with fork_server(tmp_path_factory.mktemp("fork server")) as made:
        yield made


@pytest.fixture(scope="session")
def warm_drivers(
    warm_jvms: Callable[[int], list[WarmJvm]], loaded: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Drivers]:
    """Drivers to kill, one after another, whose JVM lives on: seconds for each."""
    [jvm] = warm_jvms(1)
    made = Drivers(tmp_path_factory.mktemp("warm-drivers"), jvm.environment(), loaded)
    yield made
    made.close()


@pytest.fixture(scope="session")
def warm_rivals(
    warm_jvms: Callable[[int], list[WarmJvm]], loaded: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Drivers]:
    """Drivers that live side by side, each in a JVM that was there before it."""
    made = Rivals(tmp_path_factory.mktemp("rivals"), warm_jvms(2), loaded)
    yield made
    made.close()


@pytest.fixture(params=["warm_rivals", pytest.param("processes", marks=pytest.mark.slow)], ids=["warm", "cold"])
def rivals(request: pytest.FixtureRequest) -> Drivers:
    """Drivers to stop and race: in warm JVMs, and, among the slow tests, each with a JVM of its own."""
    made: Drivers = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> FileStream:
    """A file source and the query over it."""
    return FileStream(spark, tmp_path)


@pytest.fixture
def sink() -> MemorySink:
    """The reference sink, empty."""
    return MemorySink(id="memory:orders")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    """A ledger in a file of this test's own."""
    made = SqlLedger(str(tmp_path / "ledger.db"))
    yield made
    made.close()


@pytest.fixture
def pg(any_postgres: PostgresAddress, request: pytest.FixtureRequest) -> PostgresTarget:
    """A table in a database of this test's own."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    return PostgresTarget(any_postgres.database(f"t{name}"))


@pytest.fixture
def delta(tmp_path: Path) -> DeltaTarget:
    """A table in this test's own directory."""
    return DeltaTarget(str(tmp_path / "table"))


@pytest.fixture(params=["postgres", pytest.param("delta", marks=pytest.mark.slow)])
def either(request: pytest.FixtureRequest) -> Any:
    """A destination, where which one matters little: Postgres; Delta among the slow tests."""
    return request.getfixturevalue("pg" if request.param == "postgres" else "delta")


@pytest.fixture(params=["postgres", "delta"])
def target(request: pytest.FixtureRequest) -> Any:
    """Each of the two destinations in turn."""
    return request.getfixturevalue("pg" if request.param == "postgres" else "delta")


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """Files of six batches."""
    made = Inbox(tmp_path)
    made.put(BATCHES)
    return made


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path, inbox: Inbox) -> Recorded:
    """Six epochs of a file source."""
    return Recorded(spark, tmp_path, inbox.source).run()
