"""Open a command's ledger, pipeline and sinks. Reading creates nothing."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass

from onceonly.cli.output import talk
from onceonly.errors import OnceOnlyError, mask, refuse
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
        pipeline: its name.
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
        """The ledger.

        Raises:
            ConfigurationError: E110, there is none.
        """
        if self.ledger is None:
            raise no_ledger()
        return self.ledger


def reads_topics(ledger: str | None, query: str | None, sinks: Sequence[str] | None) -> bool:
    """Whether the newest epoch of a pipeline reads a topic: Spark needs jars for that."""
    with place(ledger, query, sinks, forgiving=True) as here:
        head = here.ledger.head(here.pipeline) if here.ledger else None
    return head is not None and any(source.kind is SourceKind.KAFKA for source in head.epoch.sources)


def no_ledger() -> Exception:
    """The error of a command that cannot do without a ledger."""
    return refuse(
        "E110",
        problem="No ledger was named.",
        cause="neither --ledger nor the variable ONCEONLY_LEDGER is set, and no --sink is a database that holds one",
        next="--ledger URL_OR_PATH; beside a local checkpoint it is the file CHECKPOINT.onceonly.db",
    )


def open_ledger(location: str, *, create: bool = False) -> Ledger:
    """Find the ledger at a URL or path; only ``create`` makes tables.

    Raises:
        ConfigurationError: E110, not an address, or nothing is there.
        LedgerUnavailable: it cannot be created.
    """
    try:
        if not create and _missing(location):
            raise _no_such_ledger(location)
        ledger = SqlLedger(location)
    except ValueError as error:
        raise refuse(
            "E110",
            problem=f"{mask(location)!r} is not the place of a ledger.",
            cause=str(error),
            next="--ledger postgresql://user@host/database, or --ledger /path/of/ledger.db",
        ) from error
    if create:
        ledger.open()
    return ledger


def naming(here: Connection, sinks: Sequence[str]) -> str:
    """How a sink is named that was not: by its address, where the ledger knows one."""
    known = dict(here.entry.sinks) if here.entry else {}
    address = next((known[sink] for sink in sinks if sink in known), None)
    return f"name it: --sink {shlex.quote(address) if address else 'KIND:TARGET'}"


def ledger_address(location: str | None, here: Connection) -> str:
    """Where the ledger of a pipeline lies, or will lie once it is created.

    Args:
        location: what was said of it, if anything.
        here: the pipeline.

    Raises:
        ConfigurationError: E110, nowhere: nothing was said, and no sink is a database that holds one.
    """
    if here.ledger is not None:
        return here.ledger.address
    found = location or next((sink.ledger_url for sink in here.sinks if sink.ledger_url), None)
    if found is None:
        raise no_ledger()
    with closing(SqlLedger(found)) as ledger:
        return ledger.address


def _missing(location: str) -> bool:
    """Whether a location is a file that is not there."""
    found = place_of(location)
    return isinstance(found, SqliteFile) and not found.path.exists()


def _no_such_ledger(location: str) -> Exception:
    return refuse(
        "E110",
        problem=f"There is no ledger at {location}.",
        cause="a wrong path, or the file was deleted",
        next="give the right --ledger, or fill a new one: onceonly ledger rebuild --query NAME --sink KIND:TARGET",
    )


@contextmanager
def place(
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
        found = [sink_from_address(address, ledger) for address in sinks or ()]
        for sink in found:
            stack.callback(sink.close)
        opened = _ledger_for(ledger, found, create=create)
        if opened is not None:
            stack.callback(opened.close)
        entry = choose(opened, query, named=bool(found))
        if not found and entry is not None:
            found = list(_sinks_of(entry, ledger, forgiving=forgiving, without=without))
            for sink in found:
                stack.callback(sink.close)
        name = query or (entry.name if entry else "")
        yield Connection(name, opened, tuple(found), entry)


@contextmanager
def one_sink(here: Connection, sink: str, ledger: str | None) -> Generator[Sink | None]:
    """One sink of a pipeline by its id, not opened yet; ``None`` where it cannot be found from here."""
    with ExitStack() as stack:
        found = None
        address = dict(here.entry.sinks).get(sink) if here.entry else None
        if here.entry and address:
            with suppress(OnceOnlyError):
                found = _sink_of(here.entry, sink, address, ledger)
                stack.callback(found.close)
        yield found


def _ledger_for(location: str | None, sinks: Sequence[Sink], *, create: bool) -> Ledger | None:
    if location is None and not sinks:
        raise no_ledger()
    if location is None:
        return _beside(sinks, create=create)
    if sinks and not create and _missing(location):
        talk(f"There is no ledger at {location}; going on with the sinks alone.")
        return None
    return open_ledger(location, create=create)


def _beside(sinks: Sequence[Sink], *, create: bool) -> Ledger | None:
    """The ledger in the database of the first sink that is one."""
    url = next((sink.ledger_url for sink in sinks if sink.ledger_url), None)
    if url is None:
        return None
    ledger = open_ledger(url, create=create)
    try:
        ledger.pipelines()
    except LedgerUnavailable as error:
        ledger.close()
        talk(f"No ledger beside the sink: {mask(str(error))}.")
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
    known = _known(ledger, forgiving=named and query is not None)
    names = ", ".join(entry.name for entry in known) or "none"
    if query is None and len(known) == 1:
        return known[0]
    if query is None:
        raise refuse(
            "E110",
            problem="Which pipeline?",
            cause=f"the ledger knows: {names}" if ledger else "without a ledger the pipeline must be named",
            next="--query NAME",
        )
    entry = next((one for one in known if one.name == query), None)
    if entry is None and not named:
        raise refuse(
            "E110",
            problem=f'The ledger does not know a pipeline "{query}".',
            cause=f"it knows: {names}",
            next="check the name, or name its sinks: --sink KIND:TARGET",
        )
    return entry


def _known(ledger: Ledger | None, *, forgiving: bool) -> Sequence[Pipeline]:
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
            talk(f"{sink} cannot be found ({error.what}); going on with what the ledger knows")


def _sink_of(entry: Pipeline, sink: str, address: str, ledger: str | None) -> Sink:
    found = sink_from_address(address, ledger)
    if found.id != sink:
        found.close()
        known = shlex.quote(entry.name) + (f" --ledger {shlex.quote(ledger)}" if ledger else "")
        raise refuse(
            "E110",
            problem=f"{address} leads to a sink called {found.id}, which {entry.name} calls {sink}.",
            cause="the sink was given another id= than the one its address stands for",
            next=f"name it with its id: --sink KIND:TARGET (see onceonly queries show {known})",
        )
    return found
