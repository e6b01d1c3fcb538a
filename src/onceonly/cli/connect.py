"""Open a command's ledger, pipeline and sinks. Reading creates nothing."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass

from onceonly.cli.output import talk
from onceonly.errors import OnceOnlyError, mask
from onceonly.errors.options import misused
from onceonly.protocol import Sink
from onceonly.protocol.registry import sink_from_address
from onceonly_checkpoints.ledger import Ledger, LedgerUnavailable, Pipeline
from onceonly_checkpoints.ledger.databases import SqliteFile
from onceonly_checkpoints.ledger.location import place_of
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import SourceKind


@dataclass(frozen=True, slots=True)
class Connection:
    """One pipeline with what is known of it.

    Attributes:
        ledger: opened; ``None`` where there is none.
        sinks: in the order of the call or of the ledger; not opened yet.
        entry: the ledger's row; ``None`` where the ledger does not know the pipeline.
    """

    pipeline: str
    ledger: Ledger | None
    sinks: tuple[Sink, ...]
    entry: Pipeline | None

    @property
    def sinks_in_words(self) -> str:
        """Ids of the sinks with their addresses."""
        return ", ".join(f"{sink.id} ({sink.address})" for sink in self.sinks)

    @property
    def certain_ledger(self) -> Ledger:
        """The ledger (E110: there is none)."""
        if self.ledger is None:
            raise no_ledger()
        return self.ledger


def reads_topics(ledger: str | None, query: str | None, sinks: Sequence[str] | None) -> bool:
    """Whether the newest epoch of a pipeline reads a topic: Spark needs jars for that."""
    with connect(ledger, query, sinks, forgiving=True) as connection:
        head = connection.ledger.head(connection.pipeline) if connection.ledger else None
    return head is not None and any(source.kind is SourceKind.KAFKA for source in head.epoch.sources)


def no_ledger() -> Exception:
    """The error of a command that cannot do without a ledger."""
    return misused(
        "No ledger was named.",
        "neither --ledger nor the variable ONCEONLY_LEDGER is set, and no --sink is a database that holds one",
        "--ledger postgresql://USER@HOST/DATABASE of the query's first PostgresSink; if it has none, --ledger "
        "CHECKPOINT.onceonly.db, the file beside a local checkpoint",
    )


def open_ledger(location: str | None, *, create: bool = False) -> Ledger:
    """Find the ledger at a URL or path; only ``create`` makes tables.

    Raises:
        ConfigurationError: E110, none was named, not an address, or nothing is there.
        LedgerUnavailable: it cannot be created.
    """
    if location is None:
        raise no_ledger()
    try:
        if not create and _missing(location):
            raise misused(
                f"There is no ledger at {location}.",
                "a wrong path, or the file was deleted",
                "give the right --ledger, or fill a new one: onceonly recover rebuild-ledger --query NAME --sink "
                "KIND:TARGET",
            )
        ledger = SqlLedger(location)
    except ValueError as error:
        raise misused(
            f"{mask(location)!r} is not the place of a ledger.",
            str(error),
            "--ledger postgresql://user@host/database, or --ledger /path/of/ledger.db",
        ) from error
    if create:
        ledger.open()
    return ledger


def naming(connection: Connection, sinks: Sequence[str]) -> str:
    """How a sink is named that was not: by its address, where the ledger knows one."""
    addresses = dict(connection.entry.sinks) if connection.entry else {}
    address = next((addresses[sink] for sink in sinks if sink in addresses), None)
    return f"name it: --sink {shlex.quote(address) if address else 'KIND:TARGET'}"


def ledger_address(location: str | None, connection: Connection) -> str:
    """Where the ledger of a pipeline lies, or will lie once it is created.

    Raises E110: nothing was said, and no sink is a database that holds one.
    """
    if connection.ledger is not None:
        return connection.ledger.address
    url = location or next((sink.ledger_url for sink in connection.sinks if sink.ledger_url), None)
    if url is None:
        raise no_ledger()
    with closing(SqlLedger(url)) as ledger:
        return ledger.address


def _missing(location: str) -> bool:
    """Whether a location is a file that is not there."""
    database = place_of(location)
    return isinstance(database, SqliteFile) and not database.path.exists()


@contextmanager
def connect(
    ledger: str | None,
    query: str | None,
    sinks: Sequence[str] | None = None,
    *,
    create: bool = False,
    forgiving: bool = False,
    without: str = "",
) -> Generator[Connection]:
    """Open one pipeline; everything is closed at the end.

    Args:
        ledger: URL or path; ``None``: the database of the first sink that has one.
        query: its name; ``None``: the only one in the ledger.
        sinks: addresses; ``None``: those that the ledger knows.
        create: create the ledger where there is none.
        forgiving: leave out sinks of the ledger that cannot be found, and say so.
        without: id of a sink of the ledger that is not even looked for.

    Raises:
        OnceOnlyError: the pipeline cannot be found, an address is wrong.
        LedgerUnavailable: the ledger cannot be read.
    """
    with ExitStack() as stack:
        handles = [sink_from_address(address, ledger) for address in sinks or ()]
        for sink in handles:
            stack.callback(sink.close)
        opened = _ledger_for(ledger, handles, create=create)
        if opened is not None:
            stack.callback(opened.close)
        entry = choose(opened, query, named=bool(handles))
        if not handles and entry is not None:
            handles = list(_sinks_of(entry, ledger, forgiving=forgiving, without=without))
            for sink in handles:
                stack.callback(sink.close)
        name = query or (entry.name if entry else "")
        yield Connection(name, opened, tuple(handles), entry)


@contextmanager
def one_sink(connection: Connection, sink: str, ledger: str | None) -> Generator[Sink | None]:
    """One sink of a pipeline by its id, not opened yet; ``None`` where it cannot be found from here."""
    with ExitStack() as stack:
        handle = None
        address = dict(connection.entry.sinks).get(sink) if connection.entry else None
        if connection.entry and address:
            with suppress(OnceOnlyError):
                handle = _sink_of(connection.entry, sink, address, ledger)
                stack.callback(handle.close)
        yield handle


def _ledger_for(location: str | None, sinks: Sequence[Sink], *, create: bool) -> Ledger | None:
    if location is None and not sinks:
        raise no_ledger()
    if location is None:
        return _ledger_in_sink(sinks, create=create)
    if sinks and not create and _missing(location):
        talk(f"There is no ledger at {location}; continuing with the sinks alone.")
        return None
    return open_ledger(location, create=create)


def _ledger_in_sink(sinks: Sequence[Sink], *, create: bool) -> Ledger | None:
    """The ledger in the database of the first sink that is one."""
    url = next((sink.ledger_url for sink in sinks if sink.ledger_url), None)
    if url is None:
        return None
    ledger = open_ledger(url, create=create)
    try:
        ledger.pipelines()
    except LedgerUnavailable as error:
        ledger.close()
        talk(f"No ledger next to the sink: {mask(str(error))}.")
        return None
    return ledger


def choose(ledger: Ledger | None, query: str | None, *, named: bool) -> Pipeline | None:
    """The pipeline that is meant.

    Args:
        ledger: where to look.
        query: its name, or ``None`` for the only one there is.
        named: the caller has the sinks already, so that the ledger need not know the pipeline.

    Raises:
        ConfigurationError: E110, none or several could be meant.
    """
    pipelines = _recorded_pipelines(ledger, forgiving=named and query is not None)
    names = ", ".join(entry.name for entry in pipelines) or "none"
    if query is None and len(pipelines) == 1:
        return pipelines[0]
    if query is None:
        raise misused(
            "Which pipeline?",
            f"the ledger knows: {names}" if ledger else "without a ledger the pipeline must be named",
            "--query NAME",
        )
    entry = next((pipeline for pipeline in pipelines if pipeline.name == query), None)
    if entry is None and not named:
        raise misused(
            f'The ledger does not know a pipeline "{query}".',
            f"it knows: {names}",
            "check the name, or name its sinks: --sink KIND:TARGET",
        )
    return entry


def _recorded_pipelines(ledger: Ledger | None, *, forgiving: bool) -> Sequence[Pipeline]:
    try:
        return ledger.pipelines() if ledger else ()
    except LedgerUnavailable:
        if not forgiving:
            raise
        return ()


def _sinks_of(entry: Pipeline, ledger: str | None, *, forgiving: bool, without: str) -> Iterator[Sink]:
    for sink, address in entry.sinks:
        if sink == without:
            continue
        try:
            yield _sink_of(entry, sink, address, ledger)
        except OnceOnlyError as error:
            if not forgiving:
                raise
            talk(f"{sink} cannot be found ({error.what}); continuing with the ledger alone")


def _sink_of(entry: Pipeline, sink: str, address: str, ledger: str | None) -> Sink:
    handle = sink_from_address(address, ledger)
    if handle.id != sink:
        handle.close()
        arguments = shlex.quote(entry.name) + (f" --ledger {shlex.quote(ledger)}" if ledger else "")
        raise misused(
            f"{address} leads to a sink called {handle.id}, which {entry.name} calls {sink}.",
            "the sink has another id= than the one of its address",
            f"name it with its id: --sink KIND:TARGET (see onceonly status {arguments})",
        )
    return handle


def ids_and_addresses(
    name: str, sink_options: Sequence[str], ledger: str | None
) -> tuple[tuple[str, ...], list[str] | None]:
    """Which values of ``--sink`` are ids of the pipeline's sinks, and which are addresses."""
    if ledger is None or not sink_options:
        return (), list(sink_options) or None
    with closing(open_ledger(ledger)) as opened:
        known_ids = {id_ for entry in opened.pipelines() if entry.name == name for id_, _ in entry.sinks}
    named = tuple(value for value in sink_options if value in known_ids or value.rpartition("@")[0] in known_ids)
    return named, [value for value in sink_options if value not in named] or None
