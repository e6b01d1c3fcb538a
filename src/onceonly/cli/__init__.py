"""The command line ``onceonly``; needs the extra ``cli``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point ``onceonly``."""
    try:
        from onceonly.cli.app import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        from onceonly_checkpoints.install import hint

        print(f"The command line needs {missing.name}: {hint('cli')}", file=sys.stderr)
        raise SystemExit(2) from missing
    app()
