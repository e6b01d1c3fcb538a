"""Runs steps of a page in an empty folder, by the Python of its reader: ``python first_hour_page.py steps.json``.

Python blocks share one namespace, as in a session. Commands run in a shell, and what they print is compared. Needs
nothing beside the standard library, and runs on each Python that onceonly supports.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

PATIENCE_S = 900


def alike(expected: str, printed: str) -> bool:
    """Whether a command printed what a page shows; ``...`` stands for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected.strip() + "\n", printed.strip() + "\n", flags)


def shell(command: str, folder: str) -> str:
    """Run a command and return what it printed. Raises :class:`AssertionError` for a code that is no answer."""
    run = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    # An audit answers with 1 where it has findings, and a page may show one.
    if run.returncode not in ((0, 1) if command.startswith("onceonly ") else (0,)):
        raise AssertionError(f"{command}: exit code {run.returncode}\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
    return run.stdout


def converse(code: str, folder: str) -> None:
    """Run the commands of a console block. Raises :class:`AssertionError` where one prints something else."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        printed = shell(command, folder)
        if not alike(expected, printed):
            raise AssertionError(f"{command} printed\n{printed}")


def run(step: dict[str, str], page: str, session: dict[str, object]) -> None:
    """Run one step of a page. ``session`` has the names of its Python blocks."""
    kind, code = step["kind"], step["code"]
    if kind == "file":
        Path(step["path"]).write_text(code + "\n")
    elif kind == "console":
        converse(code, step["folder"])
    elif kind == "shell":
        shell(code, step["folder"])
    else:
        exec(compile("\n" * int(step["line"]) + code, page, "exec"), session)


def main() -> int:
    """Run the steps that a file holds, and name the line of the first that fails."""
    page = json.loads(Path(sys.argv[1]).read_text())
    sys.path[0] = str(Path.cwd())
    # As in a Python session: functions of this module travel to Spark's workers by value.
    session: dict[str, object] = {"__name__": "__main__"}
    for step in page["steps"]:
        try:
            run(step, page["name"], session)
        except Exception:  # noqa: BLE001  (a block raises what it likes)
            traceback.print_exc()
            print(f"{page['name']}:{step['line']}: this block failed", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit(): blocks read by deltalake as users do, and a thread of Arrow may still close a file by Python code,
    # which aborts the interpreter's exit (4 of 60 runs of a program that only reads a table).
    os._exit(code)
