"""``read_point``: sealed epochs for readers of several sinks."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import checks_arguments, misused
from onceonly.machine.admission import OPTIONS
from onceonly.machine.event_time import text
from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.capabilities import NotVersioned
from onceonly.reading import as_of
from onceonly.runtime.runs import process
from onceonly_checkpoints.epoch import Columns, Epoch, EpochRecord, Receipt
from onceonly_checkpoints.epoch_time import now_ms
from onceonly_checkpoints.ledger import Ledger, LedgerPlace, LedgerUnavailable, NoLedger, Pin, Pipeline
from onceonly_checkpoints.model import one_line, position_text, table

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["Dataset", "DatasetWriter", "ReadPoint", "datasets", "history", "read_point"]


# ---- Read points: the position of each sink when it held one epoch and no later one.
#
# Sinks commit one after the other, so a reader of two of them can see an epoch in one that is not yet in the other. A
# read point names a place in each at which they agree. Idea: the collection-wide consistent cut of Materialize and
# Differential Dataflow, at the grain of epochs.

_WINDOW = 64
"""How many records are read at a time on the way back to the newest sealed one."""


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """One epoch as every sink holds it.

    Attributes:
        chain: of the epoch. After a rewind, other rows get the same number, but another chain.
        receipts: one per sink, in the order of the call.
        ledger: its address without secrets, for commands.
    """

    pipeline: str
    epoch: int
    chain: str
    receipts: tuple[Receipt, ...]
    ledger: str = field(default="", compare=False)

    def __getitem__(self, sink: str) -> Receipt:
        """Return the receipt of a sink: ``point["delta:orders"].at("version")`` is the version to read the table at.

        Raises:
            KeyError: the epoch did not go to such a sink.
        """
        return {receipt.sink: receipt for receipt in self.receipts}[sink]

    def sql(self, sink: Sink) -> str:
        """Return the SQL statement that reads a sink as of this epoch.

        A Postgres table is read by its epoch column or its history, a Delta table by ``VERSION AS OF``. ``sink`` is one
        of its own on the target, not one that a query writes with. It is opened and closed.

        Raises:
            ConfigurationError: E110, the epoch did not go to such a sink.
            IdentityError: E243, some rows are gone. E244, the sink cannot be read as of an epoch.
            DestinationError: the target does not answer.
        """
        receipt = as_of.receipt_of(self.receipts, sink.id, self.pipeline, self.epoch)
        with (
            as_of.handle(sink, self.pipeline) as opened,
            as_of.refusing(sink.id, self.pipeline, self.epoch, self.ledger),
        ):
            if not isinstance(opened, ReadsRows):
                raise NotVersioned
            return opened.select_at(receipt)

    def __repr__(self) -> str:
        return one_line(f"{self.pipeline} epoch {self.epoch}: {', '.join(receipt.sink for receipt in self.receipts)}")

    def _repr_html_(self) -> str:
        rows = [(receipt.sink, receipt.rows, position_text(receipt.position)) for receipt in self.receipts]
        return table(("sink", "rows", "position"), rows, title=f"{self.pipeline}, epoch {self.epoch}")


@checks_arguments
def read_point(pipeline: str, epoch: int | Literal["latest"] = "latest", *, ledger: LedgerPlace) -> ReadPoint:
    """Find the position in each sink as of one epoch. Default: the newest that all its sinks have confirmed.

    Read a Delta table at ``point[sink].at("version")``. Read a Postgres table with an epoch column up to
    ``WHERE _epoch <= point.epoch``, and a Kafka topic up to the offsets of the receipt. In SQL, a ledger in Postgres
    has the view ``onceonly.read_point``. ``ledger`` is a URL, a path, or an open one.

    Raises:
        ConfigurationError: E110, the ledger has no such pipeline or epoch.
        IdentityError: E245, not every sink of the epoch has confirmed it.
        LedgerUnavailable: the ledger cannot be read.
    """
    with opened(ledger) as open_ledger:
        try:
            record = _newest(open_ledger, pipeline) if epoch == "latest" else _recorded(open_ledger, pipeline, epoch)
        except NoLedger as error:
            raise _none_recorded(open_ledger, pipeline, epoch, str(error)) from error
        if record is None:
            raise _none_sealed(open_ledger, pipeline, epoch)
        return ReadPoint(pipeline, record.epoch.number, record.epoch.chain, record.receipts, open_ledger.address)


def _none_recorded(ledger: Ledger, pipeline: str, epoch: int | Literal["latest"], why: str) -> OnceOnlyError:
    return refuse(
        "E245",
        pipeline=pipeline,
        wanted=_epoch_text(epoch),
        lacking=f"{ledger.address} is there, and {why}",
        because="the query has not committed its first epoch, or its ledger is another one",
        next="read again once the query has written; or name the ledger that its log names when it starts",
    )


def _epoch_text(epoch: int | Literal["latest"]) -> str:
    return "any epoch" if epoch == "latest" else f"epoch {epoch}"


def _none_sealed(ledger: Ledger, pipeline: str, epoch: int | Literal["latest"]) -> OnceOnlyError:
    """Error with the reason why there is no read point."""
    address, head = shlex.quote(ledger.address), ledger.head(pipeline)
    on_record = ledger.epochs(pipeline, epoch, epoch) if epoch != "latest" else [head] if head else []
    if not on_record and (epoch != "latest" or all(entry.name != pipeline for entry in ledger.pipelines())):
        missing_epoch = "no epoch" if epoch == "latest" else f"no epoch {epoch}"
        return misused(
            f'Pipeline "{pipeline}" has {missing_epoch} on record.',
            "another name or number, another ledger, or an epoch that is not committed yet",
            f"onceonly epochs list --query {shlex.quote(pipeline)} --ledger {address}",
        )
    lacking = f"epoch {on_record[-1].epoch.number} lacks {', '.join(on_record[-1].lacking)}" if on_record else ""
    return refuse(
        "E245",
        pipeline=pipeline,
        wanted=_epoch_text(epoch),
        lacking=lacking or "none is on record",
        next="read again in a moment; if no driver is running, bring the epoch to its end: "
        f"onceonly recover resolve --query {shlex.quote(pipeline)} --ledger {address}",
    )


@contextmanager
def opened(ledger: LedgerPlace) -> Generator[Ledger]:
    """Open a ledger by URL or path, and close it at the end. An open one stays open."""
    if not isinstance(ledger, str | os.PathLike):
        yield ledger
        return
    from onceonly_checkpoints.ledger.sql import SqlLedger

    with closing(SqlLedger(os.fspath(ledger))) as sql_ledger:
        yield sql_ledger


def _recorded(ledger: Ledger, pipeline: str, epoch: int) -> EpochRecord | None:
    return next((record for record in ledger.epochs(pipeline, epoch, epoch) if not record.lacking), None)


def _newest(ledger: Ledger, pipeline: str) -> EpochRecord | None:
    head = ledger.head(pipeline)
    if head is None or not head.lacking:
        return head
    last = head.epoch.number - 1
    while last > 0:
        records = ledger.epochs(pipeline, max(1, last - _WINDOW + 1), last)
        sealed = [record for record in records if not record.lacking]
        if sealed:
            return sealed[-1]
        last -= _WINDOW
    return None


# ---- The history of a pipeline as a table to analyse.


@checks_arguments
def history(ledger: LedgerPlace, query: str | None = None) -> pd.DataFrame:
    """Committed epochs of a pipeline as a pandas DataFrame. A row each, oldest first.

    The rows come from the ledger, which is an index: ``onceonly audit`` recounts the sinks. Pruned epochs are missing.
    Needs pandas, the extra ``notebook``. ``attrs`` holds ``pipeline`` and ``ledger``.

    | column | type | what |
    |---|---|---|
    | ``epoch`` | int64 | its number, from 1 |
    | ``rows`` | int64 | rows that were written |
    | ``batch`` | Int64 | Spark's number of the batch, NA for an adoption |
    | ``start``, ``end`` | dict | offsets by source id: parsed if they are JSON, ``None`` before the first |
    | ``planned`` | datetime64[ms, UTC] | when Spark planned the batch, NaT for an adoption |
    | ``watermark`` | datetime64[ms, UTC] | event-time watermark in force, NaT without one |
    | ``recorded`` | datetime64[ms, UTC] | when the ledger took it |
    | ``seconds`` | float64 | all phases together |
    | ``phases`` | dict | seconds by phase: ``prepare``, ``commit``, ... |
    | ``sinks`` | list of str | ids of the sinks that have confirmed the epoch |
    | ``receipts`` | list of dict | what each of them answered: ``sink``, ``rows``, ``position``, ``identity``, ... |
    | ``digest`` | str | row count and fingerprint of the rows, ``rows:high:low`` |
    | ``chain`` | str | hash over the epoch and all before it |
    | ``generation`` | int64 | whose opening wrote it |
    | ``owner`` | str | ``user@host:pid application``, empty if it was not noted |
    | ``files`` | int64 | input files, of a file source |
    | ``adoption`` | str | what an operator accepted by this epoch, ``None`` for an ordinary one |

    ``ledger`` is a URL, a path, or an open one. ``query`` is the pipeline, by default the only one in the ledger.

    Raises:
        ConfigurationError: E108, pandas is not installed. E110, none or several pipelines match.
        LedgerUnavailable: the ledger cannot be read.
    """
    try:
        import pandas as pd
    except ImportError as missing:
        raise refuse("E108", what="history()", package="pandas", extra="notebook") from missing
    with opened(ledger) as open_ledger:
        name = _choose_pipeline(open_ledger, query)
        records, address = open_ledger.epochs(name), open_ledger.address
    table: pd.DataFrame = pd.DataFrame(
        {column: _series(kind, map(value, records)) for column, (kind, value) in _COLUMNS.items()}
    )
    table.attrs = {"pipeline": name, "ledger": address}
    return table


def _choose_pipeline(ledger: Ledger, query: str | None) -> str:
    names = [entry.name for entry in ledger.pipelines()]
    if query in names:
        return str(query)
    if query is None and len(names) == 1:
        return names[0]
    raise misused(
        "Which pipeline?" if query is None else f'The ledger does not know a pipeline "{query}".',
        f"the ledger knows: {', '.join(names) or 'none'}",
        f"history(ledger, NAME), with a name of: onceonly status --ledger {shlex.quote(ledger.address)}",
    )


def _series(kind: str, values: Iterable[Any]) -> pd.Series[Any]:
    import pandas as pd

    made: pd.Series[Any] = pd.Series(list(values), dtype="object" if kind == _TIME else kind)
    return pd.to_datetime(made, unit="ms", utc=True).astype(_TIME) if kind == _TIME else made


_TIME: Final = "datetime64[ms, UTC]"

_COLUMNS: Mapping[str, tuple[str, Callable[[EpochRecord], Any]]] = {
    "epoch": ("int64", lambda record: record.epoch.number),
    "rows": ("int64", lambda record: record.epoch.rows),
    "batch": ("Int64", lambda record: record.epoch.lineage.batch_id if record.epoch.lineage else None),
    "start": ("object", lambda record: record.epoch.written.start.parsed),
    "end": ("object", lambda record: record.epoch.written.end.parsed),
    "planned": (_TIME, lambda record: record.epoch.lineage.batch_timestamp_ms if record.epoch.lineage else None),
    "watermark": (_TIME, lambda record: (record.epoch.lineage.watermark_ms or None) if record.epoch.lineage else None),
    "recorded": (_TIME, lambda record: record.recorded_ms or None),
    "seconds": ("float64", lambda record: sum(seconds for _, seconds in record.phases)),
    "phases": ("object", lambda record: dict(record.phases)),
    "sinks": ("object", lambda record: [each.sink for each in record.receipts if each.chain == record.epoch.chain]),
    "receipts": ("object", lambda record: [receipt.to_json() for receipt in record.receipts]),
    "digest": ("object", lambda record: record.epoch.digest.text),
    "chain": ("object", lambda record: record.epoch.chain),
    "generation": ("int64", lambda record: record.fence.generation),
    "owner": ("object", lambda record: record.fence.who),
    "files": ("int64", lambda record: len(record.files)),
    "adoption": ("object", lambda record: record.epoch.adoption.words if record.epoch.adoption else None),
}
"""Each column: its dtype, and how it is read off a record."""


# ---- Datasets: the targets of all pipelines of a ledger.


@dataclass(frozen=True, slots=True)
class DatasetWriter:
    """A sink that writes to a dataset.

    Attributes:
        pipeline: the query's name in the ledger.
        output: its side output, empty for all rows.
        first, newest: the sink's epochs in the ledger, 0 before the first.
        columns: name, type and nullability of each. Empty if no epoch in the ledger has them.
        complete_until: event time before which the pipeline's rows are committed, as text. ``None`` if not recorded.
        same_rows: other targets that get the same rows of this pipeline.
    """

    pipeline: str
    sink: str
    output: str
    first: int
    newest: int
    columns: Columns
    complete_until: str | None
    same_rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A target with the sinks that share it.

    ``target`` is its address without options and secrets.
    """

    target: str
    writers: tuple[DatasetWriter, ...]

    def to_json(self) -> dict[str, Any]:
        """Members to values, nested."""
        return asdict(self)


@checks_arguments
def datasets(ledger: LedgerPlace) -> tuple[Dataset, ...]:
    """List the targets of all pipelines of a ledger, with their writers.

    They are sorted by address. No sink is asked, so two spellings of one target are two datasets. ``ledger`` is a URL,
    a path, or an open one.

    Raises:
        LedgerUnavailable: the ledger cannot be read.
    """
    with opened(ledger) as open_ledger:
        writers = [pair for entry in open_ledger.pipelines() for pair in _dataset_writers(open_ledger, entry)]
    targets = sorted({target for target, _ in writers})
    return tuple(Dataset(target, tuple(writer for at, writer in writers if at == target)) for target in targets)


def _dataset_writers(ledger: Ledger, entry: Pipeline) -> Iterator[tuple[str, DatasetWriter]]:
    """Read one pipeline. Outputs are those of the newest batch: an operator's decision has none."""
    head = ledger.head(entry.name)
    newest = head.epoch if head else None
    records = ledger.epochs(entry.name, max(1, newest.number - _WINDOW + 1)) if newest else ()
    batch = next((record.epoch for record in reversed(records) if record.epoch.lineage), newest)
    since = newest.columns_epoch if newest else 0
    columns = {
        part.output: part.columns for record in ledger.epochs(entry.name, since, since) for part in record.epoch.columns
    }
    targets = {sink: OPTIONS.sub("", address) for sink, address in entry.sinks}
    outputs = {sink: held.name for sink in targets if batch and (held := batch.output(sink))}
    firsts = dict(newest.sinks) if newest else {}
    for sink, target in targets.items():
        output, first = outputs.get(sink, ""), firsts.get(sink, 0)
        yield (
            target,
            DatasetWriter(
                entry.name,
                sink,
                output,
                first,
                newest.number if newest and first else 0,
                columns.get(output, ()),
                _complete_until(newest),
                tuple(at for other, at in targets.items() if other != sink and outputs.get(other, "") == output),
            ),
        )


def _complete_until(epoch: Epoch | None) -> str | None:
    time = epoch.time if epoch else None
    until = time.dataset_complete_until if time else None
    return text(until, time.unit) if time and until is not None else None


# ---- Pins: keep an epoch from pruning while a reader reads it.


log = logging.getLogger(__name__)

LEASE_S = 600.0
"""For how long a pin holds that is not renewed: its reader may have died."""


@checks_arguments
@contextmanager
def pin(
    pipeline: str, at: int | Literal["latest"] = "latest", *, ledger: LedgerPlace, lease: float = LEASE_S
) -> Generator[ReadPoint]:
    """Take a read point that is not pruned while you read.

    The pin protects the ledger's records (``onceonly ledger prune``) and the history of upserts (``Keep(history=)``).
    It does not stop VACUUM or a topic's retention: ``onceonly doctor`` compares them with the longest pin. ::

        with reading.pin("orders", ledger=ledger) as point:
            orders = reading.read_at("orders", point, "delta:orders", ledger=ledger)

    ``ledger`` is a URL, a path, or an open one. The pin of a dead reader expires after ``lease`` seconds. A live reader
    renews it three times as often.

    Raises:
        ConfigurationError: E110, the ledger has no such pipeline or epoch.
        IdentityError: E245, no such epoch is in all of its sinks yet.
        LedgerUnavailable: the ledger cannot be read or written.
    """
    with opened(ledger) as open_ledger:
        open_ledger.open()
        token, began = secrets.token_hex(8), now_ms()
        point = read_point(pipeline, at, ledger=open_ledger)

        def renew() -> None:
            until = now_ms() + int(lease * 1000)
            open_ledger.pin(Pin(pipeline, token, point.epoch, process(), began, until))

        renew()
        done = threading.Event()
        keeper = threading.Thread(target=_keep, args=(renew, done, lease / 3), daemon=True)
        keeper.start()
        try:
            yield point
        finally:
            done.set()
            keeper.join()
            with suppress(LedgerUnavailable):  # then the lease ends it
                open_ledger.unpin(pipeline, token)


def _keep(renew: Callable[[], None], done: threading.Event, seconds: float) -> None:
    while not done.wait(seconds):
        try:
            renew()
        except LedgerUnavailable as error:
            log.warning("a pin was not renewed: %s", error)
