"""Process of a driver under test: start, watch and kill it.

It starts in a session of its own, is watched by its output lines, and is killed as a whole.

A PySpark driver is a tree: Python, its JVM, and worker daemons that move into process groups of their own but stay in
the session. So everything here goes by the session, and nothing of it is left when a :class:`Driver` is closed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from onceonly_lab.forkserver import Child, ForkServer

if TYPE_CHECKING:
    from typing_extensions import Self


_POLL_SECONDS = 0.02
_GONE_SECONDS = 10.0


class DriverEnded(RuntimeError):
    """The driver ended before it printed what was waited for; the text ends with the tail of its stderr."""


class DriverSilent(TimeoutError):
    """The driver did not print what was waited for in time; the text ends with the tail of its stderr."""


class Driver:
    """One start of a program, as the leader of a new session and process group. Use as a context manager.

    Its stdout and stderr go to ``<log>.out`` and ``<log>.err``: files, so that a killed driver's last words survive and
    a full pipe never blocks it. Its stdin is a pipe that ends with this process; see :func:`end_with_parent`.

    Attributes:
        out: file with the driver's stdout.
        err: file with the driver's stderr.
    """

    def __init__(self, start: Callable[[Path, Path], subprocess.Popen[bytes] | Child], log: Path) -> None:
        """Start it by a function of the two files; :meth:`command`, :meth:`module` and :meth:`forked` have one."""
        self.out, self.err = log.with_name(f"{log.name}.out"), log.with_name(f"{log.name}.err")
        self._read = 0
        self._kept: list[str] = []
        self._scratch: Path | None = None
        self._process = start(self.out, self.err)

    @classmethod
    def command(
        cls, argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Self:
        """Start ``argv``. ``env`` is added to this process's environment."""

        def start(out: Path, err: Path) -> subprocess.Popen[bytes]:
            with out.open("wb") as stdout, err.open("wb") as stderr:
                return subprocess.Popen(
                    [str(part) for part in argv],
                    stdin=subprocess.PIPE,
                    stdout=stdout,
                    stderr=stderr,
                    env={**os.environ, **(env or {})},
                    cwd=cwd,
                    start_new_session=True,
                )

        return cls(start, log)

    @classmethod
    def forked(
        cls, fork_server: ForkServer, *arguments: str | Path, log: Path, env: Mapping[str, str] | None = None
    ) -> Self:
        """Start a copy of the program that a fork server has loaded."""
        return cls(lambda out, err: fork_server.fork([str(part) for part in arguments], out, err, env or {}), log)

    @classmethod
    def module(
        cls, name: str, *arguments: str | Path, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Self:
        """Start ``python -m name arguments`` with this interpreter, also as the workers' interpreter.

        A JVM that is killed leaves its scratch files: they go to a directory beside the log, removed by :meth:`close`.
        """
        scratch = log.with_name(f"{log.name}.scratch")
        scratch.mkdir(parents=True, exist_ok=True)
        environment = dict(env or {})
        options = environment.get("SPARK_SUBMIT_OPTS", os.environ.get("SPARK_SUBMIT_OPTS", ""))
        python = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_SUBMIT_OPTS": f"{options} -Djava.io.tmpdir={shlex.quote(str(scratch))}".strip(),
        }
        driver = cls.command([sys.executable, "-m", name, *arguments], log, {**environment, **python}, cwd)
        driver._scratch = scratch
        return driver

    @property
    def pid(self) -> int:
        """Process id of the program; also the id of its session and of its process group."""
        return self._process.pid

    def poll(self) -> int | None:
        """Exit code, negative for a signal; ``None`` while it runs."""
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code.

        Raises:
            DriverSilent: still running after ``timeout`` seconds.
        """
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise DriverSilent(f"still running after {timeout:.0f} s\n{self.last_words()}") from None

    def lines(self) -> list[str]:
        """Complete stdout lines that were not returned yet."""
        with self.out.open("rb") as out:
            out.seek(self._read)
            complete, newline, _ = out.read().rpartition(b"\n")
        self._read += len(complete) + len(newline)
        lines, self._kept = self._kept, []
        return lines + (complete.decode(errors="replace").split("\n") if newline else [])

    def wait_for(self, predicate: Callable[[str], bool], timeout: float) -> str:
        """Read lines until one is ``predicate``, and return it. Lines before it are dropped, those after it are kept.

        Raises:
            DriverEnded: the program ended without it.
            DriverSilent: ``timeout`` seconds passed without it.
        """
        deadline = time.monotonic() + timeout
        while True:
            ended = self.poll()
            lines = self.lines()
            for index, line in enumerate(lines):
                if predicate(line):
                    self._kept = lines[index + 1 :]
                    return line
            if ended is not None:
                raise DriverEnded(f"exit code {ended}\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise DriverSilent(f"nothing for {timeout:.0f} s\n{self.last_words()}")
            time.sleep(_POLL_SECONDS)

    def last_words(self, lines: int = 15) -> str:
        """Tail of stderr."""
        return "\n".join(self.err.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> int:
        """SIGKILL Python and JVM at one moment, then whatever else is left of the session; reap; return the exit code.

        -9 means that the kill was what ended the program; any other code, that it had ended before.
        """
        self._signal(self.pid, signal.SIGKILL)
        code = self._process.wait()
        self._sweep()
        return code

    def stop(self) -> None:
        """SIGSTOP the whole session: makes a zombie in the protocol's sense, a driver that is silent but not dead."""
        for group in self._groups():
            self._signal(group, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT the whole session."""
        for group in self._groups():
            self._signal(group, signal.SIGCONT)

    def close(self) -> None:
        """Leave nothing of it running. May repeat."""
        self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sweep(self) -> None:
        deadline = time.monotonic() + _GONE_SECONDS
        while groups := self._groups():
            for group in groups:
                self._signal(group, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise RuntimeError(f"process groups {sorted(groups)} of driver {self.pid} survive SIGKILL")
            time.sleep(_POLL_SECONDS)

    def _groups(self) -> set[int]:
        groups: set[int] = set()
        for pid in psutil.pids():
            try:
                if os.getsid(pid) == self.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    groups.add(os.getpgid(pid))
            except (ProcessLookupError, PermissionError, psutil.Error):
                continue
        return groups

    @staticmethod
    def _signal(group: int, number: signal.Signals) -> None:
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return


def end_with_parent() -> None:
    """Call in a driver program: when whoever started it is gone, its whole process group goes too."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
