"""Validate the arguments of ``exactly_once()`` and the query's plan."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from onceonly.api.guarantee import GuaranteeInputs
from onceonly.errors import nearest, refuse
from onceonly.errors.options import at_least, checks_arguments, meaningless, misused
from onceonly.machine.facts import Adopt
from onceonly.protocol import Sink
from onceonly.protocol.values import SOURCE
from onceonly.runtime import shared_transaction
from onceonly.spark.engine import QueryHint, QueryPlan, Run
from onceonly_checkpoints.ledger import Ledger, LedgerPlace
from onceonly_checkpoints.model import SourceOffsets, canonical, shorten_list
from onceonly_checkpoints.storage import half_url, is_local, local_path

if TYPE_CHECKING:
    from onceonly.event_time.event_time_argument import EventTimeArgument
    from onceonly.lineage import OpenLineage
    from onceonly.quality.division import Division
    from onceonly.windows.windows_argument import WindowsArgument

# ---- What ``exactly_once()`` is called with: what cannot mean anything is refused by name, before a query starts.


def _check_ledger(ledger: object) -> None:
    """Refuse a value that is neither the place of a ledger nor a ledger. A class is no ledger."""
    if ledger is None or isinstance(ledger, str | os.PathLike):
        if ledger is not None and half_url(os.fspath(ledger)):
            expected = "a URL with two slashes, or the path of a SQLite file"
            raise meaningless("Storage", "ledger", os.fspath(ledger), expected)
        return
    if isinstance(ledger, type) or not isinstance(ledger, Ledger):
        expected = "a URL, the path of a SQLite file, or a Ledger that was made"
        raise meaningless("Storage", "ledger", ledger, expected)


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Reactions to a changed checkpoint, source or target. By default the query stops.

    Attributes:
        overlap: when a new or rolled-back checkpoint offers rows of recorded epochs again. ``"trim"`` writes only rows
            whose position in the source is in no epoch. It needs a plan without state over one Kafka or file source,
            and columns that ``transform=`` may drop: ``topic``, ``partition``, ``offset``, or ``file_path``.
        on_refresh: at a full refresh of a declarative pipeline, which begins again in a sibling directory of its
            checkpoint and clears no sink. ``"replace"``: the first new rows' transaction deletes the old ones from
            every sink. The source may hold fewer rows than the sinks. Readers then see a table that refills.
        adopt: when the target already holds rows that are not ours. ``"here"`` keeps them and starts after them. A
            mapping ``{source id: offset}`` gives the offsets that they contain, and the query must go on there.
        lossy_source: a source that cannot give its rows again, and so loses a batch by a crash. Refused without this.

    Raises:
        ConfigurationError: E110, an unknown value.
    """

    overlap: Literal["stop", "trim"] = "stop"
    on_refresh: Literal["stop", "replace"] = "stop"
    adopt: Literal["here"] | Mapping[str, Any] | None = None
    lossy_source: Literal["socket", "memory"] | None = None

    @property
    def adopts(self) -> Adopt:
        """``adopt`` with its offsets parsed."""
        if not isinstance(self.adopt, Mapping):
            return "here" if self.adopt else None
        texts = {source: value if isinstance(value, str) else canonical(value) for source, value in self.adopt.items()}
        return SourceOffsets.of(texts)


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where a query keeps its ledger and staged epochs.

    Attributes:
        ledger: index and history, rebuildable from the sink: an SQLAlchemy URL, a path of a SQLite file, or a
            ``Ledger``. ``None``: the sink's own database if it is one, else a SQLite file beside a local checkpoint.
        staging: where batches for several sinks are written: a directory that driver and executors share, or a URL that
            Spark and an installed driver of fsspec both reach. ``None``: beside the checkpoint. With it a single sink
            reads each epoch from files, piece by piece, so a topic takes epochs that exceed the driver's memory.
        keep_epochs: number of the newest epochs that stay staged, to restore a sink from (``onceonly recover rewind``).
            A crash between two sinks needs 1. More than 1 stages the epochs of a single sink, too.

    Raises:
        ConfigurationError: E110, no place of a ledger, or no number from 1 on. E114, files cannot lie there, or not be
            read from here.
    """

    ledger: LedgerPlace | None = None
    staging: str | os.PathLike[str] | None = None
    keep_epochs: Annotated[int, at_least(1, "a number of epochs")] = 1

    def __post_init__(self) -> None:
        _check_ledger(self.ledger)
        if self.staging is not None:
            from onceonly.runtime.staged_files import directory

            directory(os.fspath(self.staging))  # what cannot be reached from here is refused before the query starts

    @property
    def stages(self) -> bool:
        """Whether the user asks for staged epochs."""
        return self.staging is not None or self.keep_epochs > 1


DEFAULT_RECOVERY = Recovery()
DEFAULT_STORAGE = Storage()


@dataclass(frozen=True, slots=True)
class Arguments:
    """Checked arguments of a call. See :func:`onceonly.exactly_once`.

    A user cannot set ``replaying``: then the batches come from replay checkpoints and run recorded epochs again.
    ``division``, ``event_time`` and ``windows`` are objects of their rooms, which a call loads when it asks for them.
    """

    sinks: tuple[Sink, ...]
    name: str | None = None
    checkpoint: str | None = None
    transform: Callable[[Any], Any] | None = None
    division: Division | None = None
    event_time: EventTimeArgument | None = None
    windows: WindowsArgument | None = None
    version: str = ""
    recovery: Recovery = DEFAULT_RECOVERY
    storage: Storage = DEFAULT_STORAGE
    lineage: OpenLineage | None = None
    replaying: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.storage, Storage):  # pyright: ignore[reportUnnecessaryIsInstance]
            # Not its value: a text may hold a login.
            raise meaningless("exactly_once", "storage", type(self.storage).__name__, "a Storage")
        if self.lineage is not None and not hasattr(self.lineage, "deliver"):
            kind = type(self.lineage).__name__
            raise meaningless("exactly_once", "lineage", kind, 'OpenLineage("http://marquez:5000")')

    @property
    def hint(self) -> QueryHint:
        """Name and checkpoint of the query, for engines that cannot find them."""
        return QueryHint(self.name, self.checkpoint)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the sinks, in the order of the call."""
        return tuple(sink.id for sink in self.sinks)

    @property
    def stages(self) -> bool:
        """Whether epochs are staged, so that several sinks get the same bytes. For a single sink the user decides."""
        return len(self.sinks) > 1 or self.storage.stages or self.divided

    @property
    def divided(self) -> bool:
        """Whether the rows are divided: some sinks get other rows, or bad or repeated rows are separated."""
        return self.division is not None or self.windows is not None

    @property
    def of_rows(self) -> tuple[Sink, ...]:
        """Its sinks without those of ids, of window state and of late rows."""
        state = (*(self.division.state_sinks if self.division else ()), *(self.windows.sinks if self.windows else ()))
        return tuple(sink for sink in self.sinks if sink not in state)

    @property
    def of_results(self) -> tuple[Sink, ...]:
        """Its sinks of window results, or of rows where there are no windows."""
        divided = self.division.sinks if self.division else ()
        return tuple(sink for sink in self.of_rows if sink not in divided)

    @property
    def taking(self) -> tuple[Sink, ...]:
        """Its sinks of rows as they came, or of a part of them."""
        return tuple(sink for sink in self.of_rows if not self.windows or sink not in self.of_results)

    @property
    def adding(self) -> tuple[str, ...]:
        """Ids of the append-only sinks."""
        return tuple(sink.id for sink in self.of_rows if sink.capabilities.append_only)

    @property
    def contents(self) -> dict[str, str]:
        """Contents of each sink that holds something else than good rows, in words, by sink id."""
        return (self.division.contents if self.division else {}) | (self.windows.contents if self.windows else {})

    @property
    def order(self) -> tuple[str, str, bool]:
        """Id and order of a sink whose rows are ordered, empty for none, and whether only those of a key are."""
        ordering = [sink for sink in self.sinks if sink.capabilities.order]
        # An output may make its key of other columns.
        reshaped = self.division.reshaped if self.division else ()
        keyed = all(sink.capabilities.records and sink not in reshaped for sink in ordering)
        return next(((sink.id, sink.capabilities.order, keyed) for sink in ordering), ("", "", False))

    @property
    def one_by_one(self) -> str:
        """Id of the sink without transactions, which then is the only sink. Empty for none."""
        return next((sink.id for sink in self.sinks if not sink.capabilities.transactional), "")

    @property
    def chosen(self) -> GuaranteeInputs:
        """The arguments that affect the guarantee."""
        outputs, expected, once = self.division.promise(self.taking) if self.division else ({}, "", "")
        checks = self.division.checks if self.division else ()
        outputs |= self.windows.promise(self.of_results) if self.windows else {}
        return GuaranteeInputs(
            adopt=self.recovery.adopts,
            transform=self.transform is not None,
            staged=self.stages,
            on_refresh=self.recovery.on_refresh,
            outputs=outputs,
            checked=", ".join(f"{check.name} ({check.sql})" for check in checks),
            expected=expected,
            once=once,
            event_time=self.event_time.words if self.event_time else "",
        )

    def check_plan(self, plan: QueryPlan, query: str, nondeterministic: str | None) -> None:
        """Refuse a plan, before or after the query starts, as :func:`refuse_plan`.

        Raises:
            ConfigurationError: as :func:`refuse_plan`. E131, the plan does not show which times are still to come.
        """
        refuse_plan(plan, query, self.recovery.lossy_source, nondeterministic, self.one_by_one)
        if self.event_time:
            self.event_time.check_plan(plan, query)

    def check_order(self, query: str, columns: Mapping[str, str], lost: str) -> None:
        """Refuse rows that cannot be ordered as a sink asks.

        ``columns`` has their types by name. ``lost`` says why they have no order of their source, if it is asked for.
        Raises E138: no such column. E148: the plan or the source loses the order of the source.
        """
        sink, order, _ = self.order
        if lost:
            raise refuse("E148", query=query, sink=sink, problem=lost)
        if not order or order == SOURCE:
            return
        kind, cause = columns.get(order), "order= names another column, or transform= dropped it"
        problem = f"the rows have no column {order} for order={nearest([order], columns)}" if kind is None else ""
        if kind and _WITHOUT_ORDER.search(kind):
            problem, cause = f"column {order} for order= is of type {kind}", "values of this type are in no order"
        if problem:
            remedy = f"name one of these, or keep it in transform=: {shorten_list([*columns])}"
            raise refuse("E138", query=query, sink=sink, problem=problem, cause=cause, next=remedy)

    def shaped(self, df: Any) -> Any:
        """Apply ``transform=`` to a DataFrame."""
        return self.transform(df) if self.transform else df


def check_transform(transform: object) -> None:
    """Refuse a ``transform=`` that cannot be called with a batch (E110)."""
    if transform is not None and (not callable(transform) or isinstance(transform, type)):
        raise meaningless("exactly_once", "transform", transform, "a function from DataFrame to DataFrame")


def check_name(name: str | None) -> None:
    """Refuse a blank name (E110)."""
    if name is not None and not name.strip():
        raise meaningless("exactly_once", "name", name, "a name that is not blank")


def version(label: str | None) -> str:
    """The user's name for the running code. ``None`` takes it from the environment.

    Raises E110: it is not one line of text.
    """
    chosen: Any = os.environ.get(VERSION, "") if label is None else label
    if not isinstance(chosen, str) or len(chosen.splitlines()) > 1:
        raise meaningless("exactly_once", "version", chosen, "one line of text, such as a commit of Git")
    return chosen.strip()


VERSION = "ONCEONLY_VERSION"
"""Variable of the environment that says it for every query of a process."""


def checkpoint_place(checkpoint: str | os.PathLike[str] | None) -> str | None:
    """The query's checkpoint, as text. Raises E110: it is blank."""
    if checkpoint is None:
        return None
    location = os.fspath(checkpoint)
    if not location.strip():
        raise meaningless("exactly_once", "checkpoint", checkpoint, "the query's checkpointLocation")
    return location


def check_sinks(sinks: tuple[Sink, ...]) -> None:
    """Refuse sinks that cannot form an epoch. Raises E102: no sink, not a sink, or two with one id."""
    example = "pass a sink, e.g. exactly_once(PostgresSink(dsn, table='orders'))"
    if not sinks:
        raise refuse("E102", problem="there is none", next=example)
    for sink in sinks:
        if isinstance(sink, type):
            problem = f"the class {sink.__name__} was given, and a sink made with it is wanted"
            raise refuse("E102", problem=problem, next=example)
        if not isinstance(sink, Sink):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
            problem = f"{type(sink).__name__!r} is not a sink"
            raise refuse("E102", problem=problem, next=example)
    ids = [sink.id for sink in sinks]
    if twins := {id_ for id_ in ids if ids.count(id_) > 1}:
        problem = f"two of them have the id {min(twins)!r}"
        raise refuse("E102", problem=problem, next="give each an id: PostgresSink(..., id='orders-eu')")


def check_order(sinks: tuple[Sink, ...], beside: str) -> None:
    """Refuse an order of rows that the call cannot keep (E110). ``beside`` names an argument that moves rows."""
    ordering = [sink for sink in sinks if sink.capabilities.order]
    several = len({sink.capabilities.order for sink in ordering}) > 1
    if several or (ordering and beside):
        problem = f"the order= of {' and '.join(sink.id for sink in ordering)}"
        cause = "an epoch has its rows in one order" if several else f"{beside} moves rows"
        remedy = "give the ordered sink a query of its own, or leave order= out"
        raise misused(f"exactly_once() cannot keep {problem}.", cause, remedy)


_WITHOUT_ORDER = re.compile(r"\bmap<|\bvariant\b|\binterval\b")


def check_judges(sinks: tuple[Sink, ...]) -> None:
    """Refuse a sink that may refuse an epoch which others hold by then (E110)."""
    groups = [group for group in shared_transaction.transaction_groups(sinks) if sinks[0].id in group]
    first = groups[0] if groups else (sinks[0].id,)
    if late := next((sink.id for sink in sinks if sink.capabilities.judges and sink.id not in first), None):
        cause = "its check could then refuse an epoch that the other one holds"
        remedy = f"name {late} first; checked tables have one database"
        raise misused(f"{late} is given check_table=, and {sinks[0].id} commits before it.", cause, remedy)


def check_one_by_one(sinks: tuple[Sink, ...], recovery: Recovery, storage: Storage, *, divided: bool) -> None:
    """Refuse arguments that a sink without transactions cannot support.

    ``divided``: the call has outputs, ``quality=``, ``dedupe=`` or ``windows=``. Raises E128.
    """
    for sink in sinks:
        if not sink.capabilities.transactional:
            for problem, remedy in _too_much(sink, sinks, recovery, storage, divided=divided):
                raise refuse("E128", sink=sink.id, problem=problem, next=remedy)


def _too_much(
    sink: Sink, sinks: tuple[Sink, ...], recovery: Recovery, storage: Storage, *, divided: bool
) -> Iterator[tuple[str, str]]:
    others = ", ".join(other.id for other in sinks if other is not sink)
    if sink.capabilities.append_only:
        yield (
            "it only adds rows, so a replay would add them again",
            "give its rows a key: a row that is put again then replaces itself",
        )
    if sink.capabilities.carries_ledger:
        yield "it would carry the ledger's record in a transaction", "have the sink declare carries_ledger=False"
    if others:
        remedy = "give it a query of its own, with its own checkpoint and name: exactly_once(sink)"
        yield f"it is given with {others}, which may then hold rows that it holds only in part", remedy
    if storage.stages:
        argument = "staging" if storage.staging is not None else "keep_epochs"
        problem = f"Storage({argument}=) was given, and a part of a staged epoch would count as the whole"
        yield problem, f"leave {argument}= out"
    if divided:
        what = "an Output or quality= was given, and a part of a staged epoch would count as the whole"
        yield what, "choose rows and columns in transform=: exactly_once(sink, transform=lambda df: df.where(...))"
    if recovery.overlap == "trim":
        what = 'Recovery(overlap="trim") was given, and it may hold rows of no epoch'
        yield what, 'leave overlap="trim" out: rows that come again are put again under their keys'


# ---- Which queries epochs can be built on: what of a run or its plan is refused, by name, before anything is opened.


def refuse_unfit(run: Run, pipeline: str, lossy_source: str | None, one_by_one: str) -> None:
    """Refuse a run that cannot have epochs, before anything is opened.

    The user allows a source of kind ``lossy_source`` to lose rows. ``one_by_one`` is the id of a sink without
    transactions, or empty. Raises E104: its mode, E105: a temporary checkpoint, E109 or E129: no determinism, E116: a
    source that reads lost offsets as nothing, E126: one that reads lost files as nothing, E127: one that cannot replay.
    """
    if run.mode:
        raise refuse(
            "E104", query=pipeline, mode=run.mode, next="use trigger(processingTime=...) or trigger(availableNow=True)"
        )
    if run.temporary:
        raise refuse("E105", query=pipeline, checkpoint=run.checkpoint)
    refuse_plan(run.plan, pipeline, lossy_source, run.plan.nondeterministic, one_by_one)


def refuse_checkpoint(checkpoint: str | None, run: Run) -> None:
    """Refuse a ``checkpoint=`` that differs from the checkpoint in Spark's run. ``None`` passes. Raises E106."""
    if checkpoint is None or _same_place(checkpoint, run.checkpoint):
        return
    raise refuse(
        "E106",
        problem=f"The query's checkpoint is {run.checkpoint}, and checkpoint= is {checkpoint}.",
        cause="checkpoint= and the query's checkpointLocation differ",
        next="give both the same place, or leave checkpoint= out; onceonly.start() gives the query this one",
    )


def _same_place(location: str, resolved: str) -> bool:
    if is_local(location) and is_local(resolved):
        return local_path(location).resolve() == local_path(resolved).resolve()
    # A path without a scheme is on whichever file system is Spark's default.
    is_same = location.rstrip("/") == resolved.rstrip("/")
    return is_same or (
        is_local(location) and str(local_path(location)).rstrip("/") == urlsplit(resolved).path.rstrip("/")
    )


def refuse_plan(
    plan: QueryPlan, pipeline: str, lossy_source: str | None, nondeterministic: str | None, one_by_one: str
) -> None:
    """Refuse a plan, before or after the query starts.

    ``nondeterministic`` is the SQL of an expression that another run may compute otherwise. The other arguments are
    those of :func:`refuse_unfit`. Raises E109, E116, E126, E127 or E129, with the causes of :func:`refuse_unfit`.
    """
    refuse_unrepeatable(plan, pipeline, nondeterministic, one_by_one)
    for source in plan.sources:
        if source.reads_on:
            raise refuse("E116", query=pipeline, source=source.origin)
        if source.passes_over:
            raise refuse("E126", query=pipeline, source=source.origin, setting=source.passes_over)
        if source.lossy and source.lossy != lossy_source:
            raise refuse("E127", query=pipeline, source=source.origin, kind=source.lossy)


def refuse_unrepeatable(plan: QueryPlan, pipeline: str, nondeterministic: str | None, one_by_one: str) -> None:
    """Refuse a nondeterministic plan if rows of one run would mix with rows of another.

    State comes from the last run. A sink without transactions holds parts of each run. Raises E109 of state, E129 of
    such a sink.
    """
    if nondeterministic and plan.stateful:
        raise refuse(
            "E109",
            query=pipeline,
            problem=f"is not deterministic: {nondeterministic}",
            cause="an expression that gives another value when it runs again",
            next="compute the value before the stateful operator from the data itself (e.g. from the source's "
            "timestamp or offset), or write it to a table first",
        )
    if nondeterministic and one_by_one:
        raise refuse("E129", query=pipeline, sink=one_by_one, expression=nondeterministic)
