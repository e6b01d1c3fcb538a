"""What a driver under test is told, as a JSON file, and how it answers: one JSON line per event on stdout."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from onceonly.faults import Point
from onceonly_lab.schedule import Action, Fault


@dataclass(frozen=True, slots=True)
class Task:
    """One start of a driver.

    Attributes:
        job: place of the pipeline, see :func:`~onceonly_lab.chaos.pipeline.load`.
        files: directory of the input.
        checkpoint: of the query.
        sinks: directory with addresses of destinations.
        recorder: address of the history's writer.
        incarnation: which start it is, from 1.
        faults: what goes wrong in it.
        plain: the job uses nothing of ours, so its only fault points are the two ends of its callback; ``None``: nobody
            knows yet.
    """

    job: str
    files: str
    checkpoint: str
    sinks: str
    recorder: str
    incarnation: int
    faults: tuple[Fault, ...] = ()
    plain: bool | None = None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Inverse of :meth:`save`."""
        fields: dict[str, Any] = json.loads(path.read_text())
        fields["faults"] = tuple(map(_fault, fields["faults"]))
        return cls(**fields)

    def save(self, path: Path) -> None:
        """Write it complete or not at all: a driver waits for the file."""
        hidden = path.with_suffix(".tmp")
        hidden.write_text(json.dumps(asdict(self), indent=1))
        hidden.rename(path)


ARMED, OVER = "armed", "over"
"""What a driver waits for around a request: a fault is in force on its wire, and is not any more."""


def wire_file(folder: Path, incarnation: int, fault: int, what: str) -> Path:
    """The file that tells a driver so."""
    return folder / f"wire-{incarnation}-{fault}.{what}"


def _fault(fields: dict[str, Any]) -> Fault:
    fields["point"], fields["action"] = Point(fields["point"]), Action(fields["action"])
    return Fault(**fields)


def say(event: str, **facts: object) -> None:
    """Tell the harness, straight to the file descriptor: what a killed process had buffered would be lost."""
    os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")


def heard(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The events in lines of a driver's stdout, which its JVM may write to as well."""
    return [json.loads(line) for line in lines if line.startswith('{"event":')]
