"""Commands that a message prints, run as they are printed, each in a process that is forked with its imports done."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from onceonly.faults import Point
from onceonly_lab.forkserver import ForkServer

_PATIENCE_S = 300
"""A command that starts Spark takes seconds; on a machine that does other things, too, minutes."""


def command(said: str, words: str) -> list[str]:
    """The printed command that contains ``words``, as a shell would split it."""
    printed = [line for line in re.findall(r"(onceonly [^\n]*)", said) if words in line]
    assert printed, f"no command with {words!r} in: {said}"
    return shlex.split(printed[0])


def run(printed: list[str], *more: str, code: int = 0) -> str:
    """Run a printed command; it must end with ``code``. Returns what it wrote to stdout."""
    return _ended(printed, *more, code=code).stdout


def obey(said: str, words: str) -> None:
    """Run the printed command that contains ``words``, then the one that its plan prints: the same with --yes."""
    run(command(said, words), code=4)
    run(command(said, words), "--yes")


def killed(printed: list[str], point: Point, hit: int = 1) -> None:
    """Run a printed command with --yes; SIGKILL must end it where it passes a fault point for the ``hit``-th time."""
    ended = _run([*printed, "--yes"], {"ONCEONLY_FAULT": f"{point}:kill:{hit}"})
    assert ended.returncode == -signal.SIGKILL, f"{ended.stdout}\n{ended.stderr}"


def refused(printed: list[str], *more: str) -> str:
    """Run a printed command that must be refused, with exit code 2. Returns what it wrote to stderr."""
    return _ended(printed, *more, code=2).stderr


def _ended(printed: list[str], *more: str, code: int) -> subprocess.CompletedProcess[str]:
    done = _run([*printed, *more], {})
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done


def _run(typed: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    name, *words = typed
    assert name == "onceonly", typed
    fork_server, folder, numbers = _loaded()
    out, err = (folder / f"{next(numbers):04d}.{kind}" for kind in ("out", "err"))
    told = {"words": words, "cwd": str(Path.cwd()), "env": {**os.environ, **environment}}
    child = fork_server.fork([json.dumps(told)], out, err, {})
    try:
        code = child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(typed, code, out.read_text(), err.read_text())


@cache
def _loaded() -> tuple[ForkServer, Path, itertools.count[int]]:
    """Forks commands, until this process ends; where what they say is written, and its numbers."""
    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    folder = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="onceonly-commands-")))
    made = ForkServer("integration.commands", folder / "fork server.log", {}, Path(__file__).resolve().parent.parent)
    return until_the_end.enter_context(made), folder, itertools.count()
