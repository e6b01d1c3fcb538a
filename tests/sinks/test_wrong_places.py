"""Places where nothing can lie: each is refused at once, with a code and the cause that is true."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceonly import OnceOnlyError, Storage, exactly_once
from onceonly.cli.app import app
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "orders.csv"
    found.write_text("1,2")
    return found


def test_a_delta_table_below_a_file_is_refused_at_once(file: Path) -> None:
    began = time.monotonic()
    with pytest.raises(OnceOnlyError) as caught:
        DeltaSink(file / "bronze" / "orders").open("orders")
    assert time.monotonic() - began < 1
    assert caught.value.code == "E508"
    assert f"{file} is a file" in str(caught.value)
    assert "unstable" not in str(caught.value)


def test_staging_below_a_file_is_refused_when_the_wrapper_is_made(file: Path) -> None:
    with pytest.raises(OnceOnlyError) as caught:
        exactly_once(MemorySink("a"), MemorySink("b"), storage=Storage(staging=file / "staging"))
    assert caught.value.code == "E114"
    assert f"{file} is a file" in str(caught.value)


def test_a_ledger_below_a_file_says_which_file_is_in_the_way(file: Path) -> None:
    with pytest.raises(LedgerUnavailable, match=f"{file} is a file"):
        SqlLedger(str(file / "deep" / "ledger.db")).open()


@pytest.mark.parametrize("verb", [("checkpoint",), ("checkpoint", "--verify"), ("recover", "rebuild-checkpoint")])
@pytest.mark.parametrize("below", ["", "orders"])
def test_a_checkpoint_that_is_a_file_or_lies_below_one_is_none(file: Path, verb: tuple[str, ...], below: str) -> None:
    result = CliRunner().invoke(app, [*verb, str(file / below)])
    assert result.exit_code == 2
    assert "[ONCE-E603]" in result.stderr
    assert f"{file} is a file" in result.stderr


@pytest.mark.postgres
class TestADatabaseThatIsNotThere:
    """The server answers, and has no database of this name: nobody is told to look for a password."""

    def url(self, postgres: EmbeddedPostgres, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{postgres.port}/nosuch"

    def test_the_sink_names_it(self, postgres: EmbeddedPostgres) -> None:
        with pytest.raises(OnceOnlyError) as caught:
            PostgresSink(self.url(postgres), "orders").open("orders")
        assert caught.value.code == "E508"
        assert 'no database "nosuch"' in str(caught.value)
        assert "PGPASSWORD" not in str(caught.value)

    def test_the_ledger_names_it(self, postgres: EmbeddedPostgres) -> None:
        with pytest.raises(LedgerUnavailable, match='no database "nosuch"'):
            SqlLedger(self.url(postgres)).open()

    def test_the_remedy_can_be_obeyed(self, postgres: EmbeddedPostgres) -> None:
        import psycopg

        with pytest.raises(OnceOnlyError) as caught:
            PostgresSink(self.url(postgres), "orders").open("orders")
        statement = caught.value.remedy.partition("create it: ")[2].partition(";")[0]
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type] - it is what was printed
            sink = PostgresSink(self.url(postgres), "orders")
            sink.open("orders")
            sink.close()
            connection.execute("DROP DATABASE nosuch WITH (FORCE)")

    def test_a_server_without_ssl_is_told_in_its_own_words(self, postgres: EmbeddedPostgres) -> None:
        with pytest.raises(OnceOnlyError, match="SSL was required") as caught:
            PostgresSink(f"{postgres.dsn}?sslmode=require", "orders").open("orders")
        assert caught.value.code == "E501"
        assert "or sslmode= does not fit the server" in str(caught.value)

    def test_a_role_that_is_not_there_is_another_matter(self, postgres: EmbeddedPostgres) -> None:
        with pytest.raises(OnceOnlyError) as caught:
            PostgresSink(self.url(postgres, "eve"), "orders").open("orders")
        assert caught.value.code == "E501"
        assert "eve" in str(caught.value)
