"""What a job is given: a Spark session, its input, a checkpoint, and destinations that the lab can read."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onceonly.errors import refuse
from onceonly_lab.chaos.task import say
from onceonly_lab.model.parts import Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        found: list[str] = json.loads(answer.read_text())
        return found


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
