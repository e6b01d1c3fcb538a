"""Refuse tables that may lose or change rows: volatile parts, rules, triggers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly_sinks.postgres.server import TableName, quote

if TYPE_CHECKING:
    from sqlalchemy import Connection

# part: the table and all below it. Partitions are listed by inheritance, too, so one walk finds both, at any depth; a
# table that inherits twice is one part, for which UNION sees. Where the table alone is asked, an unlogged partition
# passes: of three rows none was left after a SIGKILL of the server, and the head still said epoch 1. Of a trigger's
# type, 1 is FOR EACH ROW and 2 BEFORE; triggers enabled for replication only ('R') do not run for us.
_PARTS = """
WITH RECURSIVE part (oid) AS (
    SELECT %(oid)s::oid
    UNION
    SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part p ON i.inhparent = p.oid
)
SELECT n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relispartition, c.oid = %(oid)s::oid,
       CASE WHEN c.relhasrules THEN (
           SELECT array_agg(r.rulename::text ORDER BY r.rulename) FROM pg_catalog.pg_rewrite r
           WHERE r.ev_class = c.oid AND r.ev_enabled <> 'D') END,
       CASE WHEN c.relhastriggers THEN (
           SELECT jsonb_agg(jsonb_build_array(t.tgname, t.tgtype) ORDER BY t.tgname) FROM pg_catalog.pg_trigger t
           WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 3 = 3) END
FROM part JOIN pg_catalog.pg_class c ON c.oid = part.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY c.relispartition, c.oid <> %(oid)s::oid, n.nspname, c.relname
"""

INSERT, DELETE, UPDATE = 4, 8, 16
"""What a trigger is for, as bits of its type in the catalogue."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """The table itself, one of its partitions, or a table that inherits from it.

    Attributes:
        kind: ``r`` table, ``p`` partitioned, ``f`` foreign, and so on.
        persistence: ``p`` logged, ``u`` unlogged, ``t`` temporary.
        partition: whether rows are routed into it.
        itself: whether it is the table that statements name.
        rules: rewrite rules that are not disabled.
        triggers: enabled triggers that run before each row, with the bits of their events.
    """

    schema: str
    name: str
    kind: str
    persistence: str
    partition: bool
    itself: bool
    rules: tuple[str, ...] = ()
    triggers: tuple[tuple[str, int], ...] = ()

    @property
    def sql(self) -> str:
        """Quoted for a statement that is shown."""
        return f"{quote(self.schema)}.{quote(self.name)}".replace("%%", "%")

    def triggers_for(self, events: int) -> list[str]:
        """Names of the triggers for some of these events, of those that can happen here."""
        if not (self.itself or self.partition):
            events &= ~INSERT  # rows are inserted into the table above it, never into one that inherits from it
        return [name for name, kind in self.triggers if kind & events]


def parts(connection: Connection, oid: int) -> tuple[TablePart, ...]:
    """The table and everything below it, itself first."""
    rows = connection.exec_driver_sql(_PARTS, {"oid": oid})
    return tuple(
        TablePart(
            schema,
            name,
            kind,
            persistence,
            routed,
            itself,
            tuple(rules or ()),
            tuple((trigger, does) for trigger, does in triggers or ()),
        )
        for schema, name, kind, persistence, routed, itself, rules, triggers in rows
    )


def volatile(sink: str, table: TableName, table_parts: Iterable[TablePart]) -> OnceOnlyError | None:
    """Why rows of the table may vanish while their marker stays: parts that are unlogged or on another server."""
    return next((refused for part in table_parts if (refused := _volatile(sink, table, part))), None)


def altering(sink: str, table_parts: Iterable[TablePart], events: int) -> OnceOnlyError | None:
    """Why the table may change rows: rules, and triggers before a row for ``events``."""
    refused = (_ruled(sink, part) or _triggered(sink, part, events) for part in table_parts)
    return next((refusal for refusal in refused if refusal), None)


def triggers_of(table_parts: Iterable[TablePart], events: int) -> str:
    """The triggers before each row, each with its table, for a message."""
    return ", ".join(f"{trigger} on {part.sql}" for part in table_parts for trigger in part.triggers_for(events))


def _volatile(sink: str, table: TableName, part: TablePart) -> OnceOnlyError | None:
    below = f"{part.sql}, {'a partition of' if part.partition else 'which inherits from'} {table.text},"
    if part.kind == "f":
        return refuse(
            "E508",
            sink=sink,
            reason=f"{below} is a foreign table",
            cause="its rows are committed elsewhere: they and our marker would not be one transaction",
            next="take it out of the table (ALTER TABLE ... DETACH PARTITION, or NO INHERIT), or name another table",
        )
    if part.persistence != "p":
        return refuse(
            "E508",
            sink=sink,
            reason=f"{below} is unlogged or temporary",
            cause="a crash of the server empties such a table, while the marker of its epochs stays",
            next=f"ALTER TABLE {part.sql} SET LOGGED",
        )
    return None


def _ruled(sink: str, part: TablePart) -> OnceOnlyError | None:
    # Under one rule, three rows stood there when the driver brought them and none when executors did; both receipts
    # said three.
    if not part.rules or not part.itself:  # statements name the table: rules of what lies below it are not asked
        return None
    rules = ", ".join(part.rules)
    return refuse(
        "E508",
        sink=sink,
        reason=f"{part.sql} has rewrite rules ({rules})",
        cause="COPY goes past a rule and INSERT obeys it: the same rows would end up differently by the way they came",
        next=f"DROP RULE {quote(part.rules[0]).replace('%%', '%')} ON {part.sql}, or name the table behind it; "
        "a trigger AFTER it can do the same for each row",
    )


def _triggered(sink: str, part: TablePart, events: int) -> OnceOnlyError | None:
    if not (triggers := ", ".join(part.triggers_for(events))):
        return None
    return refuse(
        "E508",
        sink=sink,
        reason=f"triggers run before each row of {part.sql} ({triggers}) and may keep it back or change it",
        cause="a filter, old-style partitioning, or a column that is filled on the way, such as updated_at",
        next='if they let every row through: PostgresSink(..., tuning=PostgresTuning(triggers="allow")), which refuses '
        "an epoch of which they keep rows back; otherwise filter in the query, and drop or disable them",
    )


def kept_back(sink: str, table_parts: Iterable[TablePart], events: int, epoch: int, count: int) -> OnceOnlyError:
    """The error for rows that a trigger kept out of the table."""
    return refuse("E528", sink=sink, epoch=epoch, count=count, triggers=triggers_of(table_parts, events))
