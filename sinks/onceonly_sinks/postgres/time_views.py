"""SQL views and functions for the event time and watermarks of epochs.

Two views and two functions are beside the sink's tables, for readers of its rows. One statement that reads rows and
window sees both in one snapshot. The rules are those of :mod:`onceonly.machine.completeness`. A table that several
datasets share is complete through the least of their limits.
"""

from __future__ import annotations

# json, not jsonb, which refuses a marker with a zero character anywhere in it.
EPOCH_TIME = """
CREATE OR REPLACE VIEW onceonly.epoch_time AS
SELECT e.pipeline, e.sink, e.epoch, e.target_oid::oid::regclass AS target, e.committed_at,
       t.unit, t.complete_until, t.closed_until, t.dataset_complete_until, t.max_time, t.earliest, t.latest,
       t.late_before, coalesce(t.late_rows, 0) AS late_rows, coalesce(t.rows_without_time, 0) AS rows_without_time,
       t.batch_timestamp_ms, coalesce(t.writers, '[]') AS writers, coalesce(t.timed_out, '[]') AS timed_out,
       coalesce(t.resets, 0) AS resets
FROM onceonly.epoch e
CROSS JOIN LATERAL json_to_record(coalesce(e.marker::json #> '{epoch,time}', '{}')) AS t(
    unit text, complete_until bigint, closed_until bigint, dataset_complete_until bigint, max_time bigint,
    earliest bigint, latest bigint, late_before bigint, late_rows bigint, rows_without_time bigint,
    batch_timestamp_ms bigint, writers json, timed_out json, resets bigint)
WHERE t.unit IS NOT NULL
"""

# newest: the newest epoch of each writer of a table. observed: what each of them knows of a writer, itself included.
# known: the newest state of each writer. joined: who knows whom, over others as well; the least name is the group's.
# void: conclusions drawn from an epoch before a reset, or from one that is no longer in the table.
TIME_WINDOW = """
CREATE OR REPLACE VIEW onceonly.time_window AS
WITH RECURSIVE newest AS MATERIALIZED (
    SELECT t.* FROM onceonly.epoch_time t JOIN onceonly.head h USING (pipeline, sink, epoch)
    WHERE h.target_oid <> 0 AND h.target_oid::oid::regclass = t.target
),
observed AS MATERIALIZED (
    SELECT n.target, n.unit, n.pipeline, o.writer, o.epoch, o.complete_until, o.batch_timestamp_ms,
           coalesce(o.resets, 0) AS resets
    FROM newest n
    CROSS JOIN LATERAL json_to_recordset(n.writers)
        AS o(writer text, epoch bigint, complete_until bigint, batch_timestamp_ms bigint, resets bigint)
    UNION
    SELECT target, unit, pipeline, pipeline, epoch, complete_until, batch_timestamp_ms, resets FROM newest
),
known AS MATERIALIZED (
    SELECT DISTINCT ON (target, unit, writer) target, unit, writer, epoch, complete_until, resets
    FROM observed
    ORDER BY target, unit, writer, resets DESC, epoch DESC, batch_timestamp_ms DESC, complete_until DESC NULLS LAST
),
joined(target, unit, one, other) AS (
    SELECT target, unit, writer, writer FROM known
    UNION
    SELECT j.target, j.unit, j.one, CASE j.other WHEN o.pipeline THEN o.writer ELSE o.pipeline END
    FROM joined j JOIN observed o
      ON (o.target, o.unit) = (j.target, j.unit) AND j.other IN (o.pipeline, o.writer)
),
dataset AS MATERIALIZED (
    SELECT target, unit, one AS writer, min(other) AS name FROM joined GROUP BY target, unit, one
),
void AS MATERIALIZED (
    SELECT DISTINCT o.target, o.unit, o.pipeline
    FROM observed o JOIN known k USING (target, unit, writer)
    LEFT JOIN newest held ON (held.target, held.unit, held.pipeline) = (o.target, o.unit, o.writer)
    WHERE o.epoch > 0 AND (o.resets <> k.resets OR (held.resets, held.epoch) < (o.resets, o.epoch))
),
concluded AS MATERIALIZED (
    SELECT d.target, d.unit, d.name,
           max(n.dataset_complete_until) FILTER (WHERE NOT EXISTS (
               SELECT FROM void v WHERE (v.target, v.unit, v.pipeline) = (n.target, n.unit, n.pipeline))) AS lower,
           max(n.max_time) AS upper,
           CASE WHEN count(*) = 1 THEN max(n.closed_until) END AS closed
    FROM dataset d LEFT JOIN newest n ON (n.target, n.unit, n.pipeline) = (d.target, d.unit, d.writer)
    GROUP BY d.target, d.unit, d.name
)
SELECT c.target, c.unit,
       CASE WHEN bool_and(c.lower IS NOT NULL) THEN min(c.lower) END AS lower,
       max(c.upper) AS upper,
       CASE WHEN bool_and(c.closed IS NOT NULL) THEN min(c.closed) END AS closed,
       array_remove(array_agg(DISTINCT w.writer ORDER BY w.writer), NULL) AS without
FROM concluded c
LEFT JOIN LATERAL (
    SELECT k.writer FROM known k JOIN dataset d USING (target, unit, writer)
    WHERE (k.target, k.unit, d.name) = (c.target, c.unit, c.name)
      AND (k.complete_until IS NULL OR k.complete_until < c.lower) AND c.lower IS NOT NULL
) w ON true
GROUP BY c.target, c.unit
"""

# What lies beyond the years that a timestamp can say is infinitely far: the end of time less a lateness, for one.
AT = """
CREATE OR REPLACE FUNCTION onceonly.at(number bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN number > 9200000000000000 THEN 'infinity' WHEN number < -210000000000000 THEN '-infinity'
                ELSE timestamptz '1970-01-01 00:00:00+00' + number * interval '1 millisecond' END
$$
"""

WINDOW_STATUS = """
CREATE OR REPLACE FUNCTION onceonly.window_status(target regclass, until timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT CASE WHEN until <= onceonly.at(w.closed) THEN 'closed'
                    WHEN until <= onceonly.at(w.lower) AND w.without = '{}' THEN 'complete' ELSE 'open' END
        FROM onceonly.time_window w
        WHERE w.target = window_status.target AND w.unit = 'ms'), 'open')
$$
"""

DDL = (EPOCH_TIME, TIME_WINDOW, AT, WINDOW_STATUS)
"""Makes them where they are missing; they read no table but the sink's own."""
