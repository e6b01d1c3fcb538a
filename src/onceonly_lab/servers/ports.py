"""Ports and jars of servers that the lab starts."""

from __future__ import annotations

import random
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from onceonly.spark.jars import Artifact, cache_directory, fetched, run_ivy

# ---- Ports for servers that die and come back while their clients keep trying.

_SYSTEM = random.SystemRandom()
_LINUX_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_COMMON_LOW = 32768
_SPAN = 12000
_LOWEST = 10000
_TRIES = 400


def free_ports(count: int) -> list[int]:
    """Different free TCP ports of ``127.0.0.1`` below the range from which the system serves outgoing connections.

    A client that tries a dead port inside that range again and again can be given the very same port as its own: it is
    then connected to itself and keeps the port from the server that wants to come back.

    Raises:
        OSError: there are not so many.
    """
    low = _ephemeral_low()
    ports: set[int] = set()
    for _ in range(_TRIES):
        if len(ports) == count:
            return sorted(ports)
        port = _SYSTEM.randrange(max(_LOWEST, low - _SPAN), low)
        if port not in ports and is_free(port):
            ports.add(port)
    raise OSError(f"found only {len(ports)} of {count} free ports below {low}")


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As servers do: connections that are still fading away do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _ephemeral_low() -> int:
    try:
        return int(_LINUX_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _COMMON_LOW


# ---- Jars that tests, benchmarks and servers of the lab need beside those of :mod:`onceonly.spark.jars`.

KAFKA_VERSION = "4.3.1"
"""The newest broker whose jars all resolve. The latest may need one that was not published."""

_JDBC = (Artifact("org.postgresql", "postgresql", "42.7.14"),)
_KAFKA_BROKER = (
    Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, with_dependencies=True),
    # The binding of the line of slf4j-api that the broker brings; without one it says nothing when it fails.
    Artifact("org.slf4j", "slf4j-simple", "1.7.36", with_dependencies=True),
)


def postgres_jdbc_jar(cache: Path | None = None) -> Path:
    """The Postgres JDBC driver, for Spark's own writer in benchmarks.

    Raises:
        ConfigurationError: E110, see :func:`onceonly.spark.jars.delta_jars`.
    """
    return fetched(_JDBC, cache)[0]


def kafka_broker_jars(cache: Path | None = None) -> list[Path]:
    """Everything that one Kafka broker needs, some 46 jars and 44 MB, sorted by name.

    Raises:
        ConfigurationError: E110, see :func:`onceonly.spark.jars.delta_jars`.
    """
    folder = (cache or cache_directory()) / "jars" / f"kafka-{KAFKA_VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _fetch_with_dependencies(_KAFKA_BROKER, folder)
    return sorted(folder.glob("*.jar"))


def _fetch_with_dependencies(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Fetch jars into a new folder, which appears whole or not at all."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as work:
        run_ivy(artifacts, Path(work), folder)
        try:
            (Path(work) / "lib").rename(folder)
        except OSError:
            # Another process was first.
            if not folder.is_dir():
                raise
