"""Translate exceptions of deltalake and Spark's Delta into refusals.

Classes and facts decide, never an exception's text.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import OutcomeUnknown
from onceonly.spark import detect
from onceonly_sinks.delta.columns import constraints
from onceonly_sinks.delta.table import Table

log = logging.getLogger(__name__)

_LEAST_ROOM = 1 << 20
"""Bytes: a disk with less free counts as full, however small the rows are."""

_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})
"""Numbers of the system's errors that say: no room, or no right."""

_MANY = ("the process, or the machine, may not open more files", "raise the limit (ulimit -n)")
_OTHERWISE = {errno.EMFILE: _MANY, errno.ENFILE: _MANY}

# Beginnings of conditions, since Spark and Delta end many of them with the variant (``CAST_INVALID_INPUT``,
# ``DELTA_VIOLATE_CONSTRAINT_WITH_VALUES``). All of these are raised before anything is committed. What stands in none
# of the lists may be in the log: a hook behind the commit can fail, too.
_ABOUT_MERGE = ("DELTA_MULTIPLE_SOURCE_ROW_", "DELTA_MERGE_", "DATATYPE_MISMATCH", "PARSE_", "UNRESOLVED_")
_ABOUT_TABLE = ("DELTA_CANNOT_MODIFY_APPEND_ONLY", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "DELTA_INVALID_PROTOCOL_")
_ABOUT_ROWS = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL", "DELTA_EXCEED_CHAR_VARCHAR_LIMIT", "CAST_", "ARITHMETIC_")


def lost_a_race(error: Exception, *, created: bool) -> bool:
    """Whether a commit was certainly refused because another one came first. Reading again then shows which.

    ``created``: the commit was to create the table, and now there is one.
    """
    # ``CommitFailedError`` is what a conflict of application ids raises, and that conflict is the fence. It is read and
    # not tried again: deltalake passes no repeated version over, five rows that were sent anew were ten.
    return isinstance(error, CommitFailedError) or (created and isinstance(error, DeltaError))


def of_fence(table: Table, error: Exception) -> Exception:
    """Classify a failed fence: unknown, unless the disk gives the reason. The next look finds one that landed."""
    return _no_room(table, error) or OutcomeUnknown(table.sink, type(error).__name__)


def of_merge(table: Table, error: Exception, epoch: int, *, landed: bool) -> Exception | None:
    """Classify a failed commit under the user's own merge. ``None`` if the merge was not the reason.

    deltalake raises one class for all faults of an expression or of the matched rows, and often gives none.
    """
    named = next((name for name in _conditions(error) if name.startswith(_ABOUT_MERGE)), None)
    # A plain Exception is what deltalake raises where its engine fails; only on a disk is it certain that the commit of
    # a log that does not show it never comes.
    general = isinstance(error, DeltaError) or type(error) is Exception
    refused_here = table.is_local and general and not isinstance(error, CommitFailedError)
    if landed or not (named or refused_here):
        return None
    reason = named or _no_room(table, error)
    if isinstance(reason, OnceOnlyError):
        return reason
    return refuse("E520", sink=table.sink, epoch=epoch, reason=reason or _unsaid(table, error))


def of_commit(table: Table, error: Exception, *, landed: bool, held: int | None, alone: bool) -> Exception:
    """Classify a failed commit of an epoch.

    It is certainly refused only if it is not in the log and no commit can still be under way. ``held`` counts bytes of
    rows written in the same call. ``None`` if they had been written before. ``alone`` is true if the commit was checked
    against every version of the table, so it lost no race.
    """
    refused = None if landed else _by_condition(table, error) or _local_refusal(table, error, held, alone=alone)
    return refused or OutcomeUnknown(table.sink, type(error).__name__)


def _by_condition(table: Table, error: Exception) -> OnceOnlyError | None:
    """A refusal before any commit, on any store."""
    if isinstance(error, SchemaMismatchError):
        cause = "the table got other columns while the epoch was computed"
        words = {"mismatch": "was changed meanwhile", "because": cause, "next": "restart the query"}
        return refuse("E506", sink=table.sink, difference=_first_line(error), **words)
    if condition := _of_rows(error):
        return _of_values(table, condition)
    condition = next((name for name in _conditions(error) if name.startswith(_ABOUT_TABLE)), None)
    return _of_table(table, condition) if condition else None


def _local_refusal(table: Table, error: Exception, held: int | None, *, alone: bool) -> OnceOnlyError | None:
    """A refusal on a local disk, where a commit that raised and is not in the log never lands."""
    if not table.is_local or not isinstance(error, DeltaError | OSError):
        return None
    if isinstance(error, CommitFailedError):
        # One class stands for a race that was lost and for a table that does not take such a commit.
        return _of_table(table, _first_line(error)) if alone else None
    if no_room := _no_room(table, error, held or 0):
        return no_room
    # With nothing to check, a row cannot be what was wrong.
    return _of_values(table, f"{_checks(table)}{_unsaid(table, error)}") if held and not table.takes_files() else None


def _of_rows(error: Exception) -> str | None:
    """Spark's error condition if it concerns the rows, and so arose before any commit."""
    return next((name for name in _conditions(error) if name.startswith(_ABOUT_ROWS)), None)


def _conditions(error: BaseException | None) -> Iterator[str]:
    """Spark's condition names of an error and its causes. PySpark turns only some of them into its own classes.

    PySpark fails over an AnalysisException of Delta. The original error is then the context of the raised one.
    """
    getter = detect.line().condition
    # PySpark's exception leads to Java's causes by its private ``_origin`` alone.
    while error is not None:
        if callable(named := getattr(error, getter, None)):
            yield str(named() or "")
        java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        error = error.__context__ if hasattr(error, "java_exception") else None
        while java is not None:
            yield _condition_of(java, getter)
            java = java.getCause()


def _condition_of(java: Any, getter: str) -> str:
    from py4j.protocol import Py4JError

    try:
        return str(getattr(java, getter)() or "")
    except Py4JError:
        return ""


def _of_values(table: Table, reason: str) -> OnceOnlyError:
    return refuse(
        "E503",
        sink=table.sink,
        column="of the batch",
        reason=reason,
        next="see the table's constraints and column types; mend the rows before the sink, e.g. with transform=",
    )


def _of_table(table: Table, reason: str) -> OnceOnlyError:
    return refuse(
        "E508",
        sink=table.sink,
        reason=f"it does not take such a commit: {reason}",
        cause="a property or a feature of the table, set since the query was opened",
        next="see SHOW TBLPROPERTIES, set the table right, then restart the query",
    )


def unwritable(sink: str, number: int) -> OnceOnlyError:
    """A file could not be written. ``number`` is the system's error number."""
    reason = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"
    if number in _ROOM:
        return refuse("E507", sink=sink, reason=reason)
    cause, remedy = _OTHERWISE.get(number, ("the file system did not take a file", "look at the system's log"))
    return refuse("E508", sink=sink, reason=reason, cause=cause, next=f"{remedy}, then restart the query")


def no_fence(sink: str) -> OnceOnlyError:
    """Our fence was never installed, or is not installed any more."""
    return refuse(
        "E508",
        sink=sink,
        reason="our fence is gone",
        cause="the table was dropped, created again or restored since, or the fence was never installed",
        next="restart the query",
    )


def _no_room(table: Table, error: Exception, needed: int = 0) -> OnceOnlyError | None:
    """Check the disk for space and permission, since deltalake has no error class for either."""
    if not table.is_local or not type(error).__module__.startswith(("_internal", "deltalake", "builtins")):
        return None
    folder = Path(table.root)
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return refuse("E507", sink=table.sink, reason=f"{folder} is not writable")
    free = shutil.disk_usage(folder).free
    if free < max(_LEAST_ROOM, needed):
        return refuse("E507", sink=table.sink, reason=f"the disk of {folder} has {free >> 20} MiB free")
    return None


def _unsaid(table: Table, error: Exception) -> str:
    """Name an error without a condition. Its text is left out, as deltalake quotes the offending value."""
    log.debug("%s: deltalake reports: %s", table.sink, error)
    return (
        f"deltalake raised {type(error).__name__}; its words, which may quote rows, are logged at DEBUG by {__name__}"
    )


def _checks(table: Table) -> str:
    names = constraints(table.handle.metadata().configuration)
    return f"one of the constraints {', '.join(names)}, or a type: " if names else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
