"""Streams that are written through ``format("onceonly")``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration.streams import FileStream
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from onceonly.protocol import Sink


def addresses(*sinks: Sink) -> str:
    """Option ``to`` for sinks."""
    return sinks[0].address if len(sinks) == 1 else json.dumps([sink.address for sink in sinks])


class SourceStream(FileStream):
    """A file source and a query over it that writes through the data source."""

    def start_to(
        self,
        *sinks: Sink,
        shape: Callable[[DataFrame], DataFrame] = lambda df: df,
        mode: str = "append",
        **options: Any,
    ) -> StreamingQuery:
        given = {"to": addresses(*sinks), "checkpointLocation": str(self.checkpoint)} if sinks else {}
        writer = shape(self.read()).writeStream.format("onceonly").outputMode(mode).options(**{**given, **options})
        if self.name:
            writer = writer.queryName(self.name)
        return writer.trigger(availableNow=True).start()

    def run_to(self, *sinks: Sink, **said: Any) -> None:
        """Run until the input is used up; raises what the query died of."""
        self.start_to(*sinks, **said).awaitTermination()

    def fail_to(self, *sinks: Sink, **said: Any) -> str:
        """Run a query that must die, and return what its user sees."""
        query = self.start_to(*sinks, **said)
        try:
            query.awaitTermination(120)
        except Exception as error:  # whatever class the client makes of it: the text is what users get
            return str(error)
        raise AssertionError("the query was expected to stop, but it finished")

    @property
    def tasks(self) -> Path:
        """Where tasks leave their files."""
        [found] = self.checkpoint.with_name(f"{self.checkpoint.name}.onceonly.staging").glob("*-tasks")
        return found
