"""What a failure of the database means: by SQLSTATE and severity, never by its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onceonly.errors import OnceOnlyError, mask, refuse

LOCK_NOT_AVAILABLE = "55P03"
INSUFFICIENT_PRIVILEGE = "42501"
NO_SUCH_TABLE = "42P01"

_UNKNOWN_COMPLETION = "40003"
_IN_COPY = re.compile(r"\bcolumn (?P<column>[^:\n]+)")
_GRANT = "grant what is missing: INSERT and SELECT on the table, USAGE and CREATE on schema onceonly"


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a database error, copied out of it.

    Attributes:
        state: SQLSTATE; empty where the server said none (a refused or cut connection).
        severity: ``ERROR``, ``FATAL`` or ``PANIC``; empty where the server said none.
        reason: the primary message, one line, without secrets.
        detail: the server's detail, may quote values of the row.
        column: the column it names, if any.
        constraint: the constraint it names, if any.
        password: whether the login failed over a password.
    """

    state: str
    severity: str = ""
    reason: str = ""
    detail: str = ""
    column: str = ""
    constraint: str = ""
    password: bool = False

    @property
    def transaction_is_over(self) -> bool:
        """Whether the server said that the transaction failed: an ERROR aborts it, a FATAL may follow a commit."""
        return self.severity == "ERROR" and self.state != _UNKNOWN_COMPLETION and not self.state.startswith("08")


@dataclass(frozen=True, slots=True)
class Context:
    """What a message needs beside the failure.

    Attributes:
        sink: sink id.
        address: address without secrets.
        types: name of a column to its type in the batch, for the message.
    """

    sink: str
    address: str = ""
    types: Mapping[str, str] = field(default_factory=dict[str, str])


def read(error: BaseException) -> Failure | None:
    """Read a failure out of a driver's or SQLAlchemy's exception; ``None`` if it is neither."""
    import psycopg
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    if isinstance(error, DBAPIError):
        return read(error.orig) if error.orig else Failure("", reason=type(error).__name__)
    if isinstance(error, PoolTimeout):
        return Failure("", reason="no free connection")
    if not isinstance(error, psycopg.Error):
        return None
    said, login = error.diag, error.pgconn
    first = str(error).split("\n", 1)[0] or type(error).__name__
    in_copy = _IN_COPY.search(said.context or "")
    return Failure(
        state=error.sqlstate or "",
        severity=said.severity_nonlocalized or "",
        reason=mask(said.message_primary or first),
        detail=said.message_detail or "",
        column=said.column_name or (in_copy["column"].strip() if in_copy else ""),
        constraint=said.constraint_name or "",
        password=error.sqlstate is None and login is not None and (login.used_password or login.needs_password),
    )


def refusal(failure: Failure, context: Context) -> OnceOnlyError:
    """The error that a failure before or instead of a commit becomes."""
    for states, make in _FAMILIES:
        if failure.state.startswith(states):
            return make(failure, context)
    unspoken = _login if failure.password else _unreachable
    return _other(failure, context) if failure.state else unspoken(failure, context)


def _login(failure: Failure, context: Context) -> OnceOnlyError:
    next_ = "set PGPASSWORD or correct the connection string"
    return refuse("E502", sink=context.sink, reason=failure.reason, next=next_)


def _right(failure: Failure, context: Context) -> OnceOnlyError:
    return refuse("E502", sink=context.sink, reason=failure.reason, next=_GRANT)


def _unreachable(failure: Failure, context: Context) -> OnceOnlyError:
    return refuse("E501", sink=context.sink, reason=failure.reason, address=context.address)


def _no_room(failure: Failure, context: Context) -> OnceOnlyError:
    return refuse("E507", sink=context.sink, reason=failure.reason)


def _other_shape(failure: Failure, context: Context) -> OnceOnlyError:
    next_ = "restart the query; it reads the table again"
    return refuse("E506", sink=context.sink, difference=failure.reason, next=next_)


def _value(failure: Failure, context: Context) -> OnceOnlyError:
    column = failure.column or "(not named by the server)"
    reason, next_ = failure.reason, "change the query or the column's type, then restart the query"
    if failure.constraint and not failure.column:
        column = f"in constraint {failure.constraint}"
    if failure.state == "23505":
        reason = f"{reason} ({failure.detail})" if failure.detail else reason
        next_ = "find out who wrote the row; if a later row is to replace it: PostgresSink(..., key=...)"
    if kind := context.types.get(failure.column):
        column = f"{column} ({kind})"
    return refuse("E503", sink=context.sink, column=column, reason=reason, next=next_)


_CAUSES: Mapping[str, str] = {
    LOCK_NOT_AVAILABLE: "another session holds a lock on the table; see pg_stat_activity and pg_locks",
    "57014": "a timeout of the server, or somebody cancelled the statement",
    "40001": "another transaction changed the same rows at the same moment",
    "40P01": "another transaction locked the same rows in another order",
    "0A000": "a feature of the table (row security, a view, a rule) that rows cannot be loaded through",
}


def _other(failure: Failure, context: Context) -> OnceOnlyError:
    cause = _CAUSES.get(failure.state, f"the server's answer {failure.state}")
    return refuse(
        "E508", sink=context.sink, reason=failure.reason, cause=cause, next="remove the cause, then restart the query"
    )


_FAMILIES: tuple[tuple[tuple[str, ...], Callable[[Failure, Context], OnceOnlyError]], ...] = (
    (("28",), _login),
    ((INSUFFICIENT_PRIVILEGE,), _right),
    (("08", "57P", "53300", "25P03", "25P04"), _unreachable),
    (("53", "25006", "58030"), _no_room),
    (("22", "23"), _value),
    ((NO_SUCH_TABLE, "42703", "42804", "42P07", "42701", "42P10", "428C9"), _other_shape),
)
"""Beginnings of SQLSTATEs, first match first."""
