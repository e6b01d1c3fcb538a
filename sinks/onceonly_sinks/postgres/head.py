"""SQL and rows of a Postgres sink's ``head`` and ``epoch`` tables.

Only the part that differs from other SQL sinks is here. The rest is in :mod:`onceonly_sinks.sql.tables`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Superseded
from onceonly.protocol.guard import NewestEpoch, check_fence, check_follows
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.sql import tables
from onceonly_sinks.sql.tables import OURS, Row, Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

# ---- The SQL of the sink's own tables, where it is Postgres' own; the rest is :data:`TABLES`, as in every SQL sink.

# IF NOT EXISTS does not order those that come at once: of six, most fail with 23505. The lock is the transaction's, as
# a pooler hands the session to others after it.
LOCK_DDL = "SELECT pg_catalog.pg_advisory_xact_lock(%(key)s)"
# Not CREATE SCHEMA IF NOT EXISTS, which wants CREATE on the database even where the schema is there.
KNOWN_SCHEMA = "SELECT pg_catalog.to_regnamespace('onceonly') IS NOT NULL"
SCHEMA = "CREATE SCHEMA onceonly"
# By functions that answer null: a table that is not there is an error elsewhere, which would end the transaction.
TABLES_EXIST = """
SELECT pg_catalog.to_regclass('onceonly.epoch') IS NOT NULL AND pg_catalog.to_regclass('onceonly.pruned') IS NOT NULL
       AND EXISTS (SELECT FROM pg_catalog.pg_attribute a
                   WHERE a.attrelid = pg_catalog.to_regclass('onceonly.head') AND a.attname = 'kept_upto')
"""
TABLES = Tables(
    head="onceonly.head",
    epoch="onceonly.epoch",
    target_columns={"system_id": "text", "timeline": "bigint", "target_oid": "bigint"},
    target="target_oid",
    now="clock_timestamp()",  # now() is when the transaction began: before its rows were copied
    moment="timestamptz NOT NULL DEFAULT clock_timestamp()",
    storage=" WITH (fillfactor = 50)",  # each epoch updates the row: with room in its page, no index is written
)
# sealed: the newest epoch that all sinks of the pipeline are known to hold. kept_from, kept_upto: the oldest and the
# newest epoch that a history tells.
DDL = (
    *TABLES.ddl,
    """
    ALTER TABLE onceonly.head ADD COLUMN IF NOT EXISTS sealed bigint NOT NULL DEFAULT 0,
                              ADD COLUMN IF NOT EXISTS kept_from bigint NOT NULL DEFAULT 0,
                              ADD COLUMN IF NOT EXISTS kept_upto bigint NOT NULL DEFAULT 0
    """,
    """
    CREATE TABLE IF NOT EXISTS onceonly.pruned (
        pipeline text NOT NULL, sink text NOT NULL,
        epoch bigint NOT NULL, chain text NOT NULL, rows bigint NOT NULL, accepted bigint NOT NULL,
        pruned_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (pipeline, sink)
    )
    """,
)

# A weaker setting of the server or the role would let an acknowledged epoch vanish; a stronger one is kept.
DURABLE = """
set_config('synchronous_commit',
           CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
                ELSE current_setting('synchronous_commit') END, true)
"""

# Local to the transaction, so that a pooler hands none of it to others. A role's own timeouts would end an epoch in its
# midst: between two pieces of rows it is idle for as long as Spark computes. The name is by which a successor finds and
# ends a session that keeps the head locked.
SETTINGS = f"""
SELECT set_config('application_name', %(application)s, true), set_config('lock_timeout', %(lock)s, true),
       set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true),
       {DURABLE}
"""

# A role may have settings of its own, by which the server rounds a double, or spells a day as the driver cannot read.
SPELLED = """
set_config('datestyle', 'ISO', true), set_config('timezone', 'UTC', true), set_config('bytea_output', 'hex', true),
set_config('intervalstyle', 'postgres', true), set_config('extra_float_digits', '1', true)
"""

# Without it an opening waits, without a word and without end, for an ALTER that somebody has left open.
READING = f"SELECT set_config('lock_timeout', %(lock)s, true), {SPELLED}"

CLUSTER = "(SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c)"
# Of the file that is being written: pg_control_checkpoint() still shows the old timeline after a promotion.
TIMELINE = "('x' || substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"

UNSEEN = "unseen"
"""Stands for the cluster's identifier where the server does not tell it."""

# One statement: it waits for the row's lock, looks at the row as it is then, and moves it only from where we left it.
# here: what the server says it is; materialized, or it would be asked anew at each mention.
# advanced: the head, if fence and chain are those we follow. A table that is not the one of the last epoch is refused
# here, too; an adoption accepts what it finds. A sink joins above whatever it holds from an earlier time.
# written: the epoch row, only if the head moved. Where one lies there already it stays empty, and so does the answer:
# the caller takes that for a refusal and rolls the head back.
ADVANCE = f"""
WITH here AS MATERIALIZED ({{place}}),
advanced AS (
    UPDATE onceonly.head h
    SET epoch = %(epoch)s, chain = %(chain)s, sealed = %(sealed)s,
        kept_upto = CASE WHEN %(keeps)s THEN %(epoch)s ELSE kept_upto END,
        system_id = CASE WHEN '{UNSEEN}' IN (h.system_id, here.system_id) AND h.target_oid <> 0 AND NOT %(adopts)s
                         THEN h.system_id ELSE here.system_id END, timeline = here.timeline, target_oid = %(oid)s,
        updated_at = clock_timestamp()
    FROM here
    WHERE {OURS} AND h.generation = %(generation)s AND h.owner = %(owner)s
      AND ((h.epoch = %(before_epoch)s AND h.chain = %(before_chain)s)
           OR (%(joins)s AND h.epoch <= %(before_epoch)s))
      AND (h.target_oid = 0 OR %(adopts)s OR (h.target_oid = %(oid)s
           AND (h.system_id = here.system_id OR '{UNSEEN}' IN (h.system_id, here.system_id))))
    RETURNING h.system_id, h.timeline
),
written AS (
    INSERT INTO onceonly.epoch
        (pipeline, sink, epoch, generation, owner, chain, rows, marker, system_id, timeline, target_oid)
    SELECT %(pipeline)s, %(sink)s, %(epoch)s, %(generation)s, %(owner)s, %(chain)s, %(rows)s, %(marker)s,
           a.system_id, a.timeline, %(oid)s
    FROM advanced a
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT a.system_id, a.timeline FROM advanced a, written
"""

# A DELETE has no LIMIT; the first look after a long time would otherwise hold its locks for all that has gathered. What
# goes comes back, for REMEMBER: the milestone is written in the same transaction, or history would lose its beginning.
FORGET = f"""
DELETE FROM onceonly.epoch WHERE {OURS} AND epoch IN (
    SELECT epoch FROM onceonly.epoch WHERE {OURS} AND epoch <= %(upto)s ORDER BY epoch LIMIT %(limit)s)
RETURNING epoch, chain, rows, marker
"""
# Rows are summed up, so that a recount has something to be compared with; what was accepted begins the sum anew.
REMEMBER = """
INSERT INTO onceonly.pruned AS p (pipeline, sink, epoch, chain, rows, accepted)
VALUES (%(pipeline)s, %(sink)s, %(epoch)s, %(chain)s, %(rows)s, %(accepted)s)
ON CONFLICT (pipeline, sink) DO UPDATE
SET epoch = excluded.epoch, chain = excluded.chain,
    rows = CASE WHEN excluded.accepted > 0 THEN 0 ELSE p.rows END + excluded.rows,
    accepted = greatest(p.accepted, excluded.accepted), pruned_at = clock_timestamp()
"""
MILESTONE = f"SELECT epoch, chain, rows, accepted FROM onceonly.pruned WHERE {OURS}"

# In one statement, so that all of them are as of one moment.
PEERS = """
SELECT e.marker FROM onceonly.head h JOIN onceonly.epoch e USING (pipeline, sink, epoch)
WHERE h.target_oid = %(oid)s ORDER BY h.pipeline, h.epoch
"""

BACKENDS = """
SELECT pid, application_name FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND pid <> pg_catalog.pg_backend_pid() AND starts_with(application_name, %(prefix)s)
"""
# A transaction of several sinks has the name of one of them. Whoever changes or locks a row leaves its number in it.
HOLDERS = f"""
SELECT a.pid, a.application_name
FROM onceonly.head h
JOIN pg_catalog.pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = h.xmax
JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE {OURS} AND a.datname = current_database() AND a.pid <> pg_catalog.pg_backend_pid()
  AND starts_with(a.application_name, 'onceonly:')
"""
# By name, too: the process id may be another session's by now.
TERMINATE = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE pid = %(pid)s AND application_name = %(name)s
"""


# ---- What the rows of these tables mean, and the steps of a transaction on them.
#
# They are the tables of every SQL sink (:mod:`onceonly_sinks.sql.tables`), with what says here which table it was,
# and with an ``advance`` of one statement. The functions here run one statement each inside the caller's transaction;
# :func:`judge` decides without I/O.


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """Identity of the database and the table.

    Attributes:
        system: the cluster's system identifier, empty if nothing was written yet.
        timeline: goes up when a standby is promoted or a backup is recovered, 0 if the server hides it.
        oid: the table's, 0 if it did not exist.
    """

    system: str
    timeline: int
    oid: int

    @property
    def identity(self) -> str:
        """As in a receipt, empty if the table does not exist."""
        return f"{self.system}/{self.oid}" if self.oid else ""

    def identity_now(self, identity: str) -> str:
        """Our identity, or the other one if the two differ only in a system identifier that a server hid."""
        system, _, oid = identity.rpartition("/")
        unseen = UNSEEN in (system, self.system)
        return identity if unseen and self.oid and oid == str(self.oid) else self.identity

    def follows(self, identity: str) -> bool:
        """Whether the table is on another server. A table that was recreated would be on the same one."""
        system = identity.rpartition("/")[0]
        return bool(self.oid) and UNSEEN not in (system, self.system) and system != self.system


@dataclass(frozen=True, slots=True)
class Visibility:
    """Identity functions that the server lets us call. A managed server may forbid or lack them.

    ``cluster`` needs ``pg_control_system``, ``timeline`` needs ``pg_walfile_name``.
    """

    cluster: bool = True
    timeline: bool = True

    @property
    def sql(self) -> str:
        """The query whose one row is (identifier, timeline)."""
        cluster, timeline = CLUSTER if self.cluster else f"'{UNSEEN}'", TIMELINE if self.timeline else "0::bigint"
        return f"SELECT {cluster} AS system_id, {timeline} AS timeline"

    @property
    def lost(self) -> tuple[str, ...]:
        """Events that go unnoticed, in words."""
        cluster = "pg_control_system() may not be called: a copy of the database on another server looks like this one"
        timeline = "pg_walfile_name() may not be called: a promoted standby or a recovered backup is noticed only by "
        timeline += "epochs that are missing from it"
        return (*(() if self.cluster else (cluster,)), *(() if self.timeline else (timeline,)))


def visibility(connection: Connection) -> Visibility:
    """Find out which identity functions answer, each in a savepoint, as a refusal ends its transaction."""
    if _answers(connection, Visibility()):
        return Visibility()
    return Visibility(_answers(connection, Visibility(True, False)), _answers(connection, Visibility(False, True)))


def _answers(connection: Connection, candidate: Visibility) -> bool:
    from sqlalchemy.exc import NotSupportedError, ProgrammingError

    try:
        with connection.begin_nested():
            connection.exec_driver_sql(candidate.sql, {})
    except (ProgrammingError, NotSupportedError):  # forbidden, absent, or there in name only
        return False
    return True


@dataclass(frozen=True, slots=True)
class Head:
    """The head row."""

    fence: Fence
    epoch: int
    chain: str
    target_identity: TableIdentity


@dataclass(frozen=True, slots=True)
class PostgresHeadScope(tables.HeadScope):
    """Pipeline and sink whose rows are meant."""

    @property
    def tag(self) -> str:
        """16 hex digits: short enough for names of sessions and staging tables."""
        return hashlib.sha256(f"{self.pipeline}\0{self.sink}".encode()).hexdigest()[:16]

    def session(self, fence: Fence) -> str:
        """``application_name`` of sessions under a fence, at most 63 bytes."""
        return f"onceonly:{self.tag}:{fence.generation}:{fence.owner[:8]}"


def settings(application: str, lock_seconds: float) -> tuple[str, dict[str, Any]]:
    """The statement that begins a writing transaction. Its settings are local, so a transaction pooler works."""
    return SETTINGS, {"application": application, "lock": f"{int(lock_seconds * 1000)}ms"}


def exists(connection: Connection) -> bool:
    """Whether our tables are there."""
    return bool(connection.exec_driver_sql(TABLES_EXIST, {}).scalar_one())


def create(connection: Connection) -> None:
    """Create our missing tables. Several drivers may start at once."""
    if exists(connection):
        return
    from onceonly_checkpoints.ledger.sql import SCHEMA_LOCK
    from onceonly_sinks.postgres import time_views

    # The ledger makes its tables in the same schema: one lock for both.
    connection.exec_driver_sql(LOCK_DDL, {"key": SCHEMA_LOCK})
    if not connection.exec_driver_sql(KNOWN_SCHEMA, {}).scalar_one():
        connection.exec_driver_sql(SCHEMA, {})
    for statement in (*DDL, *time_views.DDL):
        connection.exec_driver_sql(statement, {})


def table_identity(connection: Connection, oid: int, server_visibility: Visibility) -> TableIdentity:
    """The database's identity now, as far as it is readable, with the table's oid."""
    system, timeline = connection.exec_driver_sql(server_visibility.sql, {}).one()
    return TableIdentity(system, int(timeline), oid)


def read(connection: Connection, writer: PostgresHeadScope, *, lock: str = "") -> Head | None:
    """The head row. ``lock``, as ``FOR UPDATE``, waits until every transaction that changed it has ended."""
    row = TABLES.read(connection.exec_driver_sql, writer, lock)
    return Head(row.fence, row.epoch, row.chain, TableIdentity(*row.target_identity)) if row else None


def newest_fence(connection: Connection, writer: PostgresHeadScope) -> Fence | None:
    """The installed fence, or that of the newest epoch if the head row is gone."""
    return TABLES.newest_fence(connection.exec_driver_sql, writer) if exists(connection) else None


def fenced(head_row: Head | None, fence: Fence, sink: str) -> Superseded | OnceOnlyError | None:
    """Why a driver may not go on under ``fence``, or ``None`` if it is the installed one."""
    lost = "the database was restored to an earlier state, or the fence was never installed"
    return check_fence(sink, head_row.fence if head_row else None, fence, lost=lost)


def judge(head_row: Head | None, marker: Marker) -> Superseded | OnceOnlyError | None:
    """Why the marker's epoch may not be committed on top of this head, or ``None`` if it may."""
    held = NewestEpoch(head_row.epoch, head_row.chain) if head_row else NewestEpoch()
    return fenced(head_row, marker.fence, marker.sink) or check_follows(marker, held)


def advance(
    connection: Connection,
    marker: Marker,
    oid: int,
    rows: int,
    server_visibility: Visibility,
    *,
    sealed: int,
    keeps: bool,
) -> TableIdentity | None:
    """Move the head and write the epoch row. Return ``None`` if the epoch does not follow the head.

    ``sealed`` is the newest epoch that all sinks hold once this one is committed. ``keeps`` is true if a history covers
    this epoch.
    """
    adopts = marker.epoch.adoption is not None
    writer = PostgresHeadScope(marker.pipeline, marker.sink)
    parameters = {
        **tables.advancing(writer, marker, rows),
        "adopts": adopts,
        "oid": oid,
        "sealed": sealed,
        "keeps": keeps,
    }
    row = connection.exec_driver_sql(ADVANCE.format(place=server_visibility.sql), parameters).one_or_none()
    return TableIdentity(row[0], row[1], oid) if row else None


def epoch_at(connection: Connection, writer: PostgresHeadScope, number: int) -> tuple[Marker, Receipt] | None:
    """One epoch, or ``None`` if it is not there."""
    row = TABLES.epoch_at(connection.exec_driver_sql, writer, number)
    return _epoch(writer, row) if row else None


def newest_epoch(connection: Connection, writer: PostgresHeadScope) -> tuple[int, Marker | None]:
    """Number of the newest epoch, 0 for none, and its marker if that is still there."""
    return TABLES.newest_epoch(connection.exec_driver_sql, writer) if exists(connection) else (0, None)


def epochs_after(
    connection: Connection, writer: PostgresHeadScope, after: int, limit: int
) -> list[tuple[Marker, Receipt]]:
    """The next epochs, oldest first."""
    return [_epoch(writer, row) for row in TABLES.epochs_after(connection.exec_driver_sql, writer, after, limit)]


def _epoch(writer: PostgresHeadScope, row: Row) -> tuple[Marker, Receipt]:
    return row.marker, receipt(writer.sink, row.number, row.chain, TableIdentity(*row.target_identity), row.rows)


def receipt(sink: str, number: int, chain: str, where: TableIdentity, rows: int) -> Receipt:
    """What the sink answers for an epoch."""
    return Receipt(sink, number, chain, where.identity, (("timeline", where.timeline),), rows)


def shared(connection: Connection, writer: PostgresHeadScope, oid: int) -> bool:
    """Whether another sink writes to the same table, so that epoch numbers in it are not ours alone."""
    return exists(connection) and TABLES.shared(connection.exec_driver_sql, writer, oid)


def writers(connection: Connection, oid: int) -> list[str]:
    """Pipelines with an epoch in a table."""
    return TABLES.writers(connection.exec_driver_sql, oid) if oid and exists(connection) else []


def peers(connection: Connection, oid: int) -> list[Marker]:
    """The newest marker of each pipeline with an epoch in a table. Of a pipeline with two sinks there, of both."""
    if not oid or not exists(connection):
        return []
    return [Marker.from_json(json.loads(row[0])) for row in connection.exec_driver_sql(PEERS, {"oid": oid})]


def sessions(connection: Connection, writer: PostgresHeadScope) -> list[tuple[int, str]]:
    """Process id and name of the other sessions that write for this sink, under any fence."""
    rows = [*connection.exec_driver_sql(BACKENDS, {"prefix": f"onceonly:{writer.tag}:"})]
    if exists(connection):
        rows += connection.exec_driver_sql(HOLDERS, {"pipeline": writer.pipeline, "sink": writer.sink})
    return sorted({(row[0], row[1]) for row in rows})


def of_generation_up_to(highest: int, session: str) -> bool:
    """Whether a session's name shows that it belongs to an opening of this generation or a lower one."""
    parts = session.split(":")
    return len(parts) > 3 and parts[2].isdigit() and int(parts[2]) <= highest


def terminate(connection: Connection, victims: Sequence[tuple[int, str]]) -> None:
    """End sessions. Skip one that has ended meanwhile, or whose process id has another name by now."""
    for pid, name in victims:
        connection.exec_driver_sql(TERMINATE, {"pid": pid, "name": name})
