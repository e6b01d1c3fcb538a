"""The command line: ``onceonly``. Needs the extra ``cli``; everything it does can be done from Python too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point ``onceonly``."""
    try:
        from onceonly.cli.app import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(f"The command line needs {missing.name}: pip install 'onceonly[cli]'", file=sys.stderr)
        raise SystemExit(2) from missing
    app()
