"""Where and with what it was measured; no paths, no host names."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import psycopg

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "psycopg", "pgpq", "sqlalchemy")


def describe(dsn: str, java: str | None) -> dict[str, Any]:
    """Facts about the machine and the software."""
    with psycopg.connect(dsn) as connection:
        postgres = connection.info.server_version
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
        "java": java,
        "postgres": f"{postgres // 10000}.{postgres % 10000}",
        **{package: version(package) for package in _PACKAGES},
    }


def cpu() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
