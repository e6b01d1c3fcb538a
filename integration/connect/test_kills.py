"""SIGKILL of workers, servers and clients at named points of the callback, drawn by a seed: every row is there once.

A server that is killed leaves its worker in the middle of a write, which ends by its watch, or is stopped by the fence.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from integration.connect.client import Wish, fired, session, start, wish
from integration.connect.streams import PATIENCE_S, gone, patiently, revived, until
from integration.jobs import Job
from integration.processes import REPOSITORY
from integration.servers import KafkaAddress, PostgresAddress
from integration.stage import Scene

from onceonly.errors import SupersededRun, class_of
from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind
from onceonly_lab.driver import Driver
from onceonly_lab.servers.connect import ConnectServer

pytestmark = [pytest.mark.connect, pytest.mark.kill]

PACE = 2
"""Files for each kill: the batch that is struck, which may be a replay, and one behind it."""

POINTS = (
    Point.DISCOVER_AFTER,
    Point.PREPARE_BEFORE,
    Point.PREPARE_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.RECORD_BEFORE,
    Point.RECORD_AFTER,
    Point.RETURN_BEFORE,
)
"""Passed by each batch that is written."""

VICTIMS = ("worker",) * 10 + ("server",) * 6 + ("client",) * 4
"""Of twenty kills."""

TABLES = "two tables"
KINDS = ("postgres", "delta", "kafka", TABLES)


class Tables(Scene):
    """A pipeline into two tables of one Postgres, which commit together."""

    @property
    def _copy(self) -> Scene:
        made = Scene(self.root, "postgres:copy", self.target, self.inbox)
        made.name = self.name
        return made

    def job(self, **changes: Any) -> Job:
        return super().job(also=((self._copy.kind, self.target),), **changes)

    def holds_exactly(self, epochs: int) -> None:
        super().holds_exactly(epochs)
        with psycopg.connect(self.target) as connection:
            copied = connection.execute("SELECT id, word FROM copy ORDER BY id").fetchall()
        assert copied == self.rows()
        assert [marker.epoch.chain for marker in self._copy.markers()] == [
            marker.epoch.chain for marker in self.markers()
        ]
        assert not [*self.root.glob("*.staging")]


@pytest.fixture(params=KINDS)
def scene(
    request: pytest.FixtureRequest, any_postgres: PostgresAddress, any_kafka: KafkaAddress, tmp_path: Path
) -> Scene:
    """A pipeline into each kind of sink in turn."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    match request.param:
        case "two tables":
            return Tables(tmp_path, "postgres", any_postgres.database(f"t{name}"))
        case "postgres":
            return Scene(tmp_path, "postgres", any_postgres.database(f"t{name}"))
        case "kafka":
            made = Scene(tmp_path, "kafka", f"{any_kafka.servers} {any_kafka.topic(name)}")
            made.ledger_place = str(made.checkpoint.with_name(f"{made.checkpoint.name}.onceonly.db"))
            return made
        case kind:
            return Scene(tmp_path, kind, str(tmp_path / "table"))


class Campaign:
    """A client over a server, both to be killed, and what is left of the story.

    Args:
        server: it runs.
        folder: for wishes, and for the client's words.
        jobs: the queries.
    """

    def __init__(self, server: ConnectServer, folder: Path, jobs: list[Job]) -> None:
        self.server, self.folder = server, folder
        folder.mkdir()
        (folder / "jobs.json").write_text(json.dumps([asdict(job) for job in jobs]))
        self._clients: list[Driver] = []
        self.client()

    def client(self) -> None:
        """Start a client, and wait until it is the one to be killed."""
        log = self.folder / f"client-{len(self._clients)}"
        told = (self.server.url, str(self.folder))
        made = Driver.module("integration.connect.client", *told, log=log, env={}, cwd=REPOSITORY)
        self._clients.append(made)
        file = self.folder / "client"
        until(lambda: file.exists() and file.read_text() == str(made.pid), self.last_words)

    def kill(self, query: str, wanted: Wish) -> None:
        """Have a kill struck, and bring back what it ended."""
        wish(self.folder, query, wanted)
        until(lambda: len(fired(self.folder)) == wanted.number, lambda: f"{wanted} of {query}; {self.last_words()}")
        if wanted.victim == "server":
            revived(self.server)
        if wanted.victim == "client":
            assert self._clients[-1].wait(PATIENCE_S) == -9
            self.client()

    def end(self) -> None:
        """Stop client and queries."""
        (self.folder / "stop").touch()
        self._clients[-1].wait(PATIENCE_S)

    def close(self) -> None:
        """Leave no client behind. May repeat."""
        for client in self._clients:
            client.close()

    def codes(self) -> Counter[str | None]:
        """Codes of the refusals that queries ended with; ``None`` for a crash."""
        told = [json.loads(line) for client in self._clients for line in client.out.read_text().splitlines()]
        return Counter(one["code"] for one in told if one["event"] in ("failed", "lost"))

    def last_words(self) -> str:
        """What the newest client said."""
        return self._clients[-1].out.read_text()[-3000:]


@pytest.fixture
def campaigns() -> Iterator[list[Campaign]]:
    """Where a test puts what must not be left running."""
    made: list[Campaign] = []
    yield made
    for one in made:
        one.close()


def drawn(kind: str, kills: int, seed: int) -> list[Wish]:
    """The part of all kills that meets one kind of sink, in order."""
    chosen = random.Random(seed)
    victims = [*VICTIMS] * -(-kills // len(VICTIMS))
    chosen.shuffle(victims)
    made: list[Wish] = []
    for at, victim in enumerate(victims[:kills]):
        linger = chosen.choice([None, chosen.uniform(0.5, 8)]) if victim == "server" else None
        point = str(chosen.choice(POINTS))
        if KINDS[at % len(KINDS)] == kind:
            made.append(Wish(len(made) + 1, victim, point, linger))
    return made


def test_no_kill_loses_or_doubles_a_row(
    mortal: ConnectServer, scene: Scene, tmp_path: Path, campaigns: list[Campaign], request: pytest.FixtureRequest
) -> None:
    seed, kind = request.config.getoption("--kill-seed"), TABLES if isinstance(scene, Tables) else scene.kind
    wishes = drawn(kind, request.config.getoption("--kills"), seed)
    assert wishes, f"--kills: at least {len(KINDS)}, one for each kind of sink"
    scene.inbox.fill(1)
    running = Campaign(mortal, tmp_path / "campaign", [scene.job()])
    campaigns.append(running)
    for wanted in wishes:
        scene.inbox.fill(scene.inbox.files + PACE)
        running.kill(scene.name, wanted)
    until(lambda: done(scene), running.last_words)
    running.end()
    struck = fired(running.folder)
    assert [(one["number"], one["victim"], one["point"]) for one in struck] == [
        (one.number, one.victim, one.point) for one in wishes
    ]
    until(lambda: all(gone(one["pid"]) for one in struck), lambda: "the ends of all workers")
    scene.holds_exactly(scene.inbox.files)
    assert scene.recorded() == list(range(1, scene.inbox.files + 1))
    scene.has_one_owner_per_generation()
    told = running.codes()
    # A client starts again what it has heard the end of. Only what comes right after a client's own end may be heard by
    # nobody: the query was still that of the client before.
    before = ["", *(one.victim for one in wishes)]
    heard = sum("client" not in pair for pair in pairwise(before))
    assert told.total() >= heard, told
    assert all(code is None or issubclass(class_of(code), SupersededRun) for code in told), told
    print(f"seed {seed}, {kind}: {[(one.victim, one.point) for one in wishes]}; ends {dict(told)}")


@pytest.mark.parametrize("kills", [3, 20, 100])
def test_the_kills_that_are_asked_for_are_shared_among_the_sinks(kills: int) -> None:
    parts = [drawn(kind, kills, seed=7) for kind in KINDS]
    kinds = len(KINDS)
    assert [len(part) for part in parts] == [kills // kinds + (at < kills % kinds) for at in range(kinds)]
    assert all([one.number for one in part] == [*range(1, len(part) + 1)] for part in parts)
    if not kills % len(VICTIMS):
        assert Counter(one.victim for part in parts for one in part) == Counter(VICTIMS * (kills // len(VICTIMS)))


def done(scene: Scene) -> bool:
    return scene.inbox.files - 1 in scene.batches("commits")


def test_a_worker_that_outlives_its_server_is_stopped_by_the_fence(
    mortal: ConnectServer, scene: Scene, tmp_path: Path
) -> None:
    folder = tmp_path / "wishes"
    folder.mkdir()
    scene.inbox.fill(1)
    wish(folder, scene.name, Wish(1, "server", str(Point.COMMIT_BEFORE), PATIENCE_S))
    first = session(mortal.url)
    patiently(lambda: start(first, folder, scene.job()))
    until(lambda: bool(fired(folder)), lambda: mortal.log.read_text(errors="replace")[-3000:])
    [zombie] = fired(folder)
    revived(mortal)
    scene.inbox.fill(3)
    spark = session(mortal.url)
    query = patiently(lambda: start(spark, folder, scene.job()))
    until(lambda: done(scene), lambda: f"{query.exception()}")
    assert not gone(zombie["pid"]), "the worker died with its server: it was no zombie"
    (folder / "go").touch()
    until(lambda: gone(zombie["pid"]), lambda: "the zombie's end")
    query.stop()
    spark.stop()
    # Its standard error went to the dead server, so the ledger is where its last words are.
    [refused] = scene.events(EventKind.FAILED)
    assert "E401" in refused.reason
    scene.holds_exactly(3)
