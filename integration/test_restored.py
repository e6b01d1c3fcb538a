"""Timeline T6 with several sinks: one of three is set back, all stop before a row is written, a printed command helps.

In real processes, on real stores: Delta's RESTORE, a database put back from a backup, a standby that lagged and was
promoted, a topic that was deleted and made again.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from integration.printed import command, obey, run
from integration.processes import Drivers, refused_with, until
from integration.several import Several
from integration.stage import ROWS, Scene
from integration.targets import Backup

from onceonly_checkpoints.ledger import EventKind
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_lab.servers.postgresproxy import PostgresProxy

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.kafka, pytest.mark.postgres]


def holds_files(scene: Scene, files: Iterable[int]) -> None:
    """Demand that a sink holds the rows of these input files, each once, and no others."""
    wanted = Counter((number, f"w{number}") for file in files for number in range(file * ROWS, (file + 1) * ROWS))
    found = Counter(scene.rows())
    missing, extra = wanted - found, found - wanted
    assert not missing, f"{scene.kind}: {missing.total()} rows missing, e.g. {next(iter(missing))}"
    assert not extra, f"{scene.kind}: {extra.total()} rows too many, e.g. {next(iter(extra))}"


def stopped(several: Several, processes: Drivers, code: str) -> str:
    """Start the query, which must stop with a code before any sink gets a row; returns what it said."""
    before = [(scene.rows(), scene.markers()) for scene in several.scenes]
    refused = processes.start(several.job())
    assert refused_with(refused, code), refused.last_words()
    assert [(scene.rows(), scene.markers()) for scene in several.scenes] == before
    return refused.err.read_text()


def verdict(several: Several) -> str:
    """What an audit without a query says of the pipeline."""
    said = ["onceonly", "audit", "--query", several.postgres.name, "--ledger", several.postgres.ledger_place]
    return run(said)


# ---- restored one by one


@pytest.fixture
def several(any_postgres, any_kafka, tmp_path: Path, request) -> Several:
    name = f"restored_{abs(hash(request.node.name)):x}"
    return Several(tmp_path, any_postgres.database(name), f"{any_kafka.servers} {any_kafka.topic(name)}")


@pytest.mark.slow
def test_t6_of_three_sinks_a_table_and_then_a_database_are_restored(several: Several, warm_drivers: Drivers) -> None:
    several.inbox.fill(2)
    warm_drivers.finish(several.job())
    backup = Backup(several.postgres.target)
    several.inbox.fill(4)
    warm_drivers.finish(several.job())

    newest = DeltaTable(several.delta.target).version()
    DeltaTable(several.delta.target).restore(newest - 1)
    several.inbox.fill(5)
    said = stopped(several, warm_drivers, "E209")
    found = run(command(said, "onceonly audit"), code=1)
    assert "A126" in found
    assert "delta:table" in found
    DeltaTable(several.delta.target).restore(newest)
    run(command(said, "--accept-change"), "--yes")
    warm_drivers.finish(several.job())
    for scene in several.scenes:
        holds_files(scene, range(5))
    assert "EXACTLY ONCE" in verdict(several)

    backup.put_back()
    several.inbox.fill(6)
    said = stopped(several, warm_drivers, "E207")
    assert "postgres:arrivals is at epoch 2" in said
    obey(said, "recover rewind")
    warm_drivers.finish(several.job())
    for scene in several.scenes:
        holds_files(scene, range(6))
    assert "EXACTLY ONCE" in verdict(several)


@pytest.mark.slow
def test_t6_a_topic_that_was_made_again_stops_all_sinks(several: Several, warm_drivers: Drivers) -> None:
    several.inbox.fill(2)
    warm_drivers.finish(several.job())
    servers, _, topic = several.kafka.target.partition(" ")
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    _make_again(admin, topic)
    several.inbox.fill(3)
    said = stopped(several, warm_drivers, "E208")
    run(command(said, "--accept-loss"), "--yes")
    warm_drivers.finish(several.job())
    holds_files(several.kafka, [2])
    for scene in (several.postgres, several.delta):
        holds_files(scene, range(3))


def _make_again(admin: AdminClient, topic: str) -> None:
    from confluent_kafka.admin import NewTopic

    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    until(lambda: topic in admin.list_topics(timeout=10).topics, "the topic is there again")


# ---- a standby takes over


class Pair:
    """A primary with a standby behind one address, as a failover of a managed database looks from outside.

    Args:
        folder: for their data.
    """

    def __init__(self, folder: Path) -> None:
        self._primary = EmbeddedPostgres(folder / "primary")
        self._primary.start()
        self._name = urlsplit(self._primary.database("orders")).path
        self._standby = self._primary.standby(folder / "standby")
        self._standby.start()
        self._wire = PostgresProxy(("127.0.0.1", self._primary.port))
        self._wire.start()

    @property
    def url(self) -> str:
        """The address that outlives the primary."""
        return f"postgresql://postgres@127.0.0.1:{self._wire.port}{self._name}"

    def fall_behind(self) -> None:
        """Let the standby have everything up to now, and nothing of what comes."""
        [end] = self._asked(self._primary, "SELECT pg_current_wal_lsn()::text")
        has_it = f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn"
        until(lambda: self._asked(self._standby, has_it) == (True,), "the standby follows")
        self._standby.stop()

    def fail_over(self) -> None:
        """Lose the primary for good; the standby takes its place as it is."""
        self._primary.kill()
        self._standby.start()
        self._standby.promote()
        until(lambda: self._asked(self._standby, "SELECT pg_is_in_recovery()") == (False,), "it is promoted")
        self._wire.upstream = ("127.0.0.1", self._standby.port)

    def close(self) -> None:
        """Stop all three."""
        self._wire.stop()
        self._standby.stop()
        self._primary.stop()

    @staticmethod
    def _asked(server: EmbeddedPostgres, query: str) -> tuple[object, ...] | None:
        with psycopg.connect(server.dsn) as connection:
            return connection.execute(query.encode()).fetchone()


@pytest.fixture
def pair() -> Iterator[Pair]:
    # Not below pytest's own directory, which the server's user may not enter.
    with tempfile.TemporaryDirectory(prefix="onceonly-", ignore_cleanup_errors=True) as folder:
        made = Pair(Path(folder))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def paired(pair: Pair, any_kafka, tmp_path: Path, request) -> Several:
    topic = any_kafka.topic(f"paired_{abs(hash(request.node.name)):x}")
    return Several(tmp_path, pair.url, f"{any_kafka.servers} {topic}")


@pytest.mark.slow
def test_t6_a_promoted_standby_that_lagged_by_an_epoch_gets_it_from_the_staged_bytes(
    paired: Several, pair: Pair, warm_drivers: Drivers
) -> None:
    """Its ledger went back with it, so nothing says that the epoch was once there: it is an ordinary half-done one."""
    paired.inbox.fill(1)
    warm_drivers.finish(paired.job())
    pair.fall_behind()
    paired.inbox.fill(2)
    warm_drivers.finish(paired.job())
    pair.fail_over()
    assert paired.newest() == [1, 2, 2]
    paired.inbox.fill(3)
    warm_drivers.finish(paired.job())
    paired.hold_everything()
    events = [event.reason for event in paired.postgres.events(EventKind.RESOLVED)]
    assert any("postgres:arrivals brought to epoch 2" in reason for reason in events), events
    assert any("timeline" in reason for reason in events), events


@pytest.mark.slow
def test_t6_a_promoted_standby_that_lagged_by_more_stops_all_sinks_and_gets_what_it_lacks(
    paired: Several, pair: Pair, warm_drivers: Drivers
) -> None:
    paired.inbox.fill(1)
    warm_drivers.finish(paired.job())
    pair.fall_behind()
    paired.inbox.fill(3)
    warm_drivers.finish(paired.job())
    pair.fail_over()
    paired.inbox.fill(4)
    said = stopped(paired, warm_drivers, "E207")
    obey(said, "recover rewind")
    warm_drivers.finish(paired.job())
    for scene in paired.scenes:
        holds_files(scene, range(4))
    assert "EXACTLY ONCE" in verdict(paired)
