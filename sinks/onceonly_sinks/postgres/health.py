"""Check the role's rights and the table before an epoch is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.doctor import Check, State, spot
from onceonly_sinks.postgres import schema
from onceonly_sinks.postgres.head import Visibility
from onceonly_sinks.postgres.load import Target
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import TableName, printed
from onceonly_sinks.postgres.upsert import Merge

if TYPE_CHECKING:
    from sqlalchemy import Connection

# By oid, out of the catalogue: asked by name, a schema that is not there is an error (3F000), not a no.
_ROLE = """
SELECT current_user AS role,
       EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'onceonly') AS has_schema,
       has_database_privilege(current_database(), 'CREATE') AS may_make_schema,
       coalesce((SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
                 FROM pg_catalog.pg_namespace WHERE nspname = 'onceonly'), false) AS may_use_schema,
       coalesce((SELECT has_schema_privilege(oid, 'CREATE')
                 FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s), false) AS may_make_table,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                                 AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = 'onceonly' AND c.relname IN ('head', 'epoch', 'pruned')), true) AS may_mark,
       current_setting('default_transaction_isolation') AS isolation
"""

_RIGHTS = ("D208", "D209", "D210", "D211")
"""Codes of what a role lacks that a single command gives it."""

_TABLE = """
SELECT has_table_privilege(%(oid)s::oid, 'SELECT') AS "SELECT", has_table_privilege(%(oid)s::oid, 'INSERT') AS "INSERT",
       has_table_privilege(%(oid)s::oid, 'UPDATE') AS "UPDATE", has_table_privilege(%(oid)s::oid, 'DELETE') AS "DELETE",
       row_security_active(%(oid)s::oid) AS secured,
       (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = %(oid)s::oid AND NOT tgisinternal) AS triggers
"""


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """The role that writes, in its database.

    ``has_schema`` and ``may_use_schema`` (with CREATE) are about the schema of our own tables, ``may_make_table`` about
    that of the target. ``may_mark`` means to read and change our own tables, if they exist.
    """

    role: str
    has_schema: bool = True
    may_make_schema: bool = True
    may_use_schema: bool = True
    may_make_table: bool = True
    may_mark: bool = True
    isolation: str = "read committed"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The target table.

    ``rights`` are SELECT, INSERT, UPDATE, DELETE. ``secured``: row security is active for the role. ``triggers`` leave
    out those of foreign keys.
    """

    table: Table
    rights: Mapping[str, bool]
    secured: bool = False
    triggers: int = 0


def read(connection: Connection, sink: str, aim: Target) -> tuple[RoleFacts, TableFacts | None]:
    """Read all facts that an epoch depends on. Raises E506 or E508: the table cannot be used at all."""
    role_row = connection.exec_driver_sql(_ROLE, {"schema": aim.name.schema}).mappings().one()
    role = RoleFacts(**{str(name): value for name, value in role_row.items()})
    table = schema.inspect(connection, aim.name, sink, aim.epoch_column)
    if table is None:
        return role, None
    table_row = dict(connection.exec_driver_sql(_TABLE, {"oid": table.oid}).mappings().one())
    secured, triggers = bool(table_row.pop("secured")), int(table_row.pop("triggers"))
    return role, TableFacts(table, {str(right): bool(has) for right, has in table_row.items()}, secured, triggers)


def lacking(connection: Connection, sink: str, aim: Target) -> str:
    """The command that grants the first missing right, empty if none is known to be missing."""
    role, table = read(connection, sink, aim)
    checks = judge(sink, aim.name, aim.merge, role, table)
    return next((check.remedy for check in checks if check.code in _RIGHTS), "")


def judge(name: str, target: TableName, merge: Merge, role: RoleFacts, facts: TableFacts | None) -> Iterator[Check]:
    """D207 to D213. ``name`` is the sink's address, and ``facts`` is ``None`` if there is no table."""
    yield Check(name, State.OK, f"the sink sets read committed; the default here is {role.isolation}")
    yield from _markers(name, role)
    if facts is not None:
        yield from _rights(name, role.role, facts, merge)
        yield from _key(name, facts.table, merge)
    elif role.may_make_table:
        yield Check(name, State.OK, f"{target.text} is not there; the first epoch makes it")
    else:
        home = printed(target.schema or "public")
        yield spot("D210", name, table=target.text, role=role.role, schema=home, to=printed(role.role))


def judge_visibility(name: str, role: str, server_visibility: Visibility) -> Iterator[Check]:
    """D215: identity functions that the server hides, and events that go unnoticed without them."""
    functions = []
    if not server_visibility.cluster:
        functions.append("pg_control_system()")
    if not server_visibility.timeline:
        functions += ["pg_current_wal_lsn()", "pg_walfile_name(pg_lsn)"]
    if functions:
        command = f"GRANT EXECUTE ON FUNCTION {', '.join(functions)} TO {printed(role)}"
        yield spot("D215", name, State.HINT, found="; ".join(server_visibility.lost), command=command)


def _markers(name: str, facts: RoleFacts) -> Iterator[Check]:
    role = printed(facts.role)
    if facts.has_schema and not facts.may_use_schema:
        command = f"GRANT USAGE, CREATE ON SCHEMA onceonly TO {role}"
        yield spot("D208", name, role=facts.role, found="it may not use that schema", command=command)
    elif not facts.has_schema and not facts.may_make_schema:
        command = f"CREATE SCHEMA onceonly AUTHORIZATION {role}"
        yield spot("D208", name, role=facts.role, found="there is none, and it may not create it", command=command)
    elif not facts.may_mark:
        command = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onceonly TO {role}"
        yield spot("D208", name, role=facts.role, found="its tables are another role's", command=command)
    else:
        there = "markers lie in schema onceonly" if facts.has_schema else "the first fence makes schema onceonly"
        yield Check(name, State.OK, there)


def _rights(name: str, role: str, facts: TableFacts, merge: Merge) -> Iterator[Check]:
    table = facts.table.name.text
    needed = ["SELECT", "INSERT", *(["UPDATE"] if merge.key else []), *(["DELETE"] if merge.delete else [])]
    missing = ", ".join(right for right in needed if not facts.rights[right])
    if missing:
        yield spot("D209", name, role=role, rights=missing, table=table, on=facts.table.name.printed, to=printed(role))
    else:
        yield Check(name, State.OK, f"{', '.join(needed)} on {table}")
    if facts.secured:
        yield spot("D211", name, table=table, role=role, to=printed(role))
    if facts.triggers:
        yield spot("D212", name, State.HINT, table=table, count=facts.triggers)


def _key(name: str, table: Table, merge: Merge) -> Iterator[Check]:
    if not merge.key:
        return
    column_names = [*merge.key, *([merge.sequence] if merge.sequence else [])]
    missing = [column for column in column_names if column not in table.by_name]
    key = ", ".join(merge.key)
    if missing:
        yield spot("D213", name, table=table.name.text, columns=", ".join(missing))
    elif frozenset(merge.key) not in table.keys:
        columns = ", ".join(map(printed, merge.key))
        yield spot("D207", name, table=table.name.text, key=key, on=table.name.printed, columns=columns)
    else:
        yield Check(name, State.OK, f"a unique index is on ({key})")
