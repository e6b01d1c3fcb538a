"""Translate psycopg errors into refusals.

The head row decides first, then sessions that hold locks, then the server's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from onceonly.protocol import Conflict, OutcomeUnknown, Superseded
from onceonly.protocol.batch import TooLargeForDriver
from onceonly_sinks.postgres import errors, head, schema, staging
from onceonly_sinks.postgres.errors import Failure
from onceonly_sinks.postgres.head import Head, PostgresHeadScope
from onceonly_sinks.postgres.lanes import ValueRefused
from onceonly_sinks.postgres.load import Target, TooLarge
from onceonly_sinks.postgres.server import TableName
from onceonly_sinks.postgres.transaction import Transactions

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")

Judge = Callable[[Head | None], Exception | None]
"""What the head row says of an attempt; ``None``: nothing against it."""

_ENDED = "a user, a timeout of the server or the network ended the session before the COMMIT"

_PASSED_ON = (Superseded, OutcomeUnknown, Conflict, TooLarge, TooLargeForDriver)


class ErrorTranslator:
    """Translates a driver's exceptions into our errors, for one sink.

    After a failure it reads the writer's head through ``transactions``. ``target`` is set once it was looked at.
    """

    def __init__(
        self, transactions: Transactions, writer: PostgresHeadScope, name: TableName, context: errors.Context
    ) -> None:
        self._transactions = transactions
        self._writer = writer
        self._name = name
        self._context = context
        self.target: Target | None = None

    @contextmanager
    def refusals(self) -> Generator[None]:
        """Within, nothing commits, and a failure is translated."""
        try:
            yield
        except Exception as error:
            failure = errors.read(error)
            translation = self._translate(error, failure, {})
            if translation is error:
                raise
            raise translation from (None if failure is None or failure.quotes else error)

    @contextmanager
    def attempt(self, judge: Judge, types: Callable[[], Mapping[str, str]]) -> Generator[None]:
        """Within, rows are brought or committed, and a failure means that they certainly were not.

        A newer driver ends our sessions and drops our staging, which looks like a lost server or a lost table. So the
        head is read first, on a connection of its own. ``judge`` gives a head's verdict on the attempt. ``types``,
        Spark's type by column, is called after a failure.

        Raises ``Superseded``: another fence is installed. Raises ``Conflict``: the server rolled back because of
        another transaction, or the connection was lost before the COMMIT was sent, while our fence holds. Raises
        ``OnceOnlyError``: the verdict on the head, or else the server's refusal.
        """
        try:
            yield
        except _PASSED_ON:
            raise
        except Exception as error:
            answered, deeper = self._head(judge)
            if deeper is not None:
                raise deeper from error
            failure = errors.read(error)
            if failure is not None and (failure.conflicts or (answered and failure.lost)):
                raise Conflict(
                    self._writer.sink, failure.reason, _ENDED if failure.lost else self._blocker()
                ) from error
            translation = self._translate(error, failure, types())
            if translation is error:
                raise
            raise translation from (None if failure is None or failure.quotes else error)

    def against(self, judge: Judge) -> Exception | None:
        """The head's verdict against an attempt now, or ``None`` if there is none or no answer."""
        return self._head(judge)[1]

    def _translate(self, error: Exception, failure: Failure | None, types: Mapping[str, str]) -> Exception:
        if isinstance(error, ValueRefused):
            return staging.refused(self._writer.sink, error)
        if failure is None:
            return error
        from onceonly_checkpoints.ledger.databases import absent_database

        if not failure.state and (database := absent_database(errors.raised(error))):
            return errors.no_database(self._writer.sink, database)
        blocker = self._blocker() if failure.conflicts else ""
        # Row security forbids a COPY and, for rows that no policy lets in, an INSERT.
        grant = self._grant() if failure.state in (errors.INSUFFICIENT_PRIVILEGE, errors.NOT_SUPPORTED) else ""
        context = replace(self._context, types=types, blocker=blocker, grant=grant)
        name = self.target.name if self.target and failure.state == errors.NOT_IN_STATE else None
        if name and self._query_server(lambda connection: schema.unidentified(connection, name)):
            context = errors.unidentified(context, name)
        return errors.refusal(self._defined(failure), context)

    def _grant(self) -> str:
        """The first command that the doctor prints for the role, then the next step."""
        target = self.target
        if target is None:
            return ""
        from onceonly_sinks.postgres import health

        command = self._query_server(lambda connection: health.lacking(connection, self._writer.sink, target))
        return f"{command}; then restart the query" if command else ""

    def _defined(self, failure: Failure) -> Failure:
        if not failure.constraint:
            return failure
        constraint = self._query_server(
            lambda connection: schema.constraint(connection, failure.table, failure.constraint)
        )
        columns, definition, _ = constraint or ("", "", False)
        return replace(failure, column=failure.column or columns, definition=definition)

    def _blocker(self) -> str:
        """Describe the sessions that lock the table or our own tables now."""
        holders = self._query_server(lambda connection: schema.holders(connection, self._name, self._writer.tag))
        return holders or "the lock is free again, and its holder is not known"

    def _head(self, judge: Judge) -> tuple[bool, Exception | None]:
        def look(connection: Connection) -> tuple[bool, Exception | None]:
            return True, judge(head.read(connection, self._writer) if head.exists(connection) else None)

        return self._query_server(look) or (False, None)

    def _query_server(self, ask: Callable[[Connection], T]) -> T | None:
        """Query the server after a failure. Return ``None`` if it does not answer."""
        try:
            with self._transactions.reading() as connection:
                return ask(connection)
        except Exception as error:
            if not isinstance(error, SQLAlchemyError) and errors.read(error) is None:
                raise
            return None
