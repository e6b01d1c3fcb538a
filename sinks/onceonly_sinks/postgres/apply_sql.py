"""Run the user's SQL on an epoch's rows, inside its transaction.

The transaction also holds the marker and cannot end early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from psycopg import ClientCursor, Cursor, sql
from psycopg import Connection as Driver
from psycopg.errors import InFailedSqlTransaction
from psycopg.pq import TransactionStatus

from onceonly.errors import mask, refuse
from onceonly_sinks.postgres import errors, staging
from onceonly_sinks.postgres.head import DURABLE
from onceonly_sinks.postgres.server import quote
from onceonly_sinks.postgres.transaction import raw
from onceonly_sinks.postgres.upsert import Waiting

if TYPE_CHECKING:
    from sqlalchemy import Connection

# A deferred constraint that does not hold: whoever commits before it is mended, by whatever words, is refused.
_GUARD = (
    "CREATE TEMPORARY TABLE onceonly_guard (one int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP",
    "INSERT INTO pg_temp.onceonly_guard VALUES (1), (1)",
)
_MEND = "DELETE FROM pg_temp.onceonly_guard"
# Asked before and after: a function that ended the transaction and began another leaves a connection that looks alike.
_WHICH = "SELECT pg_catalog.pg_current_xact_id()::text"


class StagedTable(sql.Identifier):
    """Name of the rows of one epoch. It composes with ``psycopg.sql``, and its text is already quoted."""

    def __str__(self) -> str:
        return ".".join(quote(part) for part in self._obj)


Apply = Callable[[Cursor[Any], StagedTable, int], object]
"""``apply(cursor, staged, epoch)``: brings the rows of ``staged`` where they belong; its answer is not looked at."""


def run(connection: Connection, apply: Apply, waiting: Waiting, epoch: int, *, sink: str, address: str) -> None:
    """Call the function with a cursor of the open transaction, and check that the transaction is still the same.

    Raises:
        DestinationError: E518, the function failed. E519, it ended the transaction.
        psycopg.Error: a deadlock, a serialization failure or a lock timeout, as the function met it.
        OnceOnlyError: E501, the connection was lost.
    """
    driver: Driver[Any] = raw(connection)
    view = _shown(driver, waiting)
    with driver.pipeline():
        for statement in _GUARD:
            driver.execute(statement)
        which = driver.execute(_WHICH)
    begun = which.fetchone()
    done, failure = _call(driver, apply, epoch)
    if driver.broken:
        raise failure or refuse("E501", sink=sink, reason="the connection was lost", address=address)
    gave_up = not done and failure is None
    # A function that hid a failed statement has not ended the transaction, but nothing more can be done in it.
    ended = not isinstance(failure, InFailedSqlTransaction) and _current(driver) != begun
    if gave_up or ended:
        raise refuse("E519", sink=sink, epoch=epoch) from failure
    if failure is not None:
        read = errors.read(failure)
        # What the server took back for others' sake is no failure of the function: the epoch is written again.
        raise failure if read and read.conflicts else _failed(sink, epoch, failure) from failure
    _settle(driver, view)


def _call(driver: Driver[Any], apply: Apply, epoch: int) -> tuple[bool, Exception | None]:
    """Call the function within a savepoint, in which the driver forbids commit() and rollback().

    Returns whether it came to its end, and its exception. Neither happens for ``psycopg.Rollback``, which the savepoint
    takes.
    """
    done = False
    try:
        with driver.transaction(), driver.cursor() as cursor:
            apply(cursor, StagedTable("pg_temp", staging.BATCH), epoch)
            done = True
    except Exception as error:  # noqa: BLE001  handed to the caller, who knows what became of the transaction
        return done, error
    return done, None


def _current(driver: Driver[Any]) -> Any:
    if driver.info.transaction_status is not TransactionStatus.INTRANS:
        return None
    return driver.execute(_WHICH).fetchone()


def _failed(sink: str, epoch: int, error: Exception) -> Exception:
    failure = errors.read(error)
    reason = failure.reason if failure else str(error).strip().partition("\n")[0]
    state = f", SQLSTATE {failure.state}" if failure and failure.state else ""
    kind = f"{type(error).__name__}{state}"
    return refuse("E518", sink=sink, epoch=epoch, reason=mask(f"{kind}: {reason}" if reason else kind))


def _shown(driver: Driver[Any], waiting: Waiting) -> bool:
    """Give rows from executors the same name as rows through the driver, and return whether that took a view."""
    if not waiting.parameters:
        return False
    columns = ", ".join(f"s.{quote(name)}" for name in waiting.columns)
    # A view takes no parameters from outside: the driver puts the numbers into the text.
    text = f"CREATE TEMPORARY VIEW {staging.BATCH} AS SELECT {columns} {waiting.source}"
    ClientCursor(driver).execute(text.encode(), dict(waiting.parameters))
    return True


def _settle(driver: Driver[Any], view: bool) -> None:
    """Drop the function's helpers, and restore the transaction's settings that it may have changed."""
    with driver.pipeline():
        driver.execute(_MEND)
        if view:
            driver.execute(f"DROP VIEW IF EXISTS pg_temp.{staging.BATCH} CASCADE".encode())
        driver.execute(f"SELECT {DURABLE}".encode())
