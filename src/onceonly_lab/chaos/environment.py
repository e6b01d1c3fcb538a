"""Environment of a chaos job: session, input, checkpoint and destinations.

Also holds the settings that a driver under test receives.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly_lab.model.parts import Kind
from onceonly_lab.schedule import Action, Fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self


# ---- What a driver under test is told, as a JSON file, and how it answers: one JSON line per event on stdout.


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


# ---- What a job is given: a Spark session, its input, a checkpoint, and destinations that the lab can read.

_POLL_S = 0.02
_PATIENCE_S = 120.0
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Topic(NamedTuple):
    """A topic: ``KafkaSink(*env.sinks.kafka("orders"))``."""

    servers: str
    topic: str


class Sinks:
    """Destinations by name. Each outlives the drivers that are killed, and is read from outside of them.

    Args:
        folder: where the lab leaves an address for every destination that was asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def delta(self, name: str) -> str:
        """Path of a Delta table that does not exist yet: for ``DeltaSink(path)`` or ``.format("delta").save(path)``."""
        return self._asked(Kind.DELTA, name)[0]

    def postgres(self, name: str) -> str:
        """DSN of an empty database; the lab reads the table ``name`` in it: ``PostgresSink(dsn, table=name)``."""
        return self._asked(Kind.POSTGRES, name)[0]

    def kafka(self, name: str) -> Topic:
        """Brokers and an empty topic with one partition; the lab reads values that are JSON objects."""
        servers, topic = self._asked(Kind.KAFKA, name)
        return Topic(servers, topic)

    def _asked(self, kind: Kind, name: str) -> list[str]:
        if not _NAME.fullmatch(name):
            raise refuse(
                "E110",
                problem=f"env.sinks.{kind}({name!r}): that is no name for a destination.",
                cause="names are lower-case letters, digits and _, at most 40",
                next=f'env.sinks.{kind}("orders")',
            )
        answer = self._folder / f"{kind}-{name}.json"
        if not answer.exists():
            say("wants", kind=kind, name=name)
        deadline = time.monotonic() + _PATIENCE_S
        while not answer.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody gave the job a destination {kind} {name}")
            time.sleep(_POLL_S)
        address_parts: list[str] = json.loads(answer.read_text())
        return address_parts


@dataclass(frozen=True, slots=True)
class Env:
    """What a job is given.

    Attributes:
        spark: a session; the same Spark serves one driver after another.
        source: the input as a streaming DataFrame, one micro-batch for each of its files.
        files: directory of these Parquet files, for jobs that read by themselves.
        checkpoint: directory for ``checkpointLocation``.
        sinks: destinations that the lab can read.
    """

    spark: SparkSession
    source: DataFrame
    files: str
    checkpoint: str
    sinks: Sinks
