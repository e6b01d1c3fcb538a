"""What the sink stands on: the table, the server and our own rows, and what it says when somebody changed them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.sinks.postgres_writer import Writer, orders, rows, run

from onceonly.errors import ConfigurationError, DestinationError, IdentityError, OnceOnlyError
from onceonly.protocol import Sink
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = pytest.mark.postgres


def test_it_is_a_sink() -> None:
    assert isinstance(PostgresSink("postgresql://host/db", "target"), Sink)


# ---- addresses


@pytest.mark.parametrize(
    ("dsn", "table", "options"),
    [
        ("postgresql://me:secret@db.example:5433/shop", "orders", {}),
        ("host=/tmp/s dbname='my shop' password='a b'", 'public."a.b"', {"key": ("a,b", "c%"), "sequence": "at"}),
        (
            "postgresql:///shop?host=one,two&port=1,2",
            "orders#1?x=y",
            {"id": "my:id#", "tuning": PostgresTuning(epoch_column=None)},
        ),
        ("postgresql:///shop", "orders", {"key": "id", "delete_flag": "gone?&", "schema": "add_columns"}),
        ("postgresql:///shop", "orders", {"apply": lambda cursor, staged, epoch: None}),
    ],
)
def test_an_address_finds_the_sink_again_and_holds_no_secret(dsn: str, table: str, options: dict[str, object]) -> None:
    sink = PostgresSink(dsn, table, **options)  # type: ignore[arg-type]
    again = PostgresSink.from_address(sink.address)
    assert "secret" not in sink.address
    assert "a b" not in sink.address
    assert (again.address, again.id, again.capabilities) == (sink.address, sink.id, sink.capabilities)


@pytest.mark.parametrize("address", ["delta:/tmp#x", "postgres:host=db", "", "postgres:host=db nonsense#x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        PostgresSink.from_address(address)
    assert caught.value.code == "E110"


def test_a_connection_string_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        PostgresSink("host=db pasword=secret", "target")
    assert caught.value.code == "E110"
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


def test_the_ledgers_url_reaches_the_same_database(dsn: str) -> None:
    from sqlalchemy import create_engine

    port = dsn.rpartition(":")[2].partition("/")[0]
    for text in (dsn, f"host=127.0.0.1 port={port} dbname=tests user=postgres", f"{dsn}?application_name=x"):
        url = PostgresSink(text, "target").ledger_url
        assert url is not None
        engine = create_engine(url)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT current_database()").scalar_one() == "tests"
        engine.dispose()


def test_a_table_is_found_on_the_search_path_and_made_in_its_first_schema(dsn: str) -> None:
    run(dsn, "CREATE SCHEMA shop")
    run(dsn, "CREATE TABLE shop.known (id bigint, note text)")
    path = f"{dsn}?options=-csearch_path%3Dpublic,shop"
    for table in ("known", "fresh"):
        with Writer(path, table) as writer:
            writer.write(orders(1))
    assert run(dsn, "SELECT count(*) FROM shop.known") == [(1,)]
    assert run(dsn, "SELECT count(*) FROM public.fresh") == [(1,)]


def test_a_schema_that_is_not_there_is_refused_at_open(dsn: str) -> None:
    sink = PostgresSink(dsn, "nowhere.target")
    with pytest.raises(DestinationError) as caught:
        sink.open("orders")
    sink.close()
    assert caught.value.code == "E508"
    assert 'CREATE SCHEMA "nowhere"' in caught.value.remedy


def test_reading_makes_nothing(dsn: str) -> None:
    sink = PostgresSink(dsn, "target")
    sink.open("orders")
    assert (sink.fence(), list(sink.history()), sink.recount()) == (None, [], {})
    sink.sweep()
    sink.close()
    assert run(dsn, "SELECT to_regnamespace('onceonly')") == [(None,)]


# ---- the table


def test_a_table_that_was_made_again_is_fatal(dsn: str) -> None:
    with Writer(dsn) as writer:
        receipt = writer.write(orders(1))
        run(dsn, "DROP TABLE target")
        [event] = writer.position(receipt).disturbances
        assert (event.kind, event.fatal, event.detail) == ("recreated", True, "dropped")
        run(dsn, "CREATE TABLE target (id bigint, note text)")
        for since in (receipt, None):
            position = writer.position(since)
            assert position.identity != receipt.identity
            assert [(event.kind, event.fatal) for event in position.disturbances] == [("recreated", True)]


def test_a_table_made_again_between_prepare_and_commit_is_not_written(dsn: str) -> None:
    with Writer(dsn, load="executors") as writer:
        writer.write(orders(1))
        run(dsn, "DROP TABLE target")
        run(dsn, "CREATE TABLE target (id bigint, note text, _epoch bigint)")
        with pytest.raises(IdentityError) as caught:
            writer.write(orders(2))
        assert caught.value.code == "E208"
        assert rows(dsn) == []


def test_an_adoption_takes_the_table_as_it_is(dsn: str) -> None:
    with Writer(dsn) as writer:
        writer.write(orders(1))
        run(dsn, "DROP TABLE target")
        run(dsn, "CREATE TABLE target (id bigint, note text)")
        marker = writer.marker(0, adoption="accept-loss")
        receipt = writer.sink.commit(None, marker)
        writer.last = marker.epoch
        assert writer.position(receipt).disturbances == ()
        writer.write(orders(2))
        assert rows(dsn) == [(2, "new")]


def test_renaming_a_column_or_vacuuming_is_no_disturbance(dsn: str) -> None:
    with Writer(dsn) as writer:
        receipt = writer.write(orders(1))
        run(dsn, "ALTER TABLE target ADD COLUMN extra int")
        run(dsn, "VACUUM FULL target")
        assert writer.position(receipt).disturbances == ()


# ---- our own rows


def test_a_head_that_somebody_deleted_is_made_again_from_the_newest_epoch(dsn: str) -> None:
    with Writer(dsn, generation=5) as writer:
        writer.write(orders(1))
        receipt = writer.write(orders(2))
        run(dsn, "DELETE FROM onceonly.head")
        with pytest.raises(OnceOnlyError) as caught:
            writer.write(orders(3))
        assert caught.value.code == "E508"
    sink = PostgresSink(dsn, "target")
    sink.open("orders")
    assert sink.fence() == Fence(5, "owner-5")
    sink.close()
    with Writer(dsn, generation=6) as owner:
        position = owner.position(receipt)
        assert (position.epoch, position.disturbances) == (2, ())
        owner.write(orders(3))
    assert len(rows(dsn)) == 3


def test_a_marker_that_was_cleaned_away_leaves_the_number(dsn: str) -> None:
    with Writer(dsn) as writer:
        writer.write(orders(1))
        run(dsn, "DELETE FROM onceonly.epoch")
        position = writer.position()
        assert (position.marker, position.epoch) == (None, 1)
        writer.write(orders(2))
        assert [marker.epoch.number for marker, _ in writer.sink.history()] == [2]


def test_a_sink_set_back_in_mid_run_is_refused(dsn: str) -> None:
    with Writer(dsn) as writer:
        writer.write(orders(1))
        writer.write(orders(2))
        run(dsn, "UPDATE onceonly.head SET epoch = 1")
        with pytest.raises(IdentityError) as caught:
            writer.write(orders(3))
        assert caught.value.code == "E207"


def test_another_history_under_our_own_fence_is_refused(dsn: str) -> None:
    with Writer(dsn) as writer:
        writer.write(orders(1))
        run(dsn, "UPDATE onceonly.head SET chain = 'another'")
        with pytest.raises(IdentityError) as caught:
            writer.write(orders(2))
        assert caught.value.code == "E210"
        assert len(rows(dsn)) == 1


def test_an_epoch_row_in_the_way_is_refused(dsn: str) -> None:
    with Writer(dsn) as writer:
        writer.write(orders(1))
        run(dsn, "UPDATE onceonly.epoch SET epoch = 2")
        with pytest.raises(IdentityError) as caught:
            writer.write(orders(2))
        assert caught.value.code == "E210"
        assert len(rows(dsn)) == 1


def test_history_is_read_in_pages(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceonly_sinks.postgres.reader._PAGE", 3)
    with Writer(dsn) as writer:
        receipts = [writer.write(orders(number)) for number in range(1, 8)]
        assert [receipt for _, receipt in writer.sink.history()] == receipts
        assert [receipt for _, receipt in writer.sink.history(after=4)] == receipts[4:]


def test_pipelines_do_not_meet(dsn: str) -> None:
    with Writer(dsn) as writer:
        writer.write(orders(1))
        other = PostgresSink(dsn, "target")
        other.open("another pipeline")
        assert (other.fence(), list(other.history())) == (None, [])
        other.close()


# ---- the server


@pytest.fixture
def standby(postgres: EmbeddedPostgres, dsn: str) -> Iterator[EmbeddedPostgres]:
    with TemporaryDirectory(prefix="onceonly-standby-", ignore_cleanup_errors=True) as directory:
        server = postgres.standby(Path(directory) / "data")
        try:
            yield server
        finally:
            server.stop()


@pytest.mark.slow
def test_a_promoted_standby_that_has_everything_is_noted_and_written_on(
    dsn: str, standby: EmbeddedPostgres, postgres: EmbeddedPostgres
) -> None:
    standby.start()
    copy = f"{standby.dsn.rpartition('/')[0]}/tests"
    with Writer(dsn) as writer:
        receipt = writer.write(orders(1))
    sink = PostgresSink(copy, "target")
    with pytest.raises(DestinationError) as caught:
        sink.open("orders")
    sink.close()
    assert caught.value.code == "E507"
    _caught_up(dsn, copy)
    standby.promote()
    with Writer(copy, generation=2) as writer:
        position = writer.position(receipt)
        assert position.identity == receipt.identity
        assert [(event.kind, event.fatal) for event in position.disturbances] == [("failed_over", False)]
        later = writer.write(orders(2))
        assert later.at("timeline") == 2
        assert writer.position(later).disturbances == ()


def test_a_promoted_standby_that_lagged_stands_behind_its_receipt(dsn: str, standby: EmbeddedPostgres) -> None:
    with Writer(dsn) as writer:
        first = writer.write(orders(1))
        standby.start()
        copy = f"{standby.dsn.rpartition('/')[0]}/tests"
        _caught_up(dsn, copy)
        standby.stop()
        lost = writer.write(orders(2))
        (standby.data_dir / "standby.signal").unlink()  # recovers what it has and goes its own way
        standby.start()
        with Writer(copy, generation=2) as behind:
            position = behind.position(lost)
            assert (position.epoch, lost.epoch) == (1, 2)
            assert position.identity == first.identity
            # A driver that does not know it is refused at its next commit.
            behind.last = writer.last
            with pytest.raises(IdentityError) as caught:
                behind.write(orders(3))
            assert caught.value.code == "E207"


def _caught_up(dsn: str, copy: str) -> None:
    [(lsn,)] = run(dsn, "SELECT pg_current_wal_lsn()::text")
    for _ in range(1500):
        if run(copy, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn) == [(True,)]:
            return
    raise AssertionError("the standby does not follow")
