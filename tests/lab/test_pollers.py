"""Real sinks are read as their readers read them; a sink that cannot be reached is never taken for an empty one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable, write_deltalake
from tests.kafka_client import producer

from onceonly_lab.history import Entry, Header, Kind, Mark, Promise, Row, load
from onceonly_lab.history.recorder import Poller, Recorder, Seen, SinkUnreachable
from onceonly_lab.reading import Columns, DeltaReader, KafkaReader, PostgresReader, fingerprint
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.postgres import EmbeddedPostgres

COLUMNS = Columns("id", key="k", epoch="_epoch", values=("amount",))
MARKER = {"sink": "s", "epoch": {"number": 1, "digest": {"rows": 2, "high": 5, "low": 7}}}
MARK = Mark(1, 3, 2, "2:5:7")
SEEN = (Row("1", 1, "a", fingerprint([10])), Row("2", 1, None, fingerprint([None])))


class Silent:
    """A look that is answered only now and then."""

    def __init__(self) -> None:
        self.looks = 0
        self.enough = threading.Event()

    def __call__(self) -> Seen:
        self.looks += 1
        if self.looks > 3:
            self.enough.set()
        if self.looks % 2:
            raise SinkUnreachable("s", "no route")
        return Seen((Row("a"),), leaks=("open transaction",))


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "history.jsonl", Header((Promise("s"),))) as made:
        yield made


def entries(tmp_path: Path) -> list[Entry]:
    return list(load(tmp_path / "history.jsonl").entries)


# The actor


def test_a_read_without_an_answer_is_a_failure_and_no_empty_read(recorder: Recorder, tmp_path: Path) -> None:
    look = Silent()
    with Poller(recorder, "s", look, every=0.0):
        assert look.enough.wait(30)
    found = entries(tmp_path)
    assert [entry.kind for entry in found[:4]] == [Kind.INVOKE, Kind.FAIL, Kind.INVOKE, Kind.READ]
    assert found[1].note == "no route"
    assert found[3].rows == (Row("a"),)
    assert all(entry.rows for entry in found if entry.kind is Kind.READ)


def test_the_last_read_is_final_and_shows_what_leaked(recorder: Recorder, tmp_path: Path) -> None:
    look = Silent()
    poller = Poller(recorder, "s", look)
    with pytest.raises(SinkUnreachable, match="s: no route"):
        poller.read(final=True)
    poller.read(final=True)
    with pytest.raises(SinkUnreachable):
        poller.read()
    poller.read()
    reads = [entry for entry in entries(tmp_path) if entry.kind is Kind.READ]
    assert [(entry.final, entry.leaks) for entry in reads] == [(True, ("open transaction",)), (False, ())]


def test_a_reader_that_fails_does_not_stop_unseen(recorder: Recorder) -> None:
    def look() -> Seen:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Poller(recorder, "s", look) as poller:
        poller._thread.join(30)


# Postgres


@pytest.fixture
def dsn(server: EmbeddedPostgres) -> str:
    return server.database("pollers")


@pytest.mark.postgres
def test_postgres_shows_rows_and_markers_of_one_moment(dsn: str) -> None:
    look = PostgresReader("postgres:t", dsn, "t", COLUMNS)
    assert look() == Seen((), ())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id bigint, k text, amount int, _epoch bigint)")
        connection.execute("CREATE SCHEMA onceonly")
        connection.execute(
            "CREATE TABLE onceonly.epoch (sink text, epoch bigint, generation bigint, rows bigint, marker text)"
        )
    with psycopg.connect(dsn, application_name="writer") as writer:
        writer.execute("INSERT INTO t VALUES (1, 'a', 10, 1), (2, NULL, NULL, 1)")
        writer.execute("INSERT INTO onceonly.epoch VALUES ('postgres:t', 1, 3, 2, %s)", (json.dumps(MARKER),))
        writer.execute("INSERT INTO onceonly.epoch VALUES ('other', 1, 3, 2, %s)", (json.dumps(MARKER),))
        assert look() == Seen((), (), ("open transaction of writer",))
        writer.commit()
        assert look() == Seen(SEEN, (MARK,))


@pytest.mark.postgres
def test_postgres_that_is_gone_is_unreachable(server: EmbeddedPostgres, dsn: str) -> None:
    look = PostgresReader("postgres:t", dsn, "t", COLUMNS)
    server.kill()
    try:
        with pytest.raises(SinkUnreachable, match="postgres:t: "):
            look()
    finally:
        server.start()
    assert look().rows is not None


@pytest.mark.postgres
def test_postgres_without_a_column_is_unreachable(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE other (id bigint)")
    with pytest.raises(SinkUnreachable, match="does not exist"):
        PostgresReader("s", dsn, "other", COLUMNS)()


# Delta


def note(*, at: int | None) -> dict[str, str]:
    marker = {**MARKER, "sink": "delta:t", "fence": {"generation": 3}}
    return {"userMetadata": json.dumps({"onceonly": 1, "marker": marker, "at": at, "rows": 2})}


def test_delta_shows_a_version_and_the_markers_up_to_it(tmp_path: Path) -> None:
    from deltalake import CommitProperties

    uri = str(tmp_path / "t")
    look = DeltaReader("delta:t", uri, COLUMNS)
    assert look() == Seen((), ())
    rows = pa.table({"id": [1, 2], "k": ["a", None], "amount": pa.array([10, None], pa.int64()), "_epoch": [1, 1]})
    write_deltalake(uri, rows, commit_properties=CommitProperties(custom_metadata=note(at=None)))
    write_deltalake(uri, rows[:0], mode="append", commit_properties=CommitProperties(custom_metadata=note(at=0)))
    write_deltalake(uri, rows[:0], mode="append")
    assert look() == Seen(SEEN, (MARK,))
    assert DeltaReader("delta:other", uri, COLUMNS)().markers == ()


def test_a_delta_table_whose_place_is_gone_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(SinkUnreachable, match="there is no directory"):
        DeltaReader("delta:t", str(tmp_path / "unmounted" / "t"), COLUMNS)()


def test_a_delta_table_without_its_files_is_unreachable(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    write_deltalake(uri, pa.table({"id": [1]}))
    for file in DeltaTable(uri).file_uris():
        Path(file).unlink()
    with pytest.raises(SinkUnreachable):
        DeltaReader("delta:t", uri, Columns("id"))()


# Kafka


def value(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.slow
@pytest.mark.kafka
def test_kafka_shows_what_is_committed_and_names_what_is_open(kafka: EmbeddedKafka) -> None:
    look = KafkaReader("kafka:polled", kafka.servers, "polled", COLUMNS)
    assert look() == Seen(())
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.create_topics([NewTopic("polled", 2, 1)])["polled"].result(30)
    writer = producer(kafka.servers, "polled-writer")
    writer.begin_transaction()
    writer.produce("polled", value(id=1, k="a", amount=10, _epoch=1), partition=0)
    writer.produce("polled", value(id=2, k=None, amount=None, _epoch=1), partition=1)
    writer.flush(30)
    assert look() == Seen((), None, ("open transaction in polled/0 from offset 0 on", *_open(1)))
    writer.commit_transaction(30)
    assert eventually(look).rows == SEEN
    writer.begin_transaction()
    writer.produce("polled", value(id=3, k="a", amount=1, _epoch=2), partition=0)
    writer.flush(30)
    writer.abort_transaction(30)
    assert eventually(look) == Seen(SEEN)


def _open(partition: int) -> list[str]:
    return [f"open transaction in polled/{partition} from offset 0 on"]


def eventually(look: KafkaReader) -> Seen:
    """What it shows once no transaction is in flight."""
    for _ in range(100):
        seen = look()
        if not seen.leaks:
            return seen
    raise AssertionError(f"still open: {seen.leaks}")


@pytest.mark.kafka
def test_kafka_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(SinkUnreachable, match="kafka:polled: "):
        KafkaReader("kafka:polled", "127.0.0.1:1", "polled", COLUMNS, patience=1)()
