"""A server process that does not outlive the process that started it, however that one ends."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

log = logging.getLogger(__name__)

_GONE_SECONDS = 20.0


class GuardedProcess:
    """One start of a server, in a session of its own: Ctrl-C in the terminal is not for it.

    Args:
        argv: the program and its arguments; one of them must be ``mark``.
        mark: a file that no other server has among its arguments; beside it lies the pid, for :func:`end_leftover`.
        output: what the server prints is appended here.
        env: its environment; default this process's.
    """

    def __init__(self, argv: Sequence[str], mark: Path, output: Path, env: Mapping[str, str] | None = None) -> None:
        with output.open("ab") as printed:
            self._server = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd=output.parent,
                env=env,
                start_new_session=True,
            )
        # The watchdog reads a pipe whose other end this process holds: its end of file is this process's end.
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -KILL "$0"', str(self.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        _pid_file(mark).write_text(str(self.pid))

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._server.pid

    @property
    def running(self) -> bool:
        """Whether the server is alive; a stopped one is."""
        return self._server.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.running:
            self._server.send_signal(number)

    def end(self, how: signal.Signals, seconds: float) -> int:
        """End it with one signal, after ``seconds`` with SIGKILL, and return its exit code. May repeat."""
        self.send(signal.SIGCONT)
        self.send(how)
        try:
            self._server.wait(seconds)
        except subprocess.TimeoutExpired:
            log.warning("server %s ignores %s", self.pid, how.name)
            self.send(signal.SIGKILL)
        code = self._server.wait(_GONE_SECONDS)
        self._dismiss()
        return code

    def _dismiss(self) -> None:
        self._watchdog.kill()
        self._watchdog.wait()
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()


def end_leftover(mark: Path) -> None:
    """SIGKILL the server that a killed process left running with ``mark``, and wait until it is gone."""
    try:
        process = psutil.Process(int(_pid_file(mark).read_text()))
        if str(mark) not in process.cmdline():
            return  # the pid is another program's by now
        log.info("ending server %s, left over with %s", process.pid, mark)
        process.kill()
        process.wait(_GONE_SECONDS)
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess, psutil.ZombieProcess):
        return


def _pid_file(mark: Path) -> Path:
    return mark.with_suffix(".pid")
