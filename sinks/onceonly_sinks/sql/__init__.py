"""Base class of SQL sinks over any DB-API connection.

:class:`SqlSink` implements the whole contract. A driver adds the connection and, if need be, the insert. ``tables`` and
``commit_outcome`` are its parts, for a sink that differs with its database, such as ours for Postgres.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_checkpoints import on_demand
from onceonly_sinks.sql.commit_outcome import Failed, Failure
from onceonly_sinks.sql.tables import Cursor, Database, Head, HeadScope, Paramstyle, Tables, quote

if TYPE_CHECKING:
    from onceonly_sinks.sql.sink import SqlSink

__all__ = ["Cursor", "Database", "Failed", "Failure", "Head", "Paramstyle", "SqlSink", "Tables", "HeadScope", "quote"]
__dir__ = [*__all__, "__version__"].copy
# The Postgres sink uses the parts alone.
__getattr__ = on_demand(__name__, {"SqlSink": "sink"})
