"""Fork server for driver processes that start at once.

Each driver is forked from a process that has loaded the modules that all of them load.

Most of a short driver's life is importing. The process that is forked has done that, has one thread and no connection,
as Spark's own daemon of Python workers; what it forks leads a session of its own, is killed like any other driver, and
ends when the fork server does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


_POLL_S = 0.01

_ALONE = {"OPENBLAS_NUM_THREADS": "1", "PYSPARK_PYTHON": sys.executable}
"""No thread of numpy's, which a fork would lose; and Spark's workers run this interpreter."""


class ForkServer:
    """Starts copies of a program that is loaded already. A context manager; its end is that of all of them.

    Args:
        program: module with ``come_up()``, which loads and starts nothing, and ``main(argv) -> int``.
        log: for what the fork server itself has to say.
        environment: added to this process's; where modules are looked for has to be here.
        folder: the working directory.
    """

    def __init__(self, program: str, log: Path, environment: Mapping[str, str], folder: Path | None = None) -> None:
        self._program = program
        self._log = log
        self._environment = dict(environment)
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "onceonly_lab.forkserver", self._program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **_ALONE, **self._environment},
                cwd=self._folder,
                start_new_session=True,
                text=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def fork(self, argv: Sequence[str], out: Path, err: Path, environment: Mapping[str, str]) -> Child:
        """Start a copy.

        Args:
            argv: for its ``main``.
            out: file for its stdout.
            err: file for its stderr.
            environment: added to the fork server's.

        Raises:
            ChildProcessError: the fork server has ended; its log says why.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for file in (out, err):
            file.write_bytes(b"")  # they are looked at before the copy has got so far
        code = out.with_suffix(".code")
        order = {"argv": [*argv], "out": str(out), "err": str(err), "code": str(code), "env": dict(environment)}
        try:
            print(json.dumps(order), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ChildProcessError(f"the fork server has ended: {self._log.read_text(errors='replace')[-2000:]}")
        return Child(int(answer), code, self._process)


class Child:
    """A forked process, as ``subprocess.Popen`` shows one.

    Args:
        pid: its id.
        code: the file that gets its exit code.
        fork_server: whose child it is.
    """

    stdin = None

    def __init__(self, pid: int, code: Path, fork_server: subprocess.Popen[str]) -> None:
        self.pid = pid
        self._code = code
        self._fork_server = fork_server

    def poll(self) -> int | None:
        """Exit code, negative for a signal; ``None`` while it runs."""
        if self._code.exists():
            return int(self._code.read_text())
        # Its children end with it, by SIGKILL, and nobody is left to say so.
        return None if self._fork_server.poll() is None else -signal.SIGKILL

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: still running after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_S)
        return code


# ---- the fork server itself


class _Ward:
    """Forks, and writes down how each child ended."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._codes: dict[int, Path] = {}
        self._lines: list[int] = []

    def serve(self) -> int:
        """Fork for each line of stdin, until it ends.

        Returns:
            The exit code: the fork server's, or, in a child, its own.
        """
        # A signal that comes just before a read would be seen only after it: so both are waited for by one call.
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        left = b""
        while True:
            ready, _, _ = select.select([0, woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            if 0 not in ready:
                continue
            read = os.read(0, 65536)
            if not read:
                return 0
            *lines, left = (left + read).split(b"\n")
            for order in map(json.loads, lines):
                line, hold = os.pipe()
                leads, leading = os.pipe()
                pid = os.fork()
                if not pid:
                    return self._live(order, line, leading, [*self._lines, hold, woken, wake, leads])
                os.close(line)
                os.close(leading)
                # Its group is killed by its id, which would be nobody's before it leads a session.
                os.read(leads, 1)
                os.close(leads)
                self._lines.append(hold)
                self._codes[pid] = Path(order["code"])
                print(pid, flush=True)

    def _live(self, order: Mapping[str, Any], line: int, leading: int, others: Sequence[int]) -> int:
        """Be a child: its stdin ends when the fork server does, and ``leading`` when it leads a session."""
        os.setsid()
        os.close(leading)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in others:
            os.close(other)
        os.dup2(line, 0)
        os.close(line)
        for number, path in ((1, order["out"]), (2, order["err"])):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.update(order["env"])
        code: int = self._program.main(order["argv"])
        return code

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            path = self._codes.pop(pid)
            hidden = path.with_suffix(".new")
            hidden.write_text(str(os.waitstatus_to_exitcode(status)))
            hidden.rename(path)


def _main(argv: Sequence[str]) -> int:
    program = importlib.import_module(argv[0])
    program.come_up()
    gc.freeze()  # what is loaded stays shared with the children
    return _Ward(program).serve()


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
