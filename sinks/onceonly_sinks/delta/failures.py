"""What an exception of a committer means. Classes and facts decide, never the text."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import OutcomeUnknown
from onceonly_sinks.delta.table import Table

_LEAST_ROOM = 1 << 20


def lost_a_race(error: Exception, *, created: bool) -> bool:
    """Whether a commit was certainly refused because another one came first; reading again then tells which.

    Args:
        error: what the commit raised.
        created: the commit was to create the table, and now there is one.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    return isinstance(error, CommitFailedError) or (created and isinstance(error, DeltaError))


def unknown(table: Table, error: Exception) -> Exception:
    """The answer to what was sent is not known; or the place cannot be written, which is."""
    return _no_room(table, error) or OutcomeUnknown(table.sink, _brief(error))


def explained(table: Table, error: Exception) -> Exception:
    """A commit that raised and is not in the log: refused for certain only where commits do not travel."""
    from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

    if isinstance(error, SchemaMismatchError):
        return refuse(
            "E506", sink=table.sink, difference=_first_line(error), next="restart the query; it reads the table's columns again"
        )
    if isinstance(error, OSError) and error.errno is not None:
        return unwritable(table.sink, error)
    if not table.is_local or isinstance(error, CommitFailedError) or not isinstance(error, DeltaError):
        return OutcomeUnknown(table.sink, _brief(error))
    return _no_room(table, error) or refuse(
        "E503",
        sink=table.sink,
        column="of the batch",
        reason=_first_line(error),
        next="see the table's constraints and column types; mend the rows before the sink, e.g. with before=",
    )


def unwritable(sink: str, error: OSError) -> OnceOnlyError:
    """A file could not be written."""
    return refuse("E507", sink=sink, reason=errno.errorcode.get(error.errno or 0, "") + f" {error.strerror or _brief(error)}")


def _no_room(table: Table, error: Exception) -> OnceOnlyError | None:
    """deltalake names no error for a full disk or a missing right: the disk itself is asked."""
    if not table.is_local or not type(error).__module__.startswith(("_internal", "deltalake", "builtins")):
        return None
    folder = Path(table.root)
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return refuse("E507", sink=table.sink, reason=f"{folder} is not writable")
    if shutil.disk_usage(folder).free < _LEAST_ROOM:
        return refuse("E507", sink=table.sink, reason=f"the disk of {folder} is full")
    return None


def _brief(error: Exception) -> str:
    return type(error).__name__


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
