"""Where this machine keeps what can be made or fetched again: jars, class archives, what a start has found out."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """``$ONCEONLY_CACHE``, else ``onceonly`` in the user's cache directory."""
    if chosen := os.environ.get("ONCEONLY_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "onceonly"
