"""Who used the processors during a run: the query, the servers it wrote to, and everybody else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds since some moment.

    Attributes:
        client: of processor, by driver, JVM and Python workers.
        servers: of processor, by the servers.
        busy: of all processors by anybody, and what the host took away.
        clock: of the wall.
    """

    client: float
    servers: float
    busy: float
    clock: float

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage(
            self.client - earlier.client,
            self.servers - earlier.servers,
            self.busy - earlier.busy,
            self.clock - earlier.clock,
        )

    @property
    def others(self) -> float:
        """Processors that others used, on average."""
        return max(0.0, self.busy - self.client - self.servers) / self.clock


def now(root: Path) -> Usage:
    """Usage so far. ``root`` is the directory of the servers, which their command lines name."""
    servers: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["cmdline"]):
        if str(root) in " ".join(process.info["cmdline"] or ()):
            servers |= {each.pid: each for each in family(process)}
    client = [each for each in family(psutil.Process(os.getpid())) if each.pid not in servers]
    all_times = psutil.cpu_times()
    idle = all_times.idle + getattr(all_times, "iowait", 0.0)
    return Usage(seconds(client), seconds(servers.values()), sum(all_times) - idle, time.perf_counter())


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it started, directly or not. Empty once it is gone."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def seconds(processes: Iterable[psutil.Process]) -> float:
    """Seconds of processor, with those of children that ended: a parent has them once it has waited for them."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
