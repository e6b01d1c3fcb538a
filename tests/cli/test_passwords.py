"""Commands on a server that wants a password, which no address holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.audit.stores import Stored
from tests.cli.conftest import Run

from onceonly.cli.change import without_password
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.postgres import temporary_postgres
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

_SECRET = "s3cret"


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """URL, without password, of a database whose users prove themselves by SCRAM."""
    with temporary_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE app LOGIN PASSWORD '{_SECRET}'")
            connection.execute("CREATE DATABASE guarded OWNER app")
            rules = server.data_dir / "pg_hba.conf"
            rules.write_text("host all postgres 127.0.0.1/32 trust\nhost all app 127.0.0.1/32 scram-sha-256\n")
            connection.execute("SELECT pg_reload_conf()")
        yield urlsplit(server.dsn)._replace(netloc=f"app@127.0.0.1:{server.port}", path="/guarded").geturl()


def with_password(url: str, password: str = _SECRET) -> str:
    return url.replace("app@", f"app:{password}@")


@pytest.fixture
def ledger(guarded: str, tmp_path: Path) -> Iterator[str]:
    """A pipeline whose rows and ledger lie in that database; the ledger's URL."""
    url = with_password(guarded)
    stored = Stored(PostgresSink(url, "orders"), tmp_path, SqlLedger(url)).write_all()
    yield url
    stored.sink.close()
    stored.ledger.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE orders; DROP SCHEMA onceonly CASCADE")


@pytest.fixture(autouse=True)
def no_password_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))


def test_the_server_refuses_whoever_brings_no_password(guarded: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(guarded)


@pytest.mark.parametrize("words", [("audit",), ("epochs", "list"), ("status", "--in-doubt")])
def test_a_sink_in_the_ledgers_database_is_read_with_the_ledgers_password(
    run: Run, ledger: str, words: tuple[str, ...]
) -> None:
    result = run(*words, "--ledger", ledger)
    assert result.exit_code == 0, (result.stdout, result.stderr)
    assert _SECRET not in result.stdout + result.stderr


def test_the_doctor_reads_it_with_the_ledgers_password_too(run: Run, ledger: str) -> None:
    result = run("doctor", "--ledger", ledger)
    assert "no password supplied" not in result.stdout
    assert "answers; an epoch is committed by: transaction" in result.stdout


def test_a_password_is_never_sent_to_another_server_user_or_database(guarded: str) -> None:
    for other in (guarded.replace("127.0.0.1", "localhost"), guarded.replace("app@", "eve@"), f"{guarded}2"):
        sink = PostgresSink(other, "orders")
        sink.use_ledger_login(with_password(guarded))
        assert _SECRET not in (sink.ledger_url or ""), other


def test_a_password_in_the_address_of_the_sink_stays(guarded: str) -> None:
    sink = PostgresSink(with_password(guarded, "own"), "orders")
    sink.use_ledger_login(with_password(guarded))
    assert ":own@" in (sink.ledger_url or "")


def test_without_any_password_the_audit_says_where_one_is_looked_for(
    run: Run, guarded: str, ledger: str, tmp_path: Path
) -> None:
    sink = PostgresSink(guarded, "orders").address
    result = run("audit", "-q", "orders", "--sink", sink, "--ledger", str(tmp_path / "no.db"))
    assert result.exit_code == 2
    for place in ("A101", "PGPASSWORD", "PGSERVICEFILE"):
        assert place in result.stdout


def spelled(ledger: str, form: str) -> str:
    """The ledger's URL in another way of saying the same."""
    parts = urlsplit(ledger)
    words = {"host": parts.hostname, "port": parts.port, "user": parts.username, "dbname": parts.path[1:]}
    pairs = " ".join(f"{name}={value}" for name, value in words.items())
    return {
        "url": ledger,
        "query": ledger.replace(f":{_SECRET}@", "@") + f"?password={_SECRET}&connect_timeout=5",
        "pairs": f"{pairs} password={_SECRET}",
        "quoted": f"password = '{_SECRET}' {pairs}",
    }[form]


@pytest.mark.parametrize("form", ["url", "query", "pairs", "quoted"])
@pytest.mark.parametrize("joined", [False, True], ids=["two words", "one word"])
def test_the_command_that_a_plan_prints_runs_once_the_password_is_where_it_says(
    run: Run, ledger: str, form: str, joined: bool
) -> None:
    said = spelled(ledger, form)
    where = [f"--ledger={said}"] if joined else ["--ledger", said]
    result = run("recover", "forget", "orders", *where)
    assert result.exit_code == 4, (result.stdout, result.stderr)
    assert _SECRET not in result.stdout + result.stderr
    assert "***" not in result.stderr
    assert "PGPASSWORD" in result.stderr
    [line] = [line for line in result.stderr.splitlines() if line.startswith("onceonly ")]
    command = shlex.split(line)[1:]
    assert run(*command).exit_code == 2
    again = run(*command, PGPASSWORD=_SECRET)
    assert again.exit_code == 0, (line, again.stdout, again.stderr)


@pytest.mark.parametrize(
    ("word", "left"),
    [
        ("postgresql://app:s3cret@h:5432/d", "postgresql://app@h:5432/d"),
        ("postgresql://app:s3@cret@h/d", "postgresql://app@h/d"),
        ("postgresql://h/d?user=app&password=s3cret&connect_timeout=5", "postgresql://h/d?user=app&connect_timeout=5"),
        ("postgresql://h/d?password=s3cret", "postgresql://h/d"),
        ("host=h password=s3\\ cret dbname=d", "host=h dbname=d"),
        ("host=h password='s3 \\' cret' dbname=d", "host=h dbname=d"),
        ("host=h password=s3#cret", "host=h"),
        ("postgres:postgresql://app:s3cret@h/d#orders?key=id", "postgres:postgresql://app@h/d#orders?key=id"),
        ("--sink=postgres:dbname=d password=s3cret#orders", "--sink=postgres:dbname=d#orders"),
        ("postgresql://app@h/d", "postgresql://app@h/d"),
        ("a reason of two words: it is over ", "a reason of two words: it is over "),
    ],
)
def test_a_word_without_its_password_leads_to_the_same_place(word: str, left: str) -> None:
    assert without_password(word) == left


def test_a_plan_without_a_password_says_nothing_of_one(on: Run) -> None:
    result = on("recover", "forget", "orders")
    assert result.exit_code == 4
    assert "PGPASSWORD" not in result.stderr
