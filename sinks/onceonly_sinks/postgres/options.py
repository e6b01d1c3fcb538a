"""Check the options of the Postgres sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Estimate
from onceonly_checkpoints.period import milliseconds
from onceonly_sinks.postgres import seen_ids, window_state
from onceonly_sinks.postgres.prune import FEWEST, MARKERS
from onceonly_sinks.postgres.schema import EPOCH_COLUMN
from onceonly_sinks.postgres.server import NAME_BYTES, TableName
from onceonly_sinks.postgres.upsert import Merge

if TYPE_CHECKING:
    from typing_extensions import Self

    from onceonly_sinks.postgres.apply_sql import Apply

PATIENCE = 120.0
"""Seconds that the answer to a COMMIT may take before it counts as lost and is looked up."""

LOCK_TIMEOUT = 30.0
"""Seconds that a lock of somebody else is waited for."""

_SECONDS = f"give 0.001 to {2**31 // 1000}, or leave it out"

Mode = Literal["append", "upsert"]
Via = Literal["auto", "driver", "executors"]
SchemaChange = Literal["fail", "add_columns"]
Triggers = Literal["refuse", "allow"]
Holds = Literal["rows", "state"]

SEALED, HISTORY = "_sealed", "_history"
"""What stands behind the name of a table in that of its view, and of its history."""

FEWEST_VERSIONS = 64
"""Epochs whose history is kept at least."""

DRIVER_LIMIT = 64 * 1024 * 1024
"""Bytes of a batch in Arrow form that go through the driver; more go through executors."""


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options, as described in :class:`~onceonly_sinks.postgres.sink.PostgresSink`."""

    merge: Merge
    epoch_column: str | None
    via: Via
    driver_limit: int
    patience: float
    lock_timeout: float
    schema: SchemaChange
    apply: Apply | None
    triggers: Triggers
    markers: int | None
    sealed_view: bool = False

    @classmethod
    def check(
        cls,
        *,
        mode: Mode | None,
        key: str | Sequence[str] | None,
        sequence: str | None,
        delete: str | None,
        epoch_column: str | None,
        via: Via,
        driver_limit: int,
        patience: float,
        lock_timeout: float,
        schema: SchemaChange,
        apply: Apply | None,
        triggers: Triggers,
        markers: int | None,
        tombstones: str | None,
        keeps: str | None,
        holds: Holds,
        sealed_view: bool = False,
        history: bool = False,
        keep_history: int | None = None,
    ) -> Self:
        """Check that the options fit together.

        Raises:
            ConfigurationError: E110.
        """
        if keeps is not None:
            _check_keeps(keeps, mode, key, sequence, delete, epoch_column, schema, apply, tombstones)
            key, epoch_column = seen_ids.KEY, EPOCH_COLUMN
        _check_choice("holds", holds, "rows", "state")
        if holds == "state":
            _check_state(mode, key, sequence, delete, epoch_column, schema, apply, tombstones)
            key, delete, epoch_column = window_state.KEY, window_state.DELETE, EPOCH_COLUMN
        columns = _columns(key)
        _check_mode(mode, columns, sequence, delete)
        _check_names(columns, sequence, delete)
        remembered = _seconds(tombstones, sequence, delete)
        _check_choice("via", via, "auto", "driver", "executors")
        _check_choice("schema", schema, "fail", "add_columns")
        _check_choice("triggers", triggers, "refuse", "allow")
        _check_limit(driver_limit)
        _check_epoch_column(epoch_column)
        _check_seconds("patience", patience)
        _check_seconds("lock_timeout", lock_timeout)
        _check_markers(markers)
        if apply is not None:
            _check_apply(apply, columns, epoch_column, schema)
        plain = apply is None and keeps is None and holds == "rows" and epoch_column is not None
        _check_history(history, keep_history, fit=plain and bool(columns))
        _check_sealed_view(sealed_view, fit=plain and (history or not columns))
        ours = (milliseconds(keeps) or 0) // 1000, holds == "state"
        return cls(
            Merge(columns, sequence, delete, remembered, *ours, history, keep_history or 0),
            epoch_column,
            via,
            driver_limit,
            patience,
            lock_timeout,
            schema,
            apply,
            triggers,
            markers,
            sealed_view,
        )

    def check_names(self, table: TableName) -> None:
        """Refuse a view or history whose name would be longer than Postgres keeps.

        Raises:
            ConfigurationError: E110.
        """
        wanted = {"history=True": HISTORY} if self.merge.history else {}
        for option, suffix in {**wanted, **({"sealed_view=True": SEALED} if self.sealed_view else {})}.items():
            if len(f"{table.name}{suffix}".encode()) > NAME_BYTES:
                problem, cause = f"{option} of {table.text}", f"{table.name}{suffix} would be longer than a name may be"
                raise _wrong(problem, cause, "give the table a shorter name")

    @property
    def unsaid(self) -> bool:
        """Whether no option describes the table's rows."""
        said = (self.merge, self.epoch_column, self.schema, self.apply, self.triggers, self.sealed_view)
        return said == (Merge(), "auto", "fail", None, "refuse", False)

    @property
    def ways(self) -> dict[str, Any]:
        """Options for how rows travel, not for their content. They fit another table of the same database."""
        return {name: getattr(self, name) for name in ("via", "driver_limit", "patience", "lock_timeout", "markers")}

    @property
    def append(self) -> bool:
        """Whether rows are only ever added, and by us."""
        return not self.merge.key and self.apply is None

    def through_driver(self, size: Estimate) -> bool:
        """Whether a batch of about this size goes through the driver. An unknown size does not."""
        if self.via != "auto":
            return self.via == "driver"
        return size.size is not None and size.size <= self.driver_limit

    def in_memory(self, size: Estimate) -> bool:
        """Whether a batch of this size may be in the driver's memory, all of it at once."""
        return self.via != "executors" and size.size is not None and size.size <= self.driver_limit

    @property
    def limit(self) -> int | None:
        """Bytes after which the driver gives up, ``None``: never."""
        return self.driver_limit if self.via == "auto" else None

    def described(self, id_: str, default_id: str) -> dict[str, str]:
        """Options for an address, from which another process can read this sink's rows."""
        epoch_column = "" if self.epoch_column == "auto" else self.epoch_column or "-"
        ours = bool(self.merge.keeps) or self.merge.state
        epoch_column = "" if ours else epoch_column
        key = () if ours else self.merge.key
        return {
            "id": "" if id_ == default_id else id_,
            "keeps": f"{self.merge.keeps} seconds" if self.merge.keeps else "",
            "key": ",".join(name.replace("%", "%25").replace(",", "%2C") for name in key),
            "sequence": self.merge.sequence or "",
            "delete": "" if ours else self.merge.delete or "",
            "holds": "state" if self.merge.state else "",
            "tombstones": f"{self.merge.tombstones} seconds" if self.merge.tombstones else "",
            "epoch_column": epoch_column,
            "schema": "" if self.schema == "fail" else self.schema,
            "triggers": "" if self.triggers == "refuse" else self.triggers,
            "markers": "" if self.markers == MARKERS else "-" if self.markers is None else str(self.markers),
            "sealed_view": "yes" if self.sealed_view else "",
            "history": "yes" if self.merge.history else "",
            "keep_history": str(self.merge.keep_history) if self.merge.keep_history else "",
            "apply": "" if self.apply is None else "function",
        }


def from_described(said: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments from an address's options, the inverse of :meth:`Options.described`.

    Raises:
        ConfigurationError: E110, a number is none.
    """
    key = tuple(name.replace("%2C", ",").replace("%25", "%") for name in said.get("key", "").split(",") if name)
    epoch_column = said.get("epoch_column", "auto")
    markers = said.get("markers", str(MARKERS))
    return {
        "id": said.get("id"),
        "key": key or None,
        "keeps": said.get("keeps"),
        "holds": said.get("holds", "rows"),
        "sequence": said.get("sequence"),
        "delete": said.get("delete"),
        "tombstones": said.get("tombstones"),
        "epoch_column": None if epoch_column == "-" else epoch_column,
        "schema": said.get("schema", "fail"),
        "triggers": said.get("triggers", "refuse"),
        "markers": None if markers == "-" else _number("markers", markers),
        "sealed_view": "sealed_view" in said,
        "history": "history" in said,
        "keep_history": _number("keep_history", said["keep_history"]) if "keep_history" in said else None,
        "apply": elsewhere if "apply" in said else None,
    }


def elsewhere(cursor: object, staged: object, epoch: int) -> None:
    """Placeholder for the user's function in a sink that was found by its address.

    Raises:
        DestinationError: E508.
    """
    raise refuse(
        "E508",
        sink="this sink",
        reason=f"epoch {epoch} is applied by a function of your program, which its address cannot hold",
        cause="the sink was found by its address, as the command line does",
        next="restart the query: it brings the sink to the epoch before it goes on",
    )


def _columns(key: str | Sequence[str] | None) -> tuple[str, ...]:
    if key is None or isinstance(key, str):
        return (key,) if key else ()
    if not isinstance(key, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise _wrong(f"key={key!r}", "key= names columns", "PostgresSink(..., key='id'), or key=('shop', 'id')")
    return tuple(key)


def _check_mode(mode: object, key: tuple[str, ...], sequence: str | None, delete: str | None) -> None:
    mode = mode or ("upsert" if key else "append")
    if mode not in ("append", "upsert"):
        raise _wrong(f"mode={mode!r}", "mode= is append or upsert", "PostgresSink(..., key='id') upserts")
    if mode == "upsert" and not key:
        raise _wrong("mode='upsert' without key=", "an upsert finds its row by the key", "add key='id'")
    if mode == "append" and (key or sequence or delete):
        problem = "key=, sequence= or delete= in an append"
        raise _wrong(problem, "an append never looks for a row", "PostgresSink(..., key='id') upserts")


def _check_names(key: tuple[str, ...], sequence: str | None, delete: str | None) -> None:
    names = [*key, *(name for name in (sequence, delete) if name is not None)]
    named = all(isinstance(name, str) and name for name in names)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not named or len(set(names)) != len(names):
        problem = f"key={key!r}, sequence={sequence!r}, delete={delete!r}"
        raise _wrong(problem, "a column is named twice, or by no text", "name each once")


def _seconds(period: object, sequence: str | None, delete: str | None) -> int:
    if period is None:
        return 0
    if sequence is None or delete is None:
        cause = "without sequence= no change is late, and without delete= nothing is removed"
        raise _wrong(f"tombstones={period!r}", cause, "add sequence= and delete=, or leave it out")
    found = milliseconds(period) or 0
    if found < 1000:
        raise _wrong(f"tombstones={period!r}", "tombstones= is a time", 'say "7 days", "12 hours" or "30 minutes"')
    return found // 1000


def _check_keeps(keeps: object, *others: object) -> None:
    """Refuse other options for a table of ids."""
    if others != (None, None, None, None, "auto", "fail", None, None):
        problem = "keeps= together with mode=, key=, sequence=, delete=, epoch_column=, schema=, apply= or tombstones="
        raise _wrong(problem, "what stands in a table of ids is not the caller's to say", "leave the others out")
    if (milliseconds(keeps) or 0) < 1000:
        raise _wrong(f"keeps={keeps!r}", "keeps= is a time", 'say "7 days", "12 hours" or "30 minutes"')


def _check_state(*others: object) -> None:
    """Refuse other options for a table of state."""
    if others != (None, None, None, None, "auto", "fail", None, None):
        problem = (
            'holds="state" together with mode=, key=, sequence=, delete=, epoch_column=, schema=, apply= or tombstones='
        )
        raise _wrong(problem, "what stands in a table of state is not the caller's to say", "leave the others out")


def _check_choice(name: str, value: object, *known: str) -> None:
    if value not in known:
        raise _wrong(f"{name}={value!r}", f"{name}= is {', '.join(known[:-1])} or {known[-1]}", "leave it out")


def _check_limit(driver_limit: object) -> None:
    if type(driver_limit) is not int or driver_limit < 0:
        raise _wrong(f"driver_limit={driver_limit!r}", "driver_limit= counts bytes", "give a whole number from 0 on")


def _check_epoch_column(name: object) -> None:
    if name is not None and not (isinstance(name, str) and name):
        raise _wrong(f"epoch_column={name!r}", "epoch_column= names a column", "give its name, or None for none")


def _check_seconds(name: str, seconds: object) -> None:
    if not _countable(seconds):
        raise _wrong(f"{name}={seconds!r}", f"{name}= counts seconds", _SECONDS)


def _countable(seconds: object) -> bool:
    """Whether a server that counts milliseconds in 32 bits can take it. It would wait for ever with 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    return 0.001 <= seconds < 2**31 / 1000


def _check_markers(markers: object) -> None:
    if markers is not None and (type(markers) is not int or markers < FEWEST):
        raise _wrong(
            f"markers={markers!r}",
            f"markers= counts epochs, of which a restart compares up to {FEWEST}",
            "give a whole number that is not less, or None for all",
        )


def _check_history(history: object, keep: object, *, fit: bool) -> None:
    if history not in (True, False) or (keep is not None and not history):
        problem = f"history={history!r}, keep_history={keep!r}"
        raise _wrong(problem, "history= is True or False, and keep_history= belongs to it", "history=True")
    if history and not fit:
        cause = "a history is kept of rows that a key replaces, by the number of their epoch"
        raise _wrong(
            "history=True without key=, or with epoch_column=None, apply=, keeps= or holds=", cause, "add key="
        )
    if keep is not None and (type(keep) is not int or keep < FEWEST_VERSIONS):
        cause = f"keep_history= counts epochs, and a reader needs time: at least {FEWEST_VERSIONS}"
        raise _wrong(f"keep_history={keep!r}", cause, "give a whole number that is not less, or leave it out")


def _check_sealed_view(sealed_view: object, *, fit: bool) -> None:
    if sealed_view not in (True, False):
        raise _wrong(f"sealed_view={sealed_view!r}", "sealed_view= is True or False", "sealed_view=True")
    if sealed_view and not fit:
        cause = "the view tells rows by the number of their epoch, and of replaced ones by their history"
        raise _wrong("sealed_view=True with this", cause, "of an upsert, add history=True; else leave it out")


def _number(name: str, said: str) -> int:
    if not said.isdecimal():
        raise _wrong(
            f"{name}={said}", "its address is to hold a number there", "copy it from: onceonly queries show NAME"
        )
    return int(said)


def _check_apply(apply: object, key: Sequence[str], epoch_column: str | None, schema: str) -> None:
    if not callable(apply):
        raise _wrong(f"apply={apply!r}", "apply= is a function", "def apply(cursor, staged, epoch): ...")
    if key or schema != "fail" or epoch_column != "auto":
        problem = "apply= together with key=, sequence=, delete=, epoch_column= or schema="
        raise _wrong(problem, "what becomes of the rows is the function's to say", "leave the others out")


def _wrong(problem: str, cause: str, next_: str) -> OnceOnlyError:
    return refuse("E110", problem=f"PostgresSink cannot work with {problem}.", cause=cause, next=next_)
