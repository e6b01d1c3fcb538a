"""Base of SQL sinks: head and epoch tables, rules, commit outcomes.

:class:`SqlSink` is the whole contract over any DB-API connection; a driver adds how to connect and how rows are put.
``tables`` and ``outcome`` are its parts, for a sink that goes its own way where its database does: ours for Postgres.
"""

from onceonly_sinks.sql.commit_outcome import Failed, Failure
from onceonly_sinks.sql.database import Cursor, Database, Paramstyle, quote
from onceonly_sinks.sql.sink import SqlSink
from onceonly_sinks.sql.tables import Head, HeadScope, Tables

__all__ = ["Cursor", "Database", "Failed", "Failure", "Head", "Paramstyle", "SqlSink", "Tables", "HeadScope", "quote"]
