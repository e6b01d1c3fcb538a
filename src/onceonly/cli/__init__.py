"""The command line ``onceonly``; needs the extra ``cli``."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; the entry point ``onceonly``."""
    try:
        from onceonly.cli.plugins import published
        from onceonly.cli.tree import command_tree
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(f"The command line needs {missing.name}: pip install 'onceonly[cli]'", file=sys.stderr)
        raise SystemExit(2) from missing
    # A shell that completes a word runs the program with no argument.
    words = [] if "_ONCEONLY_COMPLETE" in os.environ else [word for word in sys.argv[1:] if word[:1] != "-"]
    command_tree(published(), words)()
