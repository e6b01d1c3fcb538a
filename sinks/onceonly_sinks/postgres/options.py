"""Options of the Postgres sink: arguments, and their form in an address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from onceonly.errors import options, refuse
from onceonly.protocol import Estimate
from onceonly.protocol.row_rules import Check
from onceonly_checkpoints.epoch_time import milliseconds
from onceonly_sinks.postgres.prune import FEWEST, MARKERS
from onceonly_sinks.postgres.schema import EPOCH_COLUMN
from onceonly_sinks.postgres.server import NAME_BYTES, TableName
from onceonly_sinks.postgres.upsert import Merge

if TYPE_CHECKING:
    from typing_extensions import Self

    from onceonly_sinks.postgres.apply_sql import Apply

Load = Literal["auto", "driver", "executors"]
"""Who loads the rows: ``auto`` decides by their size."""
SchemaChange = Literal["fail", "add_columns"]
"""Reaction to columns of a batch that the table lacks."""
Triggers = Literal["refuse", "allow"]
"""Reaction to triggers before each row of the table."""

SEALED, HISTORY = "_sealed", "_history"
"""What stands behind the name of a table in that of its view, and of its history."""

FEWEST_VERSIONS = 64
"""Epochs whose history is kept at least."""

_Markers = Annotated[int, options.at_least(FEWEST, "a number of epochs")]
_Versions = Annotated[int, options.at_least(FEWEST_VERSIONS, "a number of epochs")]


@options.checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keep(options.Typed):
    """How long Postgres keeps markers, replaced rows and removed keys.

    Attributes:
        markers: epochs whose rows in ``onceonly.epoch`` are kept, at least 200, or ``"all"``. Older ones are deleted
            once a ledger has their epochs, and ``onceonly.pruned`` sums them up.
        history: epochs for which a table ``<table>_history`` keeps rows that an upsert replaced or removed, at least
            64, or ``"all"``. You can then read the rows as of any of them. Epochs that a reader has pinned stay.
            ``None``: there is no such table.
        tombstones: time to remember a removed key, such as ``7 days``, by the clock of the epochs. Within it no older
            change brings the row back. Needs ``sequence`` and ``delete_flag``. They are in a table of schema
            ``onceonly``. ``None``: removed keys are not remembered.

    Raises:
        ConfigurationError: E110, a value without meaning.
    """

    markers: _Markers | Literal["all"] = MARKERS
    history: _Versions | Literal["all"] | None = None
    tombstones: options.Duration | None = None


@options.checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PostgresTuning(options.Typed):
    """How rows travel to Postgres, and how long the sink waits there.

    Attributes:
        epoch_column: bigint column for the epoch's number. ``auto`` is ``_epoch`` if the table has it, and ``None`` is
            no column.
        load: ``driver`` or ``executors`` for all epochs. ``auto`` decides by ``driver_limit``.
        driver_limit: bytes in Arrow form that may go through the driver.
        commit_timeout: seconds that the answer to a COMMIT may take, waiting for standbys and deferred triggers
            included. Then the sink drops the connection and looks up whether the epoch was committed.
        lock_timeout: seconds to wait for a lock of another session, in reading and in writing. Then the error names the
            session that holds it. An epoch is retried a few times before the query stops.
        triggers: ``refuse`` a table with triggers before each row, as they may keep rows back or change them. ``allow``
            them: you answer for their changes. An epoch is still refused if they keep a row back.

    Raises:
        ConfigurationError: E110, a value without meaning.
    """

    epoch_column: options.Column | None = "auto"
    load: Load = "auto"
    driver_limit: options.Bytes = 64 * 1024 * 1024
    commit_timeout: options.Seconds = 120.0
    lock_timeout: options.Seconds = 30.0
    triggers: Triggers = "refuse"


_unfit = partial(options.unfit, "PostgresSink")

KEEP = Keep()
TUNING = PostgresTuning()
_APPEND = Merge()

_ADDRESSED = (
    *("id", "key", "sequence", "delete_flag", "tombstones", "epoch_column", "schema", "triggers", "markers"),
    *("sealed_view", "history", "order"),
)
"""Options that an address holds: what reading the rows, or writing them again, depends on."""


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options, as described in :class:`~onceonly_sinks.postgres.sink.PostgresSink`."""

    merge: Merge = _APPEND
    schema: SchemaChange = "fail"
    apply: Apply | None = None
    sealed_view: bool = False
    keep: Keep = KEEP
    tuning: PostgresTuning = TUNING
    checks: tuple[Check, ...] = ()

    def __post_init__(self) -> None:
        """Check that the options fit together. Raises E110."""
        merge, keep = self.merge, self.keep
        named = [name for name in (merge.sequence, merge.delete) if name is not None]
        if named and not merge.key:
            cause = "an append never looks for a row"
            raise _unfit("sequence= or delete_flag= without key=", cause, "PostgresSink(..., key='id') upserts")
        if len({*merge.key, *named}) < len(merge.key) + len(named):
            problem = f"key={merge.key!r}, sequence={merge.sequence!r}, delete_flag={merge.delete!r}"
            raise _unfit(problem, "a column is named twice", "name each once")
        if keep.tombstones and len(named) < 2:
            cause = "without sequence= no change is late, and without delete_flag= nothing is removed"
            remedy = "add sequence= and delete_flag=, or leave it out"
            raise _unfit(f"tombstones={keep.tombstones!r}", cause, remedy)
        if merge.order and (merge.key or self.apply):
            cause = "rows of a key replace one another, by sequence=, and apply= writes them itself"
            raise _unfit("order= together with key= or apply=", cause, "leave order= out")
        if self.apply is not None and not callable(self.apply):  # pyright: ignore[reportUnnecessaryComparison]
            raise _unfit(f"apply={self.apply!r}", "apply= is a function", "def apply(cursor, staged, epoch): ...")
        if self.apply is not None and (merge.key or self.schema != "fail" or self.tuning.epoch_column != "auto"):
            problem = "apply= together with key=, sequence=, delete_flag=, epoch_column= or schema="
            raise _unfit(problem, "your function decides what happens to the rows", "leave the others out")
        numbered = self.apply is None and self.tuning.epoch_column is not None
        if merge.history and not (numbered and merge.key):
            problem = f"history={keep.history!r} without key=, or with epoch_column=None or apply="
            raise _unfit(problem, "a history holds rows that a key replaces, by the number of their epoch", "add key=")
        if self.sealed_view and not (numbered and (merge.history or not merge.key)):
            cause = "the view finds rows by the number of their epoch, and replaced ones by their history"
            remedy = 'for an upsert, add keep=Keep(history="all"). Otherwise leave it out'
            raise _unfit("sealed_view=True with this", cause, remedy)

    def for_ids(self, seconds: int) -> Self:
        """Options of a table of seen ids, which are kept for so long."""
        from onceonly_sinks.postgres import seen_ids

        return self._of_our_own(Merge(seen_ids.KEY, keeps=seconds))

    def for_state(self) -> Self:
        """Options of a table of window state."""
        from onceonly_sinks.postgres import window_state

        return self._of_our_own(Merge(window_state.KEY, delete=window_state.DELETE, state=True))

    def _of_our_own(self, merge: Merge) -> Self:
        tuning = replace(self.tuning, epoch_column=EPOCH_COLUMN, triggers="refuse")
        return type(self)(merge, keep=Keep(markers=self.keep.markers), tuning=tuning)

    def check_names(self, table: TableName) -> None:
        """Refuse a view or history whose name would be longer than Postgres keeps. Raises E110."""
        suffixes = {"history=": HISTORY} if self.merge.history else {}
        for option, suffix in {**suffixes, **({"sealed_view=True": SEALED} if self.sealed_view else {})}.items():
            if len(f"{table.name}{suffix}".encode()) > NAME_BYTES:
                problem, cause = f"{option} of {table.text}", f"{table.name}{suffix} would be longer than a name may be"
                raise _unfit(problem, cause, "give the table a shorter name")

    @property
    def unsaid(self) -> bool:
        """Whether no option describes the table's rows."""
        row_options = (self.merge, self.schema, self.apply, self.sealed_view, self.checks)
        described = self.tuning.epoch_column, self.tuning.triggers
        return row_options == (_APPEND, "fail", None, False, ()) and described == (TUNING.epoch_column, TUNING.triggers)

    @property
    def append(self) -> bool:
        """Whether rows are only ever added, and by us."""
        return not self.merge.key and self.apply is None

    def through_driver(self, size: Estimate) -> bool:
        """Whether a batch of about this size goes through the driver. An unknown size does not."""
        if self.tuning.load != "auto":
            return self.tuning.load == "driver"
        return size.size is not None and size.size <= self.tuning.driver_limit

    def in_memory(self, size: Estimate) -> bool:
        """Whether a batch of this size may be in the driver's memory, all of it at once."""
        return self.tuning.load != "executors" and size.size is not None and size.size <= self.tuning.driver_limit

    @property
    def limit(self) -> int | None:
        """Bytes after which the driver gives up, ``None``: never."""
        return self.tuning.driver_limit if self.tuning.load == "auto" else None

    def texts(self, id_: str | None, call: Callable[..., Any]) -> dict[str, list[str]]:
        """Options for an address, from which another process can read this sink's rows. ``call`` takes them."""
        merge, keep, tuning = self.merge, self.keep, self.tuning
        if merge.keeps or merge.state:
            ours = {"keeps": [f"{merge.keeps} seconds"]} if merge.keeps else {"holds": ["state"]}
            return {**options.write_texts({"id": id_, "markers": keep.markers}, ("id", "markers"), call, Keep), **ours}
        values = {name: getattr(part, name) for part in (keep, tuning) for name in type(part).__slots__}
        values |= {"id": id_, "key": merge.key, "sequence": merge.sequence, "delete_flag": merge.delete}
        values |= {"schema": self.schema, "sealed_view": self.sealed_view, "order": merge.order}
        function = {"apply": ["function"]} if self.apply else {}
        return {**options.write_texts(values, _ADDRESSED, call, Keep, PostgresTuning), **function}


def merge_of(
    key: str | Sequence[str] | None, sequence: str | None, delete_flag: str | None, keep: Keep, order: str | None
) -> Merge:
    """How rows meet those of the table."""
    remembered = (milliseconds(keep.tombstones) or 0) // 1000
    history, epochs = keep.history is not None, keep.history if isinstance(keep.history, int) else 0
    merge = Merge(options.names_of(key), sequence, delete_flag, remembered, history=history, keep_history=epochs)
    return replace(merge, order=order)


def read_options(texts: Mapping[str, Sequence[str]], call: Callable[..., Any]) -> tuple[str | None, Options]:
    """Id and options, the inverse of :meth:`Options.texts`. Raises E110: not such options."""
    special = {name: ",".join(texts[name]) for name in ("keeps", "holds", "apply") if name in texts}
    plain = {name: values for name, values in texts.items() if name not in special}
    values = options.read_texts("the address of a Postgres sink", plain, _ADDRESSED, call, Keep, PostgresTuning)
    id_ = values.pop("id", None)
    keep = Keep(**{name: values.pop(name) for name in Keep.__slots__ if name in values})
    tuning = PostgresTuning(**{name: values.pop(name) for name in PostgresTuning.__slots__ if name in values})
    if "keeps" in special:
        return id_, Options(keep=keep).for_ids((milliseconds(special["keeps"]) or 0) // 1000)
    if "holds" in special:
        return id_, Options(keep=keep).for_state()
    sequence, delete_flag, order = (values.pop(name, None) for name in ("sequence", "delete_flag", "order"))
    merge = merge_of(values.pop("key", ()), sequence, delete_flag, keep, order)
    apply = elsewhere if "apply" in special else None
    return id_, Options(merge, apply=apply, keep=keep, tuning=tuning, **values)


def elsewhere(cursor: object, staged: object, epoch: int) -> None:
    """Placeholder for the user's function in a sink that was found by its address. Raises E508."""
    raise refuse(
        "E508",
        sink="this sink",
        reason=f"epoch {epoch} is applied by a function of your program, which its address cannot hold",
        cause="the sink was found by its address, as the command line does",
        next="restart the query: it brings the epoch to the sink before it continues",
    )
