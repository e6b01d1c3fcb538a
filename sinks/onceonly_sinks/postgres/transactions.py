"""Opens the sink's transactions, and sends their COMMIT: the one place where an outcome can become unknown."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from onceonly import faults
from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown
from onceonly_sinks.postgres import classify, head
from onceonly_sinks.postgres import statements as q
from onceonly_sinks.postgres.patience import Patience
from onceonly_sinks.postgres.server import Server

if TYPE_CHECKING:
    from sqlalchemy import Connection

log = logging.getLogger(__name__)


class Transactions:
    """Transactions of one sink.

    Args:
        server: where.
        context: for messages.
        patience: seconds that the answer to a COMMIT, or to a statement that settles one, may take.
        lock_seconds: how long a statement waits for somebody else's lock, where nothing else is said.
    """

    def __init__(self, server: Server, context: classify.Context, patience: float, lock_seconds: float) -> None:
        self._engine = server.engine()
        self._context = context
        self.lock_seconds = lock_seconds
        self._patience = Patience(patience, context.sink)

    def begin(self, application: str, lock_seconds: float) -> Connection:
        """Open a writing transaction; end it with :meth:`send` or :meth:`drop`.

        Raises:
            DBAPIError: the server does not answer.
        """
        return self.begin_with(application, lock_seconds)[0]

    def begin_with(
        self, application: str, lock_seconds: float, *statements: tuple[str, Mapping[str, Any]]
    ) -> tuple[Connection, list[Any]]:
        """Open a writing transaction with its first statements in one trip; return the last one's rows.

        The last statement must be a query.

        Raises:
            DBAPIError, psycopg.Error: a statement failed, or the server does not answer.
        """
        first = head.settings(application, lock_seconds)
        try:
            return self._begin([first, *statements])
        except Exception as error:
            failure = classify.read(error)
            if failure is None or failure.severity == "ERROR":
                raise
            # The pool may hold connections that died since their last use; nothing was done yet, so a fresh one tries.
            self._engine.dispose()
            return self._begin([first, *statements])

    def _begin(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[Connection, list[Any]]:
        connection = self._engine.connect()
        try:
            connection.begin()
            with raw(connection).pipeline():
                cursors = [raw(connection).execute(statement, parameters) for statement, parameters in statements]
            return connection, cursors[-1].fetchall()
        except BaseException:
            self.drop(connection, cut=True)
            raise

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that only reads."""
        connection = self._connect()
        try:
            yield connection
        finally:
            self.drop(connection)

    def _connect(self) -> Connection:
        """A connection that answers: the pool may hold some that died since their last use."""
        connection = self._engine.connect()
        try:
            self._impatient(connection)
        except DBAPIError:
            self.drop(connection, cut=True)
            self._engine.dispose()
            connection = self._engine.connect()
            self._impatient(connection)
        return connection

    def _impatient(self, connection: Connection) -> None:
        """The first statement of a reading transaction, which shows whether the connection answers."""
        connection.exec_driver_sql(q.READING, {"lock": f"{int(self.lock_seconds * 1000)}ms"})

    def send(self, connection: Connection, point: Point | None = None) -> None:
        """Commit, pass the fault point if there is one, and give the connection back.

        Raises:
            Refused: the server refused; nothing of the transaction is visible.
            OnceOnlyError: the transaction was over before.
            OutcomeUnknown: sent, and no answer came, or one that does not say.
        """
        # A COMMIT of a transaction that failed unnoticed is answered with a friendly ROLLBACK.
        if raw(connection).info.transaction_status.name != "INTRANS":
            self.drop(connection)
            cause = "a statement in it failed and the failure was not passed on"
            raise refuse(
                "E508",
                sink=self._context.sink,
                reason="the transaction was already over",
                cause=cause,
                next="restart the query",
            )
        try:
            with self.answering(connection):
                connection.commit()
            if point is not None:
                faults.fire(point)
        except Exception as error:
            self.drop(connection, cut=True)
            failure = classify.read(error)
            if failure is not None and failure.transaction_is_over:
                raise classify.Refused(failure) from (None if failure.quotes else error)
            reason = failure.reason if failure else type(error).__name__
            raise OutcomeUnknown(self._context.sink, reason) from error
        except BaseException:  # the driver is told to end: nobody asks for the answer any more
            self.drop(connection, cut=True)
            raise
        connection.close()

    def answering(self, connection: Connection) -> AbstractContextManager[None]:
        """Within, a server that is silent for longer than the patience fails as one whose connection was lost."""
        return self._patience.waiting(raw(connection))

    def drop(self, connection: Connection, *, cut: bool = False) -> None:
        """Roll back and give the connection back; ``cut``: close its socket instead. Never raises; may repeat."""
        if connection.closed:
            return
        try:
            if cut:
                connection.invalidate()
            else:
                connection.rollback()
        except SQLAlchemyError:
            log.debug("%s: a connection was lost before its rollback", self._context.sink)
        connection.close()

    def close(self) -> None:
        """Close every idle connection. May repeat."""
        self._engine.dispose()
        self._patience.close()


def raw(connection: Connection) -> Any:
    """The psycopg connection beneath."""
    return connection.connection.driver_connection
