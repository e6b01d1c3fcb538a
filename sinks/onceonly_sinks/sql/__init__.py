"""Base class of SQL sinks over any DB-API connection.

:class:`SqlSink` implements the whole contract. A driver adds the connection and, if need be, the insert. ``tables`` and
``commit_outcome`` are its parts, for a sink that differs with its database, such as ours for Postgres.
"""

from onceonly_sinks.sql.commit_outcome import Failed, Failure
from onceonly_sinks.sql.database import Cursor, Database, Paramstyle, quote
from onceonly_sinks.sql.sink import SqlSink
from onceonly_sinks.sql.tables import Head, HeadScope, Tables

__all__ = ["Cursor", "Database", "Failed", "Failure", "Head", "Paramstyle", "SqlSink", "Tables", "HeadScope", "quote"]
