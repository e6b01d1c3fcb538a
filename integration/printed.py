"""Commands that a message prints, run as they are printed by the program that stands beside this interpreter."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path


def command(said: str, words: str) -> list[str]:
    """The printed command that contains ``words``, as a shell would split it."""
    printed = [line for line in re.findall(r"(onceonly [^\n]*)", said) if words in line]
    assert printed, f"no command with {words!r} in: {said}"
    return shlex.split(printed[0])


def run(printed: list[str], *more: str, code: int = 0) -> str:
    """Run a printed command; it must end with ``code``. Returns what it wrote to stdout."""
    program = Path(sys.executable).parent / printed[0]
    done = subprocess.run([program, *printed[1:], *more], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout
