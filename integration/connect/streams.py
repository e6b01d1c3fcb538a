"""A file source on Spark Connect and the query over it, written by ``onceonly.start``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil
from integration.streams import FileStream
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import onceonly
from onceonly import exactly_once
from onceonly.errors import Refused
from onceonly.protocol import Sink
from onceonly_lab.servers.connect import ConnectServer

PATIENCE_S = 120.0

_SLOW = "Python worker failed to connect back"
_TRIES = 3


def patiently(begin: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query again whose worker took too long to come up: Spark gives it ten seconds, on a busy machine too."""
    for _ in range(_TRIES):
        try:
            return begin()
        except PySparkException as error:
            if _SLOW not in str(error):
                raise
    return begin()


def until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what()}"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for has, too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def revived(server: ConnectServer) -> None:
    """Wait until a server is gone that was struck, and start it again."""
    until(lambda: gone(server.pid), lambda: "the server's end")
    server.kill()
    server.start()


def same(df: DataFrame) -> DataFrame:
    return df


class ConnectStream(FileStream):
    """As ``FileStream``; the callback, and so sinks and options, go to the server."""

    def begin(
        self, *sinks: Sink, shape: Callable[[DataFrame], DataFrame] = same, mode: str = "append", **options: Any
    ) -> StreamingQuery:
        """Start the query by ``onceonly.start``."""
        name, place = self.name or "orders", str(self.checkpoint)

        def begin() -> StreamingQuery:
            writer = shape(self.read()).writeStream.outputMode(mode).trigger(availableNow=True)
            return onceonly.start(writer, exactly_once(*sinks, name=name, checkpoint=place, **options))

        return patiently(begin)

    def start(self, *given: Any, **options: Any) -> StreamingQuery:
        """Start the query by ``foreachBatch``."""
        return patiently(lambda: super(ConnectStream, self).start(*given, **options))

    def write(self, *sinks: Sink, **options: Any) -> None:
        """Run until the input is used up; raises what the query died of."""
        self.begin(*sinks, **options).awaitTermination()

    def refused(self, *sinks: Sink, **options: Any) -> Refused:
        """Run a query that must be refused once it runs, and return what its user is told."""
        query = self.begin(*sinks, **options)
        return refusal_of(query)


def refusal_of(query: StreamingQuery) -> Refused:
    """What a query was refused with."""
    try:
        query.awaitTermination(60)
    except Exception as error:  # whatever class the client makes of it: the text is what users get
        if found := onceonly.errors.refusal(error):
            return found
        raise
    raise AssertionError("the query was expected to stop, but it finished")
