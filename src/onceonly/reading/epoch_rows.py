"""Read sinks as of one epoch that all hold, or their changes."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from onceonly.errors import OnceOnlyError
from onceonly.errors.options import checks_arguments, misused
from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.capabilities import EpochExpired, NotVersioned
from onceonly.protocol.registry import sink_from_address
from onceonly.reading import as_of
from onceonly.reading.points import ReadPoint, opened, read_point
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.ledger import Ledger, LedgerPlace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

At: TypeAlias = ReadPoint | int | Literal["latest"]
"""A read point, the number of an epoch, or the newest that all sinks hold."""

Since: TypeAlias = ReadPoint | int | None

_TRIES, _WAIT_S = 50, 0.1
"""A sink that shows only its newest rows may be past the point. Until its epoch is sealed, take the point anew."""


@overload
def read_at(
    pipeline: str, at: At = "latest", sink: None = None, *, ledger: LedgerPlace, spark: None = None, since: Since = None
) -> dict[str, pa.Table]: ...
@overload
def read_at(
    pipeline: str,
    at: At = "latest",
    sink: None = None,
    *,
    ledger: LedgerPlace,
    spark: SparkSession,
    since: Since = None,
) -> dict[str, DataFrame]: ...
@overload
def read_at(
    pipeline: str, at: At, sink: str | Sink, *, ledger: LedgerPlace, spark: None = None, since: Since = None
) -> pa.Table: ...
@overload
def read_at(
    pipeline: str, at: At, sink: str | Sink, *, ledger: LedgerPlace, spark: SparkSession, since: Since = None
) -> DataFrame: ...
@checks_arguments
def read_at(
    pipeline: str,
    at: At = "latest",
    sink: str | Sink | None = None,
    *,
    ledger: LedgerPlace,
    spark: SparkSession | None = None,
    since: Since = None,
) -> Any:
    """Read the sinks of a pipeline as of one epoch: the rows of it and all before it, none of later ones.

    Delta tables are read at the version of the epoch. Topics are read up to its offsets (columns ``topic``,
    ``partition``, ``offset``, ``timestamp``, ``key``, ``value``). Postgres tables are read by their epoch column or
    their history. Rows from before the pipeline belong to every epoch.

    Args:
        pipeline: name.
        at: the epoch. For several reads, take a :class:`onceonly.reading.ReadPoint` once and pass it to each.
        sink: id, or a sink of its own on the target if its address lacks a secret. Default: all sinks.
        ledger: of the pipeline: URL, path, or an open one.
        spark: session that reads the rows lazily. Default: read into this process.
        since: leaves out rows of this epoch and of all before it.

    Returns:
        A DataFrame with ``spark``, else an Arrow table. Without ``sink``, one by each sink's id.

    Raises:
        ConfigurationError: E110, the ledger has no such pipeline, epoch or sink.
        IdentityError: E243, some rows are gone. E244, a sink cannot be read as of an epoch. E245, no such epoch is in
            all of its sinks yet.
        DestinationError: a destination does not answer.
        LedgerUnavailable: the ledger cannot be read.
    """
    with opened(ledger) as open_ledger:
        question = _Question(open_ledger, ledger, pipeline, spark)
        for left in reversed(range(_TRIES)):
            try:
                return question.answer(question.point(at), question.point(since) if since else None, sink)
            except OnceOnlyError as error:
                reason = error.__cause__
                passing = at == "latest" and isinstance(reason, NotVersioned) and reason.newest
                if not (passing and left):
                    raise
                time.sleep(_WAIT_S)
    raise AssertionError("the last attempt returns or raises")


@overload
def changes(
    pipeline: str,
    sink: str | Sink,
    *,
    after: ReadPoint | int,
    upto: At = "latest",
    ledger: LedgerPlace,
    spark: None = None,
) -> pa.Table: ...
@overload
def changes(
    pipeline: str,
    sink: str | Sink,
    *,
    after: ReadPoint | int,
    upto: At = "latest",
    ledger: LedgerPlace,
    spark: SparkSession,
) -> DataFrame: ...
@checks_arguments
def changes(
    pipeline: str,
    sink: str | Sink,
    *,
    after: ReadPoint | int,
    upto: At = "latest",
    ledger: LedgerPlace,
    spark: SparkSession | None = None,
) -> Any:
    """Read the changes of a table with ``key=`` as signed rows.

    Only epochs that all sinks hold are read. Each row has two more columns behind the table's: ``_epoch``, and
    ``_sign``, 1 of a row that the epoch left and -1 of one that it replaced or removed. An update is both. Changes of
    a key within one epoch are one. Added to the rows as of ``after``, they give the rows as of ``upto``. In Postgres,
    older rows than the pipeline have the number before its first epoch. Needs ``Keep(history=)`` in Postgres, the
    change data feed in Delta.

    Args:
        pipeline: name.
        sink: id, or a sink of its own on the target if its address lacks a secret.
        after: the epoch that you read last, 0 to begin with the empty table. Its point also notices a rewind.
        upto: the newest epoch to read.
        ledger: of the pipeline: URL, path, or an open one.
        spark: session for a DataFrame. The changes are read into this process first.

    Returns:
        The changes, oldest epoch first: an Arrow table, or a DataFrame with ``spark``.

    Raises:
        ConfigurationError: E110, the ledger has no such pipeline, epoch or sink, or ``after`` is past ``upto`` or is no
            position.
        IdentityError: E243, some changes are gone. E244, a sink keeps none, or another program made some. E245, no such
            epoch is in all of its sinks yet.
        DestinationError: a destination does not answer.
        LedgerUnavailable: the ledger cannot be read.
    """
    for name, position in (("after", after), ("upto", 0 if upto == "latest" else upto)):
        if not (isinstance(position, ReadPoint) or _is_number(position)):
            raise misused(
                f"{name}={position!r} is no position.",
                "a position is the number of an epoch, or its read point",
                "begin with after=0, then keep the number of the newest epoch that you read",
            )
    with opened(ledger) as open_ledger:
        question = _Question(open_ledger, ledger, pipeline, spark)
        since, point = question.point(after) if after else None, question.point(upto)
        if since and since.epoch > point.epoch:
            raise misused(
                f"after={since.epoch} is past epoch {point.epoch}, the last to read.",
                "the consumer's position belongs to another pipeline or ledger, or upto= is too low",
                f"see the newest epoch: {as_of.point_command(pipeline, open_ledger.address)}",
            )
        return question.changes(point, since, sink)


def _is_number(position: object) -> bool:
    return isinstance(position, int) and not isinstance(position, bool) and position >= 0


@dataclass(frozen=True, slots=True)
class _Question:
    """Arguments of a read.

    ``ledger_argument`` is the user's, secrets included. Without ``spark``, rows are read into this process.
    """

    ledger: Ledger
    ledger_argument: LedgerPlace
    pipeline: str
    spark: SparkSession | None

    def point(self, at: At) -> ReadPoint:
        """Return the read point (E245), if its epoch was not taken back (E243)."""
        if not isinstance(at, ReadPoint):
            return read_point(self.pipeline, at, ledger=self.ledger)
        recorded, head = self.ledger.epochs(self.pipeline, at.epoch, at.epoch), self.ledger.head(self.pipeline)
        newest = head.epoch.number if head else 0
        # A pruned epoch is not in the ledger, and its point stays valid.
        if any(record.epoch.chain == at.chain for record in recorded) or (not recorded and newest > at.epoch):
            return at
        now = "its number has come again" if recorded else f"the ledger ends at epoch {newest}"
        gone = EpochExpired(
            f"the epoch of this point was taken back, and {now}",
            "sinks or the ledger were restored and the pipeline was rewound since the point was taken",
        )
        command = as_of.point_command(self.pipeline, self.ledger.address)
        raise as_of.gone_at(f'"{self.pipeline}"', self.pipeline, at.epoch, gone, f"take the point again: {command}")

    def answer(self, point: ReadPoint, since: ReadPoint | None, sink: str | Sink | None) -> Any:
        """Return the rows of one sink, or of each by its id."""
        if sink is not None:
            return self._rows(point, since, sink)
        return {receipt.sink: self._rows(point, since, receipt.sink) for receipt in point.receipts}

    def changes(self, point: ReadPoint, since: ReadPoint | None, sink: str | Sink) -> Any:
        """Return the signed rows of one sink."""
        with self._opened(point, since, sink, "read the whole table once by read_at(), then its changes: ") as (
            handle,
            receipt,
            earlier,
        ):
            changed = handle.read_changes(receipt, earlier)
        if self.spark is None:
            return changed
        from onceonly.spark.frames import of_arrow

        return of_arrow(self.spark, changed)

    def _rows(self, point: ReadPoint, since: ReadPoint | None, sink: str | Sink) -> Any:
        with self._opened(point, since, sink) as (handle, receipt, earlier):
            if self.spark is not None:
                return handle.frame_at(self.spark, receipt, earlier)
            return handle.read_at(receipt, earlier)

    @contextmanager
    def _opened(
        self, point: ReadPoint, since: ReadPoint | None, sink: str | Sink, way_out: str = ""
    ) -> Generator[tuple[ReadsRows, Receipt, Receipt | None]]:
        """Open a sink to read, with its receipts of both points. ``way_out`` precedes the remedy of E243."""
        id_ = sink if isinstance(sink, str) else sink.id
        receipt = as_of.receipt_of(point.receipts, id_, self.pipeline, point.epoch)
        # A sink that joined since then has all its rows from later epochs.
        earlier = next((candidate for candidate in since.receipts if candidate.sink == id_), None) if since else None
        with ExitStack() as stack:
            target = sink if isinstance(sink, Sink) else stack.enter_context(closing(self._sink_of_id(sink)))
            handle = stack.enter_context(as_of.handle(target, self.pipeline))
            with as_of.refusing(
                handle.id, self.pipeline, point.epoch, self.ledger.address, lambda: way_out + self._way_out(handle)
            ):
                if not isinstance(handle, ReadsRows):
                    raise NotVersioned
                yield handle, receipt, earlier

    def _sink_of_id(self, sink: str) -> Sink:
        addresses = dict(
            next((pipeline.sinks for pipeline in self.ledger.pipelines() if pipeline.name == self.pipeline), ())
        )
        if sink not in addresses:
            raise misused(
                f'The ledger knows no address of {sink} any more, a sink of "{self.pipeline}".',
                "the sink was dropped from the pipeline, or the ledger was created again",
                f"read_at(..., sink=...) with a sink of its own on the target, called {sink}",
            )
        place = os.fspath(self.ledger_argument) if isinstance(self.ledger_argument, str | os.PathLike) else None
        return sink_from_address(addresses[sink], place)

    def _way_out(self, sink: Sink) -> str:
        """Name the oldest readable epoch, or if not even the newest is readable, the command that shows why."""
        newest = read_point(self.pipeline, ledger=self.ledger).epoch
        if not self._readable(sink, newest):
            named = f"{shlex.quote(self.pipeline)} --ledger {shlex.quote(self.ledger.address)}"
            return f"not even its newest epoch is there: see what happened to it: onceonly audit --query {named}"
        low, high = 0, newest  # low is not readable, high is: what ages out, does so oldest first
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._readable(sink, middle) else (middle, high)
        return f"read as of epoch {high}, the oldest left, or a later one: " + as_of.point_command(
            self.pipeline, self.ledger.address, high
        )

    def _readable(self, sink: Sink, epoch: int) -> bool:
        records = self.ledger.epochs(self.pipeline, epoch, epoch)
        receipts = [receipt for record in records for receipt in record.receipts if receipt.sink == sink.id]
        if not receipts or not isinstance(sink, ReadsRows):
            return False
        try:
            sink.check_at(receipts[0])
        except (EpochExpired, NotVersioned):
            return False
        return True
