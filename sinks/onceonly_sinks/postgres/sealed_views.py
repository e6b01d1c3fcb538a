"""Views ``<table>_sealed`` that hide an epoch until all sinks hold it.

Each commit notes in the head which epoch it proves. That is the epoch before it, or the epoch itself if all sinks are
in this very transaction. Once an epoch is recorded, the sink learns it too (``seal``). The views of a pipeline show
the greatest number in its heads, so that one statement over several of them sees one epoch.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import mask, refuse
from onceonly_sinks.postgres import errors, history
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.options import SEALED
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import TableName, quote
from onceonly_sinks.postgres.transaction import Transactions, raw
from onceonly_sinks.postgres.upsert import Merge
from onceonly_sinks.sql.tables import OURS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly_checkpoints.epoch import Epoch

log = logging.getLogger(__name__)

# One statement is one transaction and one trip. Its commit waits for no disk: lost in a crash, it leaves the view one
# epoch behind until the next commit. It waits for a lock no longer than it is worth.
_SEAL = f"""
WITH said AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '100ms', true))
UPDATE onceonly.head SET sealed = epoch FROM said
WHERE {OURS} AND epoch = %(epoch)s AND chain = %(chain)s AND sealed < epoch
"""


def name_of(table: TableName) -> TableName:
    """The view of a table."""
    return replace(table, name=f"{table.name}{SEALED}")


def ready(connection: Connection, table: Table, writer: PostgresHeadScope, merge: Merge) -> None:
    """Create the view, or give it new columns of its table, in the open transaction.

    Raises E506: the table has no column that numbers its rows.
    """
    if table.epoch_column is None:
        difference = "sealed_view=True shows rows by a bigint column with the epoch's number, and the table has none"
        cause = "the table was made before sealed_view= was given"
        next_ = f"ALTER TABLE {table.name.printed} ADD COLUMN _epoch bigint; or leave sealed_view= out"
        words = {"mismatch": "cannot have a sealed view", "because": cause, "next": next_}
        raise refuse("E506", sink=writer.sink, difference=difference, **words)
    sealed = f"(SELECT coalesce(max(h.sealed), 0) FROM onceonly.head h WHERE h.pipeline = {_text(writer.pipeline)})"
    columns = ", ".join(f"t.{quote(column.name)}" for column in table.columns)
    if merge.history:
        first, last = f"t.{quote(history.FROM)}", f"t.{quote(history.TO)}"
        where = f"{first} <= {sealed} AND ({last} IS NULL OR {last} > {sealed})"
        rows = f"{history.name_of(table.name).sql} t WHERE {where}"
    else:
        number = f"t.{quote(table.epoch_column)}"
        rows = f"{table.name.sql} t WHERE {number} <= {sealed} OR {number} IS NULL"
    made = f"CREATE OR REPLACE VIEW {name_of(table.name).sql} AS SELECT {columns} FROM {rows}"
    connection.exec_driver_sql(made, {})


def _text(value: str) -> str:
    """A value as a literal of a statement with placeholders. A view keeps no parameter."""
    return "'" + value.replace("'", "''").replace("%", "%%") + "'"


def seal(transactions: Transactions, writer: PostgresHeadScope, epoch: Epoch) -> None:
    """Note that all sinks hold an epoch. Never raises: if it fails, the next commit notes it."""
    try:
        with transactions.at_once() as connection:
            raw(connection).execute(_SEAL, {**writer.parameters, "epoch": epoch.number, "chain": epoch.chain})
    except Exception as error:  # noqa: BLE001  the epoch is committed and recorded
        failure = errors.read(error)
        reason = failure.reason if failure else mask(f"{type(error).__name__}: {error}")
        log.warning("%s: its view shows epoch %s with the next one: %s", writer.sink, epoch.number, reason)
