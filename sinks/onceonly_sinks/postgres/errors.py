"""Classify Postgres errors by SQLSTATE and severity, never by message text."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from onceonly.errors import OnceOnlyError, mask, refuse
from onceonly_sinks.postgres.server import TableName, printed

LOCK_NOT_AVAILABLE = "55P03"
INSUFFICIENT_PRIVILEGE = "42501"
NO_SUCH_TABLE = "42P01"
NOT_SUPPORTED = "0A000"
NOT_IN_STATE = "55000"

_UNKNOWN_COMPLETION = "40003"
"""Of class 40, whose other states say that the transaction was taken back; this one says that nobody knows."""

# The only text that is read: a COPY's line has no field of its own. A server that speaks another language is not
# understood, and the message lacks the place; nothing is decided by it.
_IN_COPY = re.compile(r"^COPY .*?, line (?P<line>\d+)(?:, column (?P<column>[^:\n]+))?", re.MULTILINE)
_GRANT = "grant the missing rights: INSERT and SELECT on the table, USAGE and CREATE on schema onceonly"
"""Where it cannot be found out what the role lacks."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Facts of a database error, copied out of it.

    Attributes:
        state: SQLSTATE, empty if the server sent none (a refused or cut connection).
        severity: ``ERROR``, ``FATAL`` or ``PANIC``, empty if the server sent none.
        reason: one line, without secrets. Our own words for a refused value, as the server's may quote it. Otherwise
            the server's primary message.
        table: schema and table of the constraint.
        line: number of the row in a COPY, from 1, or 0 for none.
        row_text: origin of the refused row, if known.
        shape: form of the refused value, if known.
        definition: the constraint as SQL, if it could be looked up.
        password: whether the login failed over a password.
    """

    state: str
    severity: str = ""
    reason: str = ""
    column: str = ""
    constraint: str = ""
    table: tuple[str, str] = ("", "")
    line: int = 0
    row_text: str = ""
    shape: str = ""
    definition: str = ""
    password: bool = False

    @property
    def deferred(self) -> str:
        """The command that defers the constraint's check to the end of the transaction."""
        table = ".".join(map(printed, filter(None, self.table)))
        return f"ALTER TABLE {table} ALTER CONSTRAINT {printed(self.constraint)} DEFERRABLE INITIALLY DEFERRED"

    @property
    def quotes(self) -> bool:
        """Whether the server's message may quote a value. Then neither the error nor its cause is shown."""
        return self.state.startswith(_VALUES)

    @property
    def conflicts(self) -> bool:
        """Whether the server rolled the transaction back because of others. It can be retried."""
        return self.state in _CONFLICTS

    @property
    def lost(self) -> bool:
        """Whether the connection is gone. Before a COMMIT was sent, that rolls the transaction back."""
        # 57P: the session was ended, or the server is going down or coming up. 25P03 and 25P04 are timeouts that end
        # the session with the transaction. A connection that breaks has no state at all, and neither has a login that
        # is refused.
        return not self.password and (not self.state or self.state.startswith(("08", "57P", "25P03", "25P04")))

    @property
    def transaction_is_over(self) -> bool:
        """Whether the server reported that the transaction failed: an ERROR aborts it, a FATAL may follow a commit."""
        # A session that is ended while its commit waits for a standby has committed already. Class 08 tells of the
        # connection, in whatever severity: 08007 is a COMMIT of which nobody knows. Taken for a refusal, an epoch that
        # stands would be reported as not written.
        return self.severity == "ERROR" and self.state != _UNKNOWN_COMPLETION and not self.state.startswith("08")


@dataclass(frozen=True, slots=True)
class Context:
    """Further parts of a message, beside the failure.

    Attributes:
        address: address without secrets.
        types: name of a column to its type in the batch.
        blocker: description of the sessions that hold the locks.
        grant: the command that gives the role or the table the missing right or setting.
        cause: likely cause, if more is known than the server's answer.
    """

    sink: str
    address: str
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    blocker: str = ""
    grant: str = ""
    cause: str = ""


class Refused(Exception):
    """A server's refusal, read from the driver's exception, with details of the refused row."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure

    def __reduce__(self) -> tuple[type[Refused], tuple[Failure]]:
        """Pickle the failure: the text alone could not rebuild it."""
        return Refused, (self.failure,)


def read(error: BaseException) -> Failure | None:
    """Read a failure out of a driver's or SQLAlchemy's exception, or ``None`` if it is neither."""
    import psycopg
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    if isinstance(error, Refused):
        return error.failure
    if isinstance(error, DBAPIError):
        return read(error.orig) if error.orig else Failure("", reason=type(error).__name__)
    if isinstance(error, PoolTimeout):
        return Failure("", reason="no free connection")
    if not isinstance(error, psycopg.Error):
        return None
    diagnostics, login = error.diag, error.pgconn
    first = str(error).split("\n", 1)[0] or type(error).__name__
    in_copy = _IN_COPY.search(diagnostics.context or "")
    state = error.sqlstate or ""
    return Failure(
        state=state,
        severity=diagnostics.severity_nonlocalized or "",  # the plain one is translated by the server's lc_messages
        reason=refused_value(state, diagnostics.constraint_name) or mask(diagnostics.message_primary or first),
        column=diagnostics.column_name or ((in_copy["column"] or "").strip() if in_copy else ""),
        constraint=diagnostics.constraint_name or "",
        table=(diagnostics.schema_name or "", diagnostics.table_name or ""),
        line=int(in_copy["line"]) if in_copy else 0,
        password=error.sqlstate is None and login is not None and (login.used_password or login.needs_password),
    )


def raised(error: BaseException) -> BaseException:
    """The driver's exception, if SQLAlchemy wrapped it."""
    return getattr(error, "orig", None) or error


def no_database(sink: str, name: str) -> OnceOnlyError:
    """The error for a server that answers and has no such database."""
    return refuse(
        "E508",
        sink=sink,
        reason=f'the server has no database "{name}"',
        cause="a misspelt name in the connection string, or it was not created",
        next=f"correct the name, or create it: CREATE DATABASE {printed(name)}; then restart the query",
    )


def refusal(failure: Failure, context: Context) -> OnceOnlyError:
    """The error for a failure before or instead of a commit."""
    for states, make in _FAMILIES:
        if failure.state.startswith(states):
            return make(failure, context)
    unspoken = _login if failure.password else _unreachable
    return _other(failure, context) if failure.state else unspoken(failure, context)


@contextmanager
def refusing(context: Context) -> Generator[None]:
    """Within, on an executor, a failure of the server is refused: Spark may try the task again."""
    import psycopg

    try:
        yield
    except (psycopg.Error, Refused) as error:
        failure = read(error)
        assert failure is not None
        raise refusal(failure, context) from None


def _login(failure: Failure, context: Context) -> OnceOnlyError:
    next_ = "correct user, database or password: in the connection string, PGPASSWORD, ~/.pgpass or a service file"
    return refuse("E502", sink=context.sink, reason=failure.reason, next=next_)


def _right(failure: Failure, context: Context) -> OnceOnlyError:
    return refuse("E502", sink=context.sink, reason=failure.reason, next=context.grant or _GRANT)


def _unreachable(failure: Failure, context: Context) -> OnceOnlyError:
    address = "the server is down, the address is wrong (host, port, database, login), the network is cut"
    cause = f"{address}, or sslmode= does not fit the server"
    return refuse("E501", sink=context.sink, reason=failure.reason, address=context.address, because=cause)


def _no_room(failure: Failure, context: Context) -> OnceOnlyError:
    return refuse("E507", sink=context.sink, reason=failure.reason)


def _other_shape(failure: Failure, context: Context) -> OnceOnlyError:
    return changed(context.sink, failure.reason)


def changed(sink: str, difference: str = "its columns are not those that the epoch was computed for") -> OnceOnlyError:
    """The error for a table that another program changed after the rows were prepared."""
    cause, next_ = "another program altered, replaced or dropped it", "restart the query; it reads the table again"
    return refuse("E506", sink=sink, mismatch="was changed meanwhile", difference=difference, because=cause, next=next_)


def refused_value(state: str, constraint: str | None) -> str:
    """Describe a refusal of class 22 or 23 without quoting a value, empty for any other state."""
    if not state.startswith(_VALUES):
        return ""
    # Postgres gives a row that no partition takes the state of a CHECK, and only there no constraint.
    if state == "23514" and not constraint:
        return "no partition of the table takes the row"
    return _REFUSED.get(state) or ("a value is refused" if state < "23" else "a constraint refuses the row")


def _value(failure: Failure, context: Context) -> OnceOnlyError:
    column = failure.column or "(not named by the server)"
    if kind := context.types.get(failure.column):
        column = f"{column} ({kind})"
    constraint = f"constraint {failure.constraint}" if failure.constraint else ""
    if failure.definition:
        constraint = f"{constraint}: {failure.definition}"
    parts = (failure.shape, constraint, failure.row_text, f"SQLSTATE {failure.state}")
    reason = f"{failure.reason} ({'; '.join(part for part in parts if part)})"
    next_ = _NEXT.get(failure.state, "change the query or the column's type, then restart the query")
    details = {"sink": context.sink, "column": column, "reason": reason, "next": next_.format(failure.deferred)}
    if cause := _AMONG_ROWS.get(failure.state):
        return refuse("E503", **details, because=cause, aside="")
    return refuse("E503", **details)


_VALUES = ("22", "23")
"""Classes of data exceptions and of constraints: the server's own words for them quote the value or the whole row."""

_REFUSED: Mapping[str, str] = {
    "22001": "a value is longer than the column takes",
    "22003": "a number is outside of the range of the column's type",
    "22007": "a text is not a date or time",
    "22008": "a date or time is outside of the server's range",
    "22021": "a text is not valid in the encoding of the database (its setting server_encoding)",
    "22030": "a JSON object names a member twice",
    "22032": "a text is not JSON",
    "22P02": "a text is no value of the column's type: not JSON, or not a label of the enum",
    "22P03": "the bytes are no value of the column's type",
    "22P05": "a character does not exist in the encoding of the database (its setting server_encoding)",
    "23001": "a foreign key of another table keeps the row that would be replaced or removed",
    "23502": "the column is not null, and the row has no value for it",
    "23503": "a foreign key finds no row to point at, or others point at the row",
    "23505": "a row with the same unique key is there already, or twice in the batch",
    "23514": "a CHECK constraint refuses the row",
    "23P01": "an exclusion constraint refuses the row next to an existing one",
}

_NEXT: Mapping[str, str] = {
    "22021": "mend the text in the query, or use a database with ENCODING 'UTF8'",
    "22P05": "replace the character in the query, or use a database with ENCODING 'UTF8'",
    "22032": "mend the text in the query, e.g. with try_parse_json, then restart the query",
    "23502": "fill the column in the query, or give it a DEFAULT, then restart the query",
    "23503": "of two sinks of one call, name the one that is pointed at first: exactly_once(parents, children); or let "
    "the server look when all is written: {0}; or filter such rows in the query, e.g. with transform=; then restart it",
    "23001": "write the tables in the order of their keys, or filter such rows in the query, then restart the query",
    "23P01": "filter such rows in the query, e.g. with transform=, or change the table, then restart the query",
    "23505": "find out who wrote the row; if a later row is to replace it: PostgresSink(..., key=...)",
    "23514": "filter or mend such rows in the query, e.g. with transform=, or change the table, then restart the query",
}

_AMONG_ROWS: Mapping[str, str] = {
    "23001": "another table's rows point at the row that the batch replaces or removes",
    "23503": "the row that is pointed at is written later, or not at all; or a row is removed that others point at",
    "23505": "the row was there before, came twice, or another row has its key",
    "23P01": "a row that was there before, or another one of the batch, excludes it",
}
"""Likely causes of refusals that hang on other rows: no expectation, which sees one row, can set these aside."""


_CONFLICTS = (LOCK_NOT_AVAILABLE, "40001", "40P01")
"""A lock that was not got in ``lock_timeout``, a serialization failure, a deadlock: nothing of the transaction stands,
and what was in its way passes by itself, so the epoch is tried again from the fence."""


def _locked(failure: Failure, context: Context) -> OnceOnlyError:
    return refuse("E529", sink=context.sink, reason=failure.reason, blocker=context.blocker or "not known")


_CAUSES: Mapping[str, str] = {
    "57014": "a timeout of the server, or a user cancelled the statement",
    "40001": "another transaction changed the same rows at the same moment",
    "40P01": "another transaction locked the same rows in another order",
    NOT_SUPPORTED: "a feature of the table (row security, a view, a rule) that rows cannot be loaded through",
}


def _other(failure: Failure, context: Context) -> OnceOnlyError:
    cause = context.cause or _CAUSES.get(failure.state, f"the server's answer {failure.state}")
    next_ = context.grant or "remove the cause, then restart the query"
    return refuse("E508", sink=context.sink, reason=failure.reason, cause=cause, next=next_)


def unidentified(context: Context, name: TableName) -> Context:
    """Add cause and command for a published table whose subscribers cannot identify a changed row."""
    full = f"ALTER TABLE {name.printed} REPLICA IDENTITY FULL"
    remedy = f"{full}; or USING INDEX, a unique index over columns that are NOT NULL; then restart the query"
    cause = "the table is in a publication, and has no replica identity by which subscribers find changed rows"
    return replace(context, grant=remedy, cause=cause)


_FAMILIES: tuple[tuple[tuple[str, ...], Callable[[Failure, Context], OnceOnlyError]], ...] = (
    ((LOCK_NOT_AVAILABLE,), _locked),
    (("28",), _login),
    ((INSUFFICIENT_PRIVILEGE,), _right),
    # 53300, too many connections, passes by itself; the rest of class 53 wants somebody to make room.
    (("08", "57P", "53300", "25P03", "25P04"), _unreachable),
    # 25006 is what a standby answers, after a failover to another server above all.
    (("53", "25006", "58030"), _no_room),
    (("22", "23"), _value),
    # The table was changed under us. 42P10: the unique index behind ON CONFLICT is gone; 428C9: a column has become
    # generated; 42P07 and 42701: somebody else has made the table or the column meanwhile. A new look settles each.
    ((NO_SUCH_TABLE, "42703", "42804", "42P07", "42701", "42P10", "428C9"), _other_shape),
)
"""Beginnings of SQLSTATEs, first match first."""
