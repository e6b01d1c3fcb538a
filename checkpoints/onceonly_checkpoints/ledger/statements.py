"""SQL statements of the ledger, built once per dialect.

An epoch runs a handful of them, so they are not rebuilt each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from onceonly_checkpoints.ledger.tables import Tables, tables

FAR = 2**63 - 1
"""An epoch number above all: the highest that a BIGINT holds, so that "to the last" needs no statement of its own."""


@dataclass(frozen=True, slots=True)
class PartStatements:
    """Statements over one of ``Tables.parts``.

    ``within`` selects rows of epochs ``first..last`` in their order, and ``drop`` deletes them.
    """

    name: str
    add: Any
    within: sa.Select[Any]
    drop: sa.Delete


class Statements:
    """Statements over the ledger's tables. Parameters are named like columns, or ``first``, ``last``, ``newest``.

    ``dialect`` is ``sqlite`` or ``postgres``.
    """

    def __init__(self, dialect: str, schema: str | None) -> None:
        self._insert: Any = postgresql.insert if dialect == "postgres" else sqlite.insert
        all_ = tables(schema)
        epochs = all_.epochs
        self.version = sa.select(all_.version.c.version)
        self.enter = self._upsert(all_.pipelines, "pipeline")
        self.drop_sinks = sa.delete(all_.sinks).where(_is(all_.sinks, "pipeline"))
        self.add_sinks = self._insert(all_.sinks)
        self.pipelines = sa.select(all_.pipelines, _newest(epochs, all_.pipelines)).order_by(all_.pipelines.c.pipeline)
        self.sinks = sa.select(all_.sinks).order_by(all_.sinks.c.pipeline, all_.sinks.c.ordinal)
        self.intend = self._upsert(all_.intents, "pipeline", "epoch")
        if dialect == "postgres":
            self.intend = self.intend.returning(_UNHURRIED)
        self.intent = sa.select(all_.intents).where(_is(all_.intents, "pipeline", "epoch"))
        self.record = self._insert(epochs).on_conflict_do_nothing(index_elements=["pipeline", "epoch"])
        self.record_whole = _insert_epoch(all_) if dialect == "postgres" else None
        self.record_again = self._upsert(epochs, "pipeline", "epoch", keep="recorded_ms", same="chain")
        self.chain = sa.select(epochs.c.chain).where(_is(epochs, "pipeline", "epoch"))
        newest_epoch = sa.select(epochs).order_by(epochs.c.epoch.desc()).limit(1)
        self.head = newest_epoch.where(_is(epochs, "pipeline"))
        # A checkpoint that was set back plans the same batch id anew, so one may have become several epochs.
        self.find = newest_epoch.where(_is(epochs, "pipeline", "query_id", "batch_id"))
        self.epochs = sa.select(epochs).where(_within(epochs)).order_by(epochs.c.epoch)
        self.drop_epochs = sa.delete(epochs).where(_within(epochs))
        self.drop_intents = sa.delete(all_.intents).where(_within(all_.intents))
        self.supersede = self._upsert(all_.superseded, "pipeline", "epoch", "chain")
        self.superseded = (
            sa.select(all_.superseded)
            .where(_is(all_.superseded, "pipeline"), all_.superseded.c.epoch > sa.bindparam("after"))
            .order_by(all_.superseded.c.at_ms, all_.superseded.c.epoch)
        )
        pins = all_.pins
        self.pin = self._upsert(pins, "pipeline", "token", keep="since_ms")
        self.unpin = sa.delete(pins).where(_is(pins, "pipeline", "token"))
        self.drop_pins = sa.delete(pins).where(_is(pins, "pipeline"), pins.c.until_ms <= sa.bindparam("now"))
        self.pins = (
            sa.select(pins).where(_is(pins, "pipeline"), pins.c.until_ms > sa.bindparam("now")).order_by(pins.c.epoch)
        )
        plans = all_.plans
        self.keep_plan = self._insert(plans).on_conflict_do_nothing(index_elements=["pipeline", "plan"])
        self.plans = sa.select(plans).where(_is(plans, "pipeline")).order_by(plans.c.first_epoch, plans.c.plan)
        side_tables = (all_.intents, all_.events, all_.superseded, pins, plans, all_.sinks, all_.pipelines)
        of_one = (*all_.parts, epochs, *side_tables)
        self.forget = tuple(sa.delete(each).where(_is(each, "pipeline")) for each in of_one)
        self.parts = tuple(self._part(each) for each in all_.parts)
        # A call whose connection broke is sent again: the token makes one event of both.
        self.note = self._insert(all_.events).on_conflict_do_nothing(index_elements=["token"])
        newest = sa.select(all_.events).order_by(all_.events.c.id.desc()).limit(sa.bindparam("newest"))
        self.events = newest.where(_is(all_.events, "pipeline"))
        self.events_of_kind = newest.where(_is(all_.events, "pipeline", "kind"))

    def _part(self, part: sa.TableClause) -> PartStatements:
        within = sa.select(part).where(_within(part)).order_by(part.c.epoch, part.c.ordinal)
        return PartStatements(part.name, self._insert(part), within, sa.delete(part).where(_within(part)))

    def _upsert(self, into: sa.TableClause, *key: str, keep: str = "", same: str = "") -> Any:
        """Insert or replace, keeping column ``keep`` and only if column ``same`` is the same."""
        statement = self._insert(into)
        new = statement.excluded
        return statement.on_conflict_do_update(
            index_elements=key,
            set_={each.name: new[each.name] for each in into.c if each.name not in (*key, keep)},
            where=into.c[same] == new[same] if same else None,
        )


_UNHURRIED = sa.func.set_config("synchronous_commit", "off", True)
"""For a transaction that answers before its commit is flushed. Every later commit of this database is flushed after it,
so where the epoch lies here, too, its intent is never lost before it; elsewhere an intent is advice."""


def new(name: str) -> str:
    """The parameter of a value of :attr:`Statements.record_whole`. SQLAlchemy keeps the plain names for itself."""
    return f"new_{name}"


def _insert_epoch(all_: Tables) -> sa.Select[Any]:
    """Record a new epoch with all its parts, which come as JSON lists, in one trip to the server.

    ``recorded`` is the epoch's row, and empty if there was one. Each further CTE inserts the parts of one table.
    """
    first: Any = postgresql.insert(all_.epochs).values(
        {each.name: sa.bindparam(new(each.name)) for each in all_.epochs.c}
    )
    recorded = first.on_conflict_do_nothing(index_elements=["pipeline", "epoch"]).returning(sa.literal_column("1"))
    recorded_cte: sa.CTE = recorded.cte("recorded")
    return (
        sa.select(sa.literal_column("1"))
        .select_from(recorded_cte)
        .add_cte(*(_added(part, recorded_cte).cte() for part in all_.parts))
    )


def _added(part: sa.TableClause, recorded: sa.CTE) -> Any:
    """Insert the parts that came, if the epoch was inserted."""
    # Joined with the epoch's row: of an epoch that is there already, no part is added twice. Such a record takes the
    # slower way, which compares chains first.
    text = sa.cast(sa.bindparam(new(part.name), type_=sa.Text()), sa.JSON)
    rows = sa.func.json_to_recordset(text).table_valued(*(sa.column(each.name, each.type) for each in part.c))
    rows = rows.render_derived(with_types=True)
    values = sa.select(*rows.c).select_from(recorded.join(rows, sa.true()))
    return postgresql.insert(part).from_select([each.name for each in part.c], values)


def _is(any_: sa.TableClause, *columns: str) -> sa.ColumnElement[bool]:
    return sa.and_(*(any_.c[name] == sa.bindparam(name) for name in columns))


def _within(any_: sa.TableClause) -> sa.ColumnElement[bool]:
    return sa.and_(_is(any_, "pipeline"), any_.c.epoch.between(sa.bindparam("first"), sa.bindparam("last")))


def _newest(epochs: sa.TableClause, pipelines: sa.TableClause) -> sa.ColumnElement[int]:
    newest = sa.select(sa.func.max(epochs.c.epoch)).where(epochs.c.pipeline == pipelines.c.pipeline)
    return newest.scalar_subquery().label("newest")
