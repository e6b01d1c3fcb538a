"""What the acts of the demo share: options, input, database, screen; and the servers and jars that they need."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.jars import delta_jars
from onceonly.session.archive import JvmArchive
from onceonly_lab.demo.options import Options
from onceonly_lab.demo.screen import Screen
from onceonly_lab.jars import kafka_broker_jars
from onceonly_lab.kafka import EmbeddedKafka
from onceonly_lab.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Stage:
    """What the acts share.

    Attributes:
        options: as the user gave them.
        folder: everything lies here; the input in ``input``, the drivers' logs in ``logs``.
        dsn: of Postgres; empty if no sink needs it.
        given: the input's rows.
        screen: shows what happens.
    """

    options: Options
    folder: Path
    dsn: str
    given: pa.Table
    screen: Screen

    def archive(self, kinds: Collection[str]) -> JvmArchive:
        """What the JVMs of drivers start from that write to these kinds of sinks, and so have these jars."""
        return JvmArchive("demo", delta_jars() if "delta" in kinds else [])


def fetch(options: Options, screen: Screen) -> None:
    """Have every jar here before anything is timed."""
    if "kafka" in options.kinds:
        screen.say("looking for Kafka's jars (fetched on first use)")
        kafka_broker_jars()
    if "delta" in options.kinds:
        screen.say("looking for Delta's jars (fetched on first use)")
        delta_jars()


@contextmanager
def postgres(options: Options, folder: Path, screen: Screen) -> Generator[str]:
    """DSN of a server of our own, if a sink needs it; its data moves to ``--keep`` once it has stopped."""
    if "postgres" not in options.kinds:
        yield ""
        return
    screen.say("starting an embedded Postgres")
    # As root the server runs as another user, and every folder above its data is opened to it: not one the user named.
    own = Path(tempfile.mkdtemp(prefix="onceonly-pg-"))
    try:
        with EmbeddedPostgres(own / "data") as server:
            yield server.dsn
        if options.keep:
            shutil.move(own / "data", folder / "postgres")
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextmanager
def kafka(stage: Stage) -> Generator[EmbeddedKafka]:
    """A broker of our own, with its data in ``kafka``."""
    stage.screen.say("starting an embedded Kafka broker")
    with EmbeddedKafka(stage.folder / "kafka") as broker:
        yield broker
