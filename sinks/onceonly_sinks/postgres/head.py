"""The sink's own two tables: ``head`` says who may write and where the sink stands, ``epoch`` what was written.

They lie in the target's database. ``head`` has one row per (pipeline, sink); every change of it is conditional on the
fence and the chain that were read. The functions here run one statement each inside the caller's transaction;
:func:`judge` decides without I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError
from onceonly.guard import Held, check_fence, check_follows, joins
from onceonly.protocol import Superseded
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_checkpoints.sqlledger import SCHEMA_LOCK
from onceonly_sinks.postgres import statements as q

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Place:
    """What the database and the table *are*.

    Attributes:
        system: the cluster's system identifier; empty if nothing was written yet.
        timeline: goes up when a standby is promoted or a backup is recovered.
        oid: the table's; 0 if it did not exist.
    """

    system: str
    timeline: int
    oid: int

    @property
    def identity(self) -> str:
        """As in a receipt; empty where the table does not exist."""
        return f"{self.system}/{self.oid}" if self.oid else ""

    def beside(self, identity: str) -> str:
        """Our identity beside another one: that one, where the two differ only in what a server did not tell."""
        system, _, oid = identity.rpartition("/")
        unseen = q.UNSEEN in (system, self.system)
        return identity if unseen and self.oid and oid == str(self.oid) else self.identity

    def follows(self, identity: str) -> bool:
        """Whether this is a table of another server, where a table made again would be one of the same."""
        system = identity.rpartition("/")[0]
        return bool(self.oid) and q.UNSEEN not in (system, self.system) and system != self.system


@dataclass(frozen=True, slots=True)
class Sight:
    """What the server tells of itself: a managed one may keep functions from its users, or not have them.

    Attributes:
        cluster: whether it tells the cluster's identifier (``pg_control_system``).
        timeline: whether it tells its timeline (``pg_walfile_name``).
    """

    cluster: bool = True
    timeline: bool = True

    @property
    def sql(self) -> str:
        """The query whose one row is (identifier, timeline)."""
        cluster, timeline = q.CLUSTER if self.cluster else f"'{q.UNSEEN}'", q.TIMELINE if self.timeline else "0::bigint"
        return f"SELECT {cluster} AS system_id, {timeline} AS timeline"

    @property
    def lost(self) -> tuple[str, ...]:
        """What cannot be noticed, in words."""
        cluster = "pg_control_system() may not be called: a copy of the database on another server looks like this one"
        timeline = "pg_walfile_name() may not be called: a promoted standby or a recovered backup is noticed only by "
        timeline += "epochs that are missing from it"
        return (*(() if self.cluster else (cluster,)), *(() if self.timeline else (timeline,)))


def sight(connection: Connection) -> Sight:
    """Find out what the server tells; each question in a savepoint, as a refusal ends what it is asked in."""
    if _answers(connection, Sight()):
        return Sight()
    return Sight(_answers(connection, Sight(True, False)), _answers(connection, Sight(False, True)))


def _answers(connection: Connection, asked: Sight) -> bool:
    from sqlalchemy.exc import NotSupportedError, ProgrammingError

    try:
        with connection.begin_nested():
            connection.exec_driver_sql(asked.sql, {})
    except (ProgrammingError, NotSupportedError):  # forbidden, absent, or there in name only
        return False
    return True


@dataclass(frozen=True, slots=True)
class Head:
    """The head row."""

    fence: Fence
    epoch: int
    chain: str
    place: Place


@dataclass(frozen=True, slots=True)
class Writer:
    """Whose rows are meant.

    Attributes:
        pipeline: the user's stable name.
        sink: sink id.
    """

    pipeline: str
    sink: str

    @property
    def parameters(self) -> dict[str, Any]:
        """For the statements here."""
        return {"pipeline": self.pipeline, "sink": self.sink}

    @property
    def tag(self) -> str:
        """16 hex digits: short enough for names of sessions and staging tables."""
        return hashlib.sha256(f"{self.pipeline}\0{self.sink}".encode()).hexdigest()[:16]

    def session(self, fence: Fence) -> str:
        """How sessions under a fence call themselves, at most 63 bytes."""
        return f"onceonly:{self.tag}:{fence.generation}:{fence.owner[:8]}"


def settings(application: str, lock_seconds: float) -> tuple[str, dict[str, Any]]:
    """The statement that begins a writing transaction. It is local to it, so it works through a transaction pooler."""
    return q.SETTINGS, {"application": application, "lock": f"{int(lock_seconds * 1000)}ms"}


def exists(connection: Connection) -> bool:
    """Whether our tables are there."""
    return bool(connection.exec_driver_sql(q.KNOWN, {}).scalar_one())


def create(connection: Connection) -> None:
    """Make our tables where they are missing; safe when several drivers start at once."""
    if exists(connection):
        return
    # The ledger makes its tables in the same schema: one lock for both.
    connection.exec_driver_sql(q.LOCK_DDL, {"key": SCHEMA_LOCK})
    if not connection.exec_driver_sql(q.KNOWN_SCHEMA, {}).scalar_one():
        connection.exec_driver_sql(q.SCHEMA, {})
    for statement in q.DDL:
        connection.exec_driver_sql(statement, {})


def place(connection: Connection, oid: int, seen: Sight) -> Place:
    """The database's identity now, as far as it is told, with the table's oid."""
    system, timeline = connection.exec_driver_sql(seen.sql, {}).one()
    return Place(system, int(timeline), oid)


def read(connection: Connection, writer: Writer, *, lock: bool = False) -> Head | None:
    """The head row; ``lock`` waits until every transaction that changed it has ended."""
    row = connection.exec_driver_sql(q.READ + (" FOR UPDATE" if lock else ""), writer.parameters).one_or_none()
    if row is None:
        return None
    return Head(Fence(row[0], row[1]), row[2], row[3], Place(row[4], row[5], row[6]))


def newest_fence(connection: Connection, writer: Writer) -> Fence | None:
    """The fence that stands; that of the newest epoch where the head row is gone."""
    head = read(connection, writer)
    if head is not None:
        return head.fence
    query = f"SELECT generation, owner FROM onceonly.epoch WHERE {q.OURS} ORDER BY epoch DESC LIMIT 1"
    row = connection.exec_driver_sql(query, writer.parameters).one_or_none()
    return Fence(row[0], row[1]) if row else None


def install(connection: Connection, writer: Writer, fence: Fence) -> None:
    """Make ``fence`` the newest where it is strictly greater, or find it standing.

    Raises:
        Superseded: a fence stands that is neither lower nor this one.
    """
    parameters = {**writer.parameters, **fence.to_json()}
    if connection.exec_driver_sql(q.INSTALL, parameters).rowcount == 1:
        return
    found = newest_fence(connection, writer)
    if found is not None and found != fence:
        raise Superseded(writer.sink, found)


def fenced(found: Head | None, fence: Fence, sink: str) -> Superseded | OnceOnlyError | None:
    """Why one may not go on under ``fence``; ``None`` if it stands."""
    lost = "the database was restored to an earlier state, or the fence was never installed"
    return check_fence(sink, found.fence if found else None, fence, lost=lost)


def judge(found: Head | None, marker: Marker) -> Superseded | OnceOnlyError | None:
    """Why the marker's epoch may not be committed on top of what was found; ``None`` if it may."""
    held = Held(found.epoch, found.chain) if found else Held()
    return fenced(found, marker.fence, marker.sink) or check_follows(marker, held)


def advance(connection: Connection, marker: Marker, oid: int, rows: int, seen: Sight) -> Place | None:
    """Move the head and write the epoch row; ``None`` if the head does not stand where the epoch follows."""
    parameters = {
        **Writer(marker.pipeline, marker.sink).parameters,
        **marker.fence.to_json(),
        "epoch": marker.epoch.number,
        "chain": marker.epoch.chain,
        "before_epoch": marker.epoch.number - 1,
        "before_chain": marker.epoch.previous_chain,
        "joins": joins(marker),
        "adopts": marker.epoch.adoption is not None,
        "rows": rows,
        "marker": marker.text,
        "oid": oid,
    }
    row = connection.exec_driver_sql(q.ADVANCE.format(place=seen.sql), parameters).one_or_none()
    return Place(row[0], row[1], oid) if row else None


def touch(connection: Connection, writer: Writer) -> None:
    """Write the head without changing what it says: the commit then waits for the standby that the lost one needs."""
    connection.exec_driver_sql(q.TOUCH, writer.parameters)


def epoch_at(connection: Connection, writer: Writer, number: int) -> tuple[Marker, Receipt] | None:
    """One epoch; ``None`` if it is not there."""
    row = connection.exec_driver_sql(q.ONE_EPOCH, {**writer.parameters, "epoch": number}).one_or_none()
    return _epoch(writer, row) if row else None


def newest_epoch(connection: Connection, writer: Writer) -> tuple[int, Marker | None]:
    """Number of the newest epoch, 0 for none, and its marker if that is still there."""
    row = connection.exec_driver_sql(q.NEWEST_EPOCH, writer.parameters).one_or_none() if exists(connection) else None
    return (row[0], Marker.from_json(json.loads(row[1])) if row[1] else None) if row else (0, None)


def epochs_after(connection: Connection, writer: Writer, after: int, limit: int) -> list[tuple[Marker, Receipt]]:
    """The next epochs, oldest first."""
    parameters = {**writer.parameters, "after": after, "limit": limit}
    return [_epoch(writer, row) for row in connection.exec_driver_sql(q.EPOCHS, parameters)]


def _epoch(writer: Writer, row: Sequence[Any]) -> tuple[Marker, Receipt]:
    number, chain, rows, text, system, timeline, oid = row
    marker = Marker.from_json(json.loads(text))
    return marker, receipt(writer.sink, number, chain, Place(system, timeline, oid), rows)


def receipt(sink: str, number: int, chain: str, where: Place, rows: int) -> Receipt:
    """What the sink answers for an epoch."""
    return Receipt(sink, number, chain, where.identity, (("timeline", where.timeline),), rows)


def shared(connection: Connection, writer: Writer, oid: int) -> bool:
    """Whether another sink writes to the same table, so that epoch numbers in it are not ours alone."""
    return bool(connection.exec_driver_sql(q.SHARED, {**writer.parameters, "oid": oid}).scalar_one())


def writers(connection: Connection, oid: int) -> list[str]:
    """Pipelines with an epoch in a table."""
    if not oid or not exists(connection):
        return []
    return [row[0] for row in connection.exec_driver_sql(q.WRITERS, {"oid": oid})]


def sessions(connection: Connection, writer: Writer) -> list[tuple[int, str]]:
    """Process id and name of the other sessions that write for this sink, under whatever fence."""
    rows = connection.exec_driver_sql(q.BACKENDS, {"prefix": f"onceonly:{writer.tag}:"})
    return [(row[0], row[1]) for row in rows]


def of_generation_up_to(highest: int, session: str) -> bool:
    """Whether a session's name says that it belongs to an opening of this generation or a lower one."""
    parts = session.split(":")
    return len(parts) > 3 and parts[2].isdigit() and int(parts[2]) <= highest


def terminate(connection: Connection, victims: Sequence[tuple[int, str]]) -> None:
    """End sessions; one that has ended meanwhile, or is another's by now, is left alone."""
    for pid, name in victims:
        connection.exec_driver_sql(q.TERMINATE, {"pid": pid, "name": name})
