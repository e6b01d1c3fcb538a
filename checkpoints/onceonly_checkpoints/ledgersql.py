"""The ledger's statements, built once per dialect: an epoch costs a handful of them, so they are not built anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Delete, Select, TableClause, and_, bindparam, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from onceonly_checkpoints.ledgertables import tables

FAR = 2**63 - 1
"""An epoch number above all."""


@dataclass(frozen=True, slots=True)
class Part:
    """Statements over one of ``Tables.parts``.

    Attributes:
        add: insert rows.
        within: rows of epochs ``first..last``, in their order.
        drop: delete rows of epochs ``first..last``.
    """

    add: Any
    within: Select[Any]
    drop: Delete


class Statements:
    """Statements over the ledger's tables; parameters are named like columns, or ``first``, ``last``, ``newest``.

    Args:
        dialect: ``sqlite`` or ``postgres``.
        schema: schema of the tables.
    """

    def __init__(self, dialect: str, schema: str | None) -> None:
        self._insert: Any = postgresql.insert if dialect == "postgres" else sqlite.insert
        all_ = tables(schema)
        epochs = all_.epochs
        self.version = select(all_.version.c.version)
        self.enter = self._upsert(all_.pipelines, "pipeline")
        self.drop_sinks = delete(all_.sinks).where(_is(all_.sinks, "pipeline"))
        self.add_sinks = self._insert(all_.sinks)
        self.pipelines = select(all_.pipelines, _newest(epochs, all_.pipelines)).order_by(all_.pipelines.c.pipeline)
        self.sinks = select(all_.sinks).order_by(all_.sinks.c.pipeline, all_.sinks.c.ordinal)
        self.intend = self._upsert(all_.intents, "pipeline", "epoch")
        self.intent = select(all_.intents).where(_is(all_.intents, "pipeline", "epoch"))
        self.record = self._insert(epochs).on_conflict_do_nothing(index_elements=["pipeline", "epoch"])
        self.record_again = self._upsert(epochs, "pipeline", "epoch", keep="recorded_ms", same="chain")
        self.chain = select(epochs.c.chain).where(_is(epochs, "pipeline", "epoch"))
        self.head = _newest_first(select(epochs).where(_is(epochs, "pipeline")), epochs).limit(1)
        self.find = _newest_first(select(epochs).where(_is(epochs, "pipeline", "query_id", "batch_id")), epochs).limit(
            1
        )
        self.epochs = select(epochs).where(_within(epochs)).order_by(epochs.c.epoch)
        self.drop_epochs = delete(epochs).where(_within(epochs))
        self.drop_intents = delete(all_.intents).where(_within(all_.intents))
        self.parts = tuple(self._part(each) for each in all_.parts)
        self.note = self._insert(all_.events).on_conflict_do_nothing(index_elements=["token"])
        self.events = (
            select(all_.events)
            .where(_is(all_.events, "pipeline"))
            .order_by(all_.events.c.id.desc())
            .limit(bindparam("newest"))
        )

    def _part(self, part: TableClause) -> Part:
        within = select(part).where(_within(part)).order_by(part.c.epoch, part.c.ordinal)
        return Part(self._insert(part), within, delete(part).where(_within(part)))

    def _upsert(self, into: TableClause, *key: str, keep: str = "", same: str = "") -> Any:
        """Insert or replace, keeping column ``keep`` and only where column ``same`` is the same."""
        statement = self._insert(into)
        new = statement.excluded
        return statement.on_conflict_do_update(
            index_elements=key,
            set_={each.name: new[each.name] for each in into.c if each.name not in (*key, keep)},
            where=into.c[same] == new[same] if same else None,
        )


def _is(any_: TableClause, *columns: str) -> ColumnElement[bool]:
    return and_(*(any_.c[name] == bindparam(name) for name in columns))


def _within(any_: TableClause) -> ColumnElement[bool]:
    return and_(_is(any_, "pipeline"), any_.c.epoch.between(bindparam("first"), bindparam("last")))


def _newest_first(statement: Select[Any], epochs: TableClause) -> Select[Any]:
    return statement.order_by(epochs.c.epoch.desc())


def _newest(epochs: TableClause, pipelines: TableClause) -> ColumnElement[int]:
    newest = select(func.max(epochs.c.epoch)).where(epochs.c.pipeline == pipelines.c.pipeline)
    return newest.scalar_subquery().label("newest")
