"""The SQL of the sink's own two tables. ``OURS`` is the condition that keeps one (pipeline, sink)."""

from __future__ import annotations

LOCK_DDL = "SELECT pg_catalog.pg_advisory_xact_lock(%(key)s)"
KNOWN_SCHEMA = "SELECT pg_catalog.to_regnamespace('onceonly') IS NOT NULL"
SCHEMA = "CREATE SCHEMA onceonly"
KNOWN = """
SELECT pg_catalog.to_regclass('onceonly.head') IS NOT NULL AND pg_catalog.to_regclass('onceonly.epoch') IS NOT NULL
       AND pg_catalog.to_regclass('onceonly.pruned') IS NOT NULL
"""
DDL = (
    """
    CREATE TABLE IF NOT EXISTS onceonly.head (
        pipeline text NOT NULL, sink text NOT NULL,
        generation bigint NOT NULL, owner text NOT NULL,
        epoch bigint NOT NULL, chain text NOT NULL,
        system_id text NOT NULL, timeline bigint NOT NULL, target_oid bigint NOT NULL,
        updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (pipeline, sink)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE IF NOT EXISTS onceonly.epoch (
        pipeline text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL,
        generation bigint NOT NULL, owner text NOT NULL,
        chain text NOT NULL, rows bigint NOT NULL, marker text NOT NULL,
        system_id text NOT NULL, timeline bigint NOT NULL, target_oid bigint NOT NULL,
        committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (pipeline, sink, epoch)
    )
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

SETTINGS = f"""
SELECT set_config('application_name', %(application)s, true), set_config('lock_timeout', %(lock)s, true),
       set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true),
       {DURABLE}
"""

READING = "SELECT set_config('lock_timeout', %(lock)s, true)"

CLUSTER = "(SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c)"
TIMELINE = "('x' || substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"

UNSEEN = "unseen"
"""Stands for the cluster's identifier where the server does not tell it."""

HEAD = "generation, owner, epoch, chain, system_id, timeline, target_oid"
OURS = "pipeline = %(pipeline)s AND sink = %(sink)s"
READ = f"SELECT {HEAD} FROM onceonly.head WHERE {OURS}"

# Our own newest epoch row stands in for a head that somebody deleted: the marker is the truth, the head points at it.
INSTALL = f"""
WITH newest AS (SELECT * FROM onceonly.epoch WHERE {OURS} ORDER BY epoch DESC LIMIT 1)
INSERT INTO onceonly.head AS h (pipeline, sink, {HEAD})
SELECT %(pipeline)s, %(sink)s, %(generation)s, %(owner)s, coalesce(n.epoch, 0), coalesce(n.chain, ''),
       coalesce(n.system_id, ''), coalesce(n.timeline, 0), coalesce(n.target_oid, 0)
FROM (VALUES (1)) one (x) LEFT JOIN newest n ON true
WHERE n.generation IS NULL OR n.generation < %(generation)s
ON CONFLICT (pipeline, sink) DO UPDATE
SET generation = excluded.generation, owner = excluded.owner, updated_at = clock_timestamp()
WHERE h.generation < excluded.generation
"""

# One statement: it waits for the row's lock, looks at the row as it is then, and moves it only from where we left it.
# The epoch row is written only if the head moved. A table that is not the one of the last epoch is refused here, too;
# an adoption accepts what it finds. A sink joins above whatever it holds from an earlier time.
ADVANCE = f"""
WITH here AS MATERIALIZED ({{place}}),
advanced AS (
    UPDATE onceonly.head h
    SET epoch = %(epoch)s, chain = %(chain)s,
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

FORGET = f"""
DELETE FROM onceonly.epoch WHERE {OURS} AND epoch IN (
    SELECT epoch FROM onceonly.epoch WHERE {OURS} AND epoch <= %(upto)s ORDER BY epoch LIMIT %(limit)s)
RETURNING epoch, chain, rows, marker
"""
REMEMBER = """
INSERT INTO onceonly.pruned AS p (pipeline, sink, epoch, chain, rows, accepted)
VALUES (%(pipeline)s, %(sink)s, %(epoch)s, %(chain)s, %(rows)s, %(accepted)s)
ON CONFLICT (pipeline, sink) DO UPDATE
SET epoch = excluded.epoch, chain = excluded.chain,
    rows = CASE WHEN excluded.accepted > 0 THEN 0 ELSE p.rows END + excluded.rows,
    accepted = greatest(p.accepted, excluded.accepted), pruned_at = clock_timestamp()
"""
MILESTONE = f"SELECT epoch, chain, rows, accepted FROM onceonly.pruned WHERE {OURS}"

TOUCH = f"UPDATE onceonly.head SET updated_at = clock_timestamp() WHERE {OURS}"
EPOCH = "epoch, chain, rows, marker, system_id, timeline, target_oid"
EPOCHS = f"SELECT {EPOCH} FROM onceonly.epoch WHERE {OURS} AND epoch > %(after)s ORDER BY epoch LIMIT %(limit)s"
ONE_EPOCH = f"SELECT {EPOCH} FROM onceonly.epoch WHERE {OURS} AND epoch = %(epoch)s"
# Where the head row is gone, our own newest epoch row stands in for it, as in INSTALL.
NEWEST_EPOCH = f"""
WITH newest AS (SELECT epoch FROM onceonly.head WHERE {OURS}
                UNION ALL SELECT max(epoch) FROM onceonly.epoch WHERE {OURS})
SELECT n.epoch, (SELECT e.marker FROM onceonly.epoch e WHERE {OURS} AND e.epoch = n.epoch)
FROM newest n WHERE n.epoch > 0 LIMIT 1
"""
SHARED = f"SELECT count(*) FROM onceonly.head WHERE target_oid = %(oid)s AND NOT ({OURS})"

WRITERS = "SELECT DISTINCT pipeline FROM onceonly.head WHERE target_oid = %(oid)s AND epoch > 0 ORDER BY 1"

BACKENDS = """
SELECT pid, application_name FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND pid <> pg_catalog.pg_backend_pid() AND starts_with(application_name, %(prefix)s)
"""
TERMINATE = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE pid = %(pid)s AND application_name = %(name)s
"""
