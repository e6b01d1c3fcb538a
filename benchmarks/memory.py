"""Peak memory of the Python driver over one epoch: each variant in a fresh process with a JVM of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import streams
from benchmarks.data import Shape, generate
from benchmarks.destinations import VARIANTS, TestBed
from benchmarks.model import Bar, Pair, Result

_MB = 1024 * 1024
_SECONDS = 300.0


def measure(bars: Sequence[Bar], shape: Shape, testbed: TestBed, rounds: int) -> list[Result]:
    """Compare the peaks of each bar's two sides."""
    sides = list(dict.fromkeys(name for bar in bars for name in (*bar.peers, bar.ours)))
    generate(shape)  # the first child must not make it: that takes more memory than anything it measures
    peaks: list[dict[str, float]] = []
    for number in range(1, rounds + 1):
        peaks.append({variant: _peak(variant, shape, testbed, number) for variant in sides})
    return [
        Result(bar, bar.peers[0], tuple(Pair(peak[bar.ours], peak[bar.peers[0]]) for peak in peaks)) for bar in bars
    ]


def _peak(variant: str, shape: Shape, testbed: TestBed, number: int) -> float:
    """Peak of a child that writes the shape once, MB."""
    name = streams.run_name(shape, variant, number)
    task = {
        "variant": variant,
        "name": name,
        "shape": [shape.name, shape.epochs, shape.rows, shape.tasks],
        "ground": [*testbed.addresses, str(testbed.root)],
    }
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(task)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if answer.returncode:
        raise RuntimeError(f"{variant}: the measured process failed\n{answer.stderr[-3000:]}")
    way = VARIANTS[variant]
    try:
        streams.proven(way.count(testbed, name), shape, variant)
    finally:
        way.remove(testbed, name)
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    print(f"memory {number}: {variant}: peak {found['peak_mb']:.0f} MB", file=sys.stderr)
    return float(found["peak_mb"])


def peak_mb() -> float:
    """Highest resident size of this process so far, MB."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024 / _MB
    # Elsewhere the kernel's account must do; macOS counts bytes.
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (_MB if sys.platform == "darwin" else 1024)


def _child(task: dict[str, Any]) -> None:
    shape = Shape(*task["shape"])
    *servers, root = task["ground"]
    testbed = TestBed(streams.session(), *servers, Path(root))
    query = streams.start(testbed, shape, VARIANTS[task["variant"]], task["name"])
    query.awaitTermination()
    print(json.dumps({"peak_mb": peak_mb()}), flush=True)
    testbed.spark.stop()


def one_epoch(shape: Shape) -> Shape:
    """The same rows as one epoch; several row groups, as Spark's own files of this size have tasks."""
    return replace(shape, name="one", epochs=1, rows=shape.total, tasks=max(4, shape.tasks))


if __name__ == "__main__":
    _child(json.loads(sys.argv[1]))
