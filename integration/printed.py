"""Commands that a message prints, run as they are printed by the program that stands beside this interpreter."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from onceonly.faults import Point

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
    run(command(said, words), code=2)
    run(command(said, words), "--yes")


def killed(printed: list[str], point: Point, hit: int = 1) -> None:
    """Run a printed command with --yes; SIGKILL must end it where it passes a fault point for the ``hit``-th time."""
    environment = {**os.environ, "ONCEONLY_FAULT": f"{point}:kill:{hit}"}
    program = Path(sys.executable).parent / printed[0]
    ended = subprocess.run(
        [program, *printed[1:], "--yes"], capture_output=True, env=environment, timeout=_PATIENCE_S, check=False
    )
    assert ended.returncode == -9, ended.stderr


def refused(printed: list[str], *more: str) -> str:
    """Run a printed command that must be refused, with exit code 2. Returns what it wrote to stderr."""
    return _ended(printed, *more, code=2).stderr


def _ended(printed: list[str], *more: str, code: int) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / printed[0]
    done = subprocess.run(
        [program, *printed[1:], *more], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done
