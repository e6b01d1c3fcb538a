"""Validate the arguments of ``exactly_once()`` and the query's plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from onceonly.api.guarantee import GuaranteeInputs
from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.event_time import event_time_argument
from onceonly.machine.facts import Adopt, OnRefresh, Overlap
from onceonly.machine.output_rules import MaxBad
from onceonly.machine.overlap import unfit
from onceonly.protocol import Sink
from onceonly.quality.dedupe import Dedupe
from onceonly.quality.output import Output
from onceonly.quality.quality import Quality
from onceonly.runtime import refresh
from onceonly.runtime.staged_files import directory
from onceonly.spark.engine import LOSSY, QueryHint, QueryPlan, Run
from onceonly.windows import windows_argument
from onceonly_checkpoints.digests import BAD, LATE, PANES, SEEN, STATE
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import SourceIdentity, SourceOffsets, canonical
from onceonly_checkpoints.storage import half_url, is_local, local_path

# ---- What ``exactly_once()`` is called with: what cannot mean anything is refused by name, before a query starts.

LedgerPlace = str | os.PathLike[str] | Ledger | None
"""Where epochs are recorded: a URL, the path of a SQLite file, a ledger; ``None``: where sinks and checkpoint say."""

_OVERLAPS: dict[str, Overlap] = {"stop": "stop", "trim": "trim"}
ON_REFRESH: dict[str, OnRefresh] = {"stop": "stop", "replace": "replace"}
"""What can become of a full refresh, by its word."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Checked arguments of a call. See :func:`onceonly.exactly_once`.

    A user cannot set ``replaying``: then the batches come from replay checkpoints and run recorded epochs again.
    ``routes`` holds the columns that route rows. The outputs of a route are among ``outputs``.
    """

    sinks: tuple[Sink, ...]
    name: str | None = None
    ledger: LedgerPlace = None
    before: Callable[[Any], Any] | None = None
    adopt: Adopt = None
    overlap: Overlap = "stop"
    staging: Staging | None = None
    lossy_source: str | None = None
    checkpoint: str | None = None
    on_refresh: OnRefresh = "stop"
    outputs: tuple[Output, ...] = ()
    quality: Quality | None = None
    dedupe: Dedupe | None = None
    time: event_time_argument.EventTimeArgument | None = None
    panes: windows_argument.WindowsArgument | None = None
    replaying: bool = False
    routes: tuple[str, ...] = ()
    version: str = ""

    @property
    def told(self) -> QueryHint:
        """Name and checkpoint of the query, for engines that cannot find them."""
        return QueryHint(self.name, self.checkpoint)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the sinks, in the order of the call."""
        return tuple(sink.id for sink in self.sinks)

    @property
    def stages(self) -> bool:
        """Whether epochs are staged, so that several sinks get the same bytes. For a single sink the user decides."""
        return len(self.sinks) > 1 or self.staging is not None or self.divided

    @property
    def divided(self) -> bool:
        """Whether the rows are divided: some sinks get other rows, or bad or repeated rows are separated."""
        apart = (self.quality, self.dedupe, self.panes)
        return bool(self.outputs) or any(one is not None for one in apart)

    @property
    def of_rows(self) -> tuple[Sink, ...]:
        """Its sinks without those of ids, of window state and of late rows."""
        beside = (*([self.dedupe.keeper] if self.dedupe else []), *(self.panes.sinks if self.panes else ()))
        return tuple(sink for sink in self.sinks if sink not in beside)

    @property
    def adding(self) -> tuple[str, ...]:
        """Ids of the append-only sinks."""
        return tuple(sink.id for sink in self.of_rows if sink.capabilities.append_only)

    @property
    def kept(self) -> dict[str, str]:
        """Contents of each sink that holds something else than good rows, in words, by sink id."""
        quarantine = self.quality.quarantine if self.quality else None
        found = {quarantine.id: "bad rows"} if quarantine else {}
        found |= {self.dedupe.keeper.id: "ids"} if self.dedupe else {}
        if self.panes:
            found[self.panes.keeper.id] = "windows"
            found |= {self.panes.late.id: "late rows"} if self.panes.late else {}
        return found

    @property
    def max_bad(self) -> MaxBad:
        """Limit of bad rows in an epoch."""
        return self.quality.most if self.quality else None

    @property
    def one_by_one(self) -> str:
        """Id of the sink without transactions, which then is the only sink. Empty for none."""
        return next((sink.id for sink in self.sinks if not sink.capabilities.transactional), "")

    @property
    def chosen(self) -> GuaranteeInputs:
        """The arguments that affect the guarantee."""
        taken = {sink.id: (output.name, output.text) for output in self.outputs for sink in output.sinks}
        expected = ""
        if self.quality:
            expected = self.quality.breaks(self.of_rows)
            if self.quality.quarantine:
                taken[self.quality.quarantine.id] = BAD, f"every row that breaks {expected}{self.quality.kept}"
        once = ""
        if self.dedupe:
            once = f"{self.dedupe.named}, of which one was let through in the {self.dedupe.within} before"
            taken[self.dedupe.keeper.id] = SEEN, f"the id of each row that was let through, for {self.dedupe.within}"
        if self.panes:
            taken |= {sink.id: (PANES, self.panes.words) for sink in self.of_rows}
            taken[self.panes.keeper.id] = STATE, "every window that is open, as the newest epoch left it"
            if self.panes.late:
                taken[self.panes.late.id] = LATE, "every row that came after its window was closed"
        time = self.time.words if self.time else ""
        said = (self.adopt, self.before is not None, self.stages, self.on_refresh)
        return GuaranteeInputs(*said, taken, expected, once, time)

    def shaped(self, df: Any) -> Any:
        """Apply ``before=`` to a DataFrame."""
        return self.before(df) if self.before else df


def overlap(wanted: str) -> Overlap:
    """Parse ``overlap=``.

    Raises:
        ConfigurationError: E110, unknown value.
    """
    chosen = _OVERLAPS.get(wanted)
    if chosen is None:
        raise _meaningless("overlap", wanted, '"stop" or "trim"')
    return chosen


def on_refresh(wanted: str, sinks: tuple[Sink, ...], name: str | None) -> OnRefresh:
    """Parse ``on_refresh=``.

    Raises:
        ConfigurationError: E110, unknown value.
        IdentityError: E247, a sink cannot replace rows.
    """
    chosen = ON_REFRESH.get(wanted)
    if chosen is None:
        raise _meaningless("on_refresh", wanted, '"stop" or "replace"')
    if chosen == "replace":
        refresh.demand(sinks, name or "the query")
    return chosen


def check_before(before: object) -> None:
    """Refuse a ``before=`` that cannot be called with a batch.

    Raises:
        ConfigurationError: E110.
    """
    if before is not None and (not callable(before) or isinstance(before, type)):
        raise _meaningless("before", before, "a function from DataFrame to DataFrame")


def check_name(name: str | None) -> None:
    """Refuse a blank name.

    Raises:
        ConfigurationError: E110.
    """
    if name is not None and not name.strip():
        raise _meaningless("name", name, "a name that is not blank")


def version(said: str | None) -> str:
    """The user's name for the running code. ``None`` takes it from the environment.

    Raises:
        ConfigurationError: E110, it is not one line of text.
    """
    chosen: Any = os.environ.get(VERSION, "") if said is None else said
    if not isinstance(chosen, str) or len(chosen.splitlines()) > 1:
        raise _meaningless("version", chosen, "one line of text, such as a commit of Git")
    return chosen.strip()


VERSION = "ONCEONLY_VERSION"
"""Variable of the environment that says it for every query of a process."""


def check_lossy(kind: str | None) -> None:
    """Refuse a kind of source that is unknown or can repeat its rows.

    Raises:
        ConfigurationError: E110.
    """
    if kind is not None and kind not in LOSSY.values():
        raise _meaningless("lossy_source", kind, " or ".join(f'"{known}"' for known in LOSSY.values()))


def check_ledger(ledger: object) -> None:
    """Refuse a value that is neither the place of a ledger nor a ledger. A class is no ledger.

    Raises:
        ConfigurationError: E110.
    """
    if ledger is None or isinstance(ledger, str | os.PathLike):
        if ledger is not None and half_url(os.fspath(ledger)):
            raise _meaningless("ledger", os.fspath(ledger), "a URL with two slashes, or the path of a SQLite file")
        return
    if isinstance(ledger, type) or not isinstance(ledger, Ledger):
        raise _meaningless("ledger", ledger, "a URL, the path of a SQLite file, or a Ledger that was made")


def checkpoint_place(checkpoint: str | os.PathLike[str] | None) -> str | None:
    """The query's checkpoint, as text.

    Raises:
        ConfigurationError: E110, it is blank.
    """
    if checkpoint is None:
        return None
    place = os.fspath(checkpoint)
    if not place.strip():
        raise _meaningless("checkpoint", checkpoint, "the query's checkpointLocation")
    return place


def adopted(adopt: str | Mapping[str, Any] | None) -> Adopt:
    """Parse ``adopt=``: ``"here"``, or the offsets that a target with existing rows already contains.

    Raises:
        ConfigurationError: E110, neither ``"here"`` nor offsets.
    """
    if adopt is None:
        return None
    if adopt == "here":
        return "here"
    if not isinstance(adopt, Mapping):
        raise _meaningless("adopt", adopt, '"here", or the offsets that the target already contains')
    texts = {source: value if isinstance(value, str) else canonical(value) for source, value in adopt.items()}
    return SourceOffsets.of(texts)


def check_sinks(sinks: tuple[Sink, ...]) -> None:
    """Refuse sinks that cannot form an epoch.

    Raises:
        ConfigurationError: E102, no sink, not a sink, or two with one id.
    """
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
        raise refuse("E102", problem=problem, next="tell them apart: PostgresSink(..., id='orders-eu')")


def check_one_by_one(sinks: tuple[Sink, ...], overlap: Overlap, staging: Staging | None, *, divided: bool) -> None:
    """Refuse arguments that a sink without transactions cannot support.

    ``divided``: the call has outputs, ``quality=``, ``dedupe=`` or ``panes=``.

    Raises:
        ConfigurationError: E128.
    """
    for sink in sinks:
        if not sink.capabilities.transactional:
            for problem, way in _too_much(sink, sinks, overlap, staging, divided=divided):
                raise refuse("E128", sink=sink.id, problem=problem, next=way)


def _too_much(
    sink: Sink, sinks: tuple[Sink, ...], overlap: Overlap, staging: Staging | None, *, divided: bool
) -> Iterator[tuple[str, str]]:
    """Each argument that needs a transaction, with the way out."""
    others = ", ".join(other.id for other in sinks if other is not sink)
    if sink.capabilities.append_only:
        yield (
            "it only adds rows, so a replay would add them again",
            "give its rows a key: a row that is put again then replaces itself",
        )
    if sink.capabilities.carries_ledger:
        yield "it would carry the ledger's record in a transaction", "have the sink declare carries_ledger=False"
    if others:
        way = "give it a query of its own, with its own checkpoint and name: exactly_once(sink)"
        yield f"it stands beside {others}, which may then hold what it holds in part", way
    if staging is not None:
        yield "staging= was given, and parts of a staged epoch would stand for the whole", "leave staging= out"
    if divided:
        what = "an Output or quality= was given, and parts of a staged epoch would stand for the whole"
        yield what, "choose rows and columns in before=: exactly_once(sink, before=lambda df: df.where(...))"
    if overlap == "trim":
        what = 'overlap="trim" was given, and rows may stand there that no epoch holds'
        yield what, 'leave overlap="trim" out: rows that come again are put again under their keys'


def _meaningless(argument: str, value: object, wanted: str) -> Exception:
    return refuse(
        "E110",
        problem=f"exactly_once({argument}={value!r}) is not understood.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}, or leave {argument}= out",
    )


# ---- Which queries epochs can be built on: what of a run or its plan is refused, by name, before anything is opened.


def refuse_unfit(run: Run, pipeline: str, lossy_source: str | None, one_by_one: str) -> None:
    """Refuse a run that cannot have epochs, before anything is opened.

    The user allows a source of kind ``lossy_source`` to lose rows. ``one_by_one`` is the id of a sink without
    transactions, or empty.

    Raises:
        ConfigurationError: E104 its mode, E105 a temporary checkpoint, E109 or E129 no determinism, E116 a source
            that reads lost offsets as nothing, E126 one that reads lost files as nothing, E127 one that cannot replay.
    """
    if run.mode:
        raise refuse(
            "E104",
            query=pipeline,
            mode=run.mode,
            next="use trigger(processingTime=...) or trigger(availableNow=True)",
        )
    if run.temporary:
        raise refuse("E105", query=pipeline, checkpoint=run.checkpoint)
    refuse_plan(run.plan, pipeline, lossy_source, run.plan.nondeterministic, one_by_one)


def refuse_checkpoint(told: str | None, run: Run) -> None:
    """Refuse a ``checkpoint=`` that differs from the checkpoint in Spark's run. ``None`` passes.

    Raises:
        ConfigurationError: E106.
    """
    if told is None or _same_place(told, run.checkpoint):
        return
    raise refuse(
        "E106",
        problem=f"The query's checkpoint is {run.checkpoint}, and checkpoint= says {told}.",
        cause="checkpoint= and the query's checkpointLocation differ",
        next="give both the same place, or leave checkpoint= out; onceonly.start(..., checkpoint=) sets both",
    )


def _same_place(told: str, resolved: str) -> bool:
    if is_local(told) and is_local(resolved):
        return local_path(told).resolve() == local_path(resolved).resolve()
    # A path without a scheme is on whichever file system is Spark's default.
    whole = told.rstrip("/") == resolved.rstrip("/")
    return whole or (is_local(told) and str(local_path(told)).rstrip("/") == urlsplit(resolved).path.rstrip("/"))


def refuse_plan(
    plan: QueryPlan, pipeline: str, lossy_source: str | None, nondeterministic: str | None, one_by_one: str
) -> None:
    """Refuse a plan, before or after the query starts.

    ``nondeterministic`` is the SQL of an expression that another run may compute otherwise. The other arguments are
    those of :func:`refuse_unfit`.

    Raises:
        ConfigurationError: E109, E116, E126, E127 or E129, with the causes of :func:`refuse_unfit`.
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

    State comes from the last run. A sink without transactions holds parts of each run.

    Raises:
        ConfigurationError: E109 of state, E129 of such a sink.
    """
    if nondeterministic and plan.stateful:
        raise refuse(
            "E109",
            query=pipeline,
            problem=f"is not deterministic: {nondeterministic}",
            cause="an expression that gives another value when it is run again",
            next="compute the value before the stateful operator from the data itself (e.g. from the source's "
            "timestamp or offset), or write it to a table first",
        )
    if nondeterministic and one_by_one:
        raise refuse("E129", query=pipeline, sink=one_by_one, expression=nondeterministic)


def refuse_unseen(plan: QueryPlan, pipeline: str, *, declared: bool) -> None:
    """Refuse state in the plan of a checkpoint, unless the user declared the query deterministic.

    The checkpoint does not show the whole plan.

    Raises:
        ConfigurationError: E109.
    """
    if plan.stateful and not declared:
        raise refuse(
            "E109",
            query=pipeline,
            problem="cannot be seen from a data source, so nobody here can tell that it is deterministic",
            cause='it was written through format("onceonly")',
            next='.option("deterministic", "true") if nothing in it depends on time or chance; '
            "else use foreachBatch, which looks at the plan",
        )


def refuse_untrimmable(
    plan: QueryPlan, pipeline: str, sources: Sequence[SourceIdentity], columns: Mapping[str, str]
) -> None:
    """Refuse a query that onceonly could never trim.

    The guarantee for a lost checkpoint must hold from the first day. ``columns`` has the types of the rows before
    ``before=``.

    Raises:
        ConfigurationError: E115.
    """
    if reason := unfit(sources, columns, stateful=plan.stateful):
        raise refuse("E115", query=pipeline, reason=reason)


# ---- What a user says of staged epochs: where they lie, and how many of them stay.


@checks_arguments
@dataclass(frozen=True, slots=True)
class Staging:
    """Where batches are written before they are committed, and how many committed ones stay there.

    The bytes of the newest epochs are what a sink that was restored is brought level from without asking the source or
    another sink: ``onceonly queries rewind``. A transaction log is kept for the same reason.

    Attributes:
        place: a directory that driver and executors share, or a URL that Spark and an installed driver of fsspec both
            reach; ``None``: beside the checkpoint.
        keep: how many of the newest epochs stay; 1, the newest alone, is what a crash between two sinks needs.

    Raises:
        ConfigurationError: E110, ``keep`` is no number from 1 on; E114, files cannot lie there, or not be read from
            here.
    """

    place: str | os.PathLike[str] | None = None
    keep: int = 1

    def __post_init__(self) -> None:
        number = type(self.keep) is int  # neither a truth nor a text, whatever was annotated
        if not number or self.keep < 1:
            raise refuse(
                "E110",
                problem=f"Staging(keep={self.keep!r}) keeps nothing.",
                cause="the newest epoch stays until every sink holds the next one",
                next="keep=1, or a larger number: as many epochs as a sink may be brought up from there",
            )
        if self.place is not None:
            directory(os.fspath(self.place))  # what cannot be reached from here is refused before the query starts

    @classmethod
    def of(cls, staging: str | os.PathLike[str] | Staging | None) -> Staging | None:
        """What was given as ``staging=``.

        Raises:
            ConfigurationError: E114, files cannot lie there, or not be read from here.
        """
        return staging if staging is None or isinstance(staging, Staging) else cls(staging)
