"""Build MERGE conditions and clauses for both Delta committers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from onceonly.errors import nearest
from onceonly.errors.options import checks_arguments, unfit
from onceonly.protocol.values import replaces
from onceonly.spark.digest import quote
from onceonly_checkpoints.model import shorten_list

if TYPE_CHECKING:
    from typing_extensions import Self

Kind = Literal["update", "delete", "insert"]
Say = Callable[[Any, dict[str, str], str | None], Any]
"""Builder, values, condition -> builder."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One WHEN of a merge.

    Attributes:
        kind: its action. ``insert`` is for unmatched rows of the batch, the others for matched rows.
        condition: SQL. ``None`` for always.
        values: columns of the table with the SQL of their values. ``None``: every column of the batch, unchanged.
    """

    kind: Kind
    condition: str | None = None
    values: tuple[tuple[str, str], ...] | None = None


@checks_arguments
@dataclass(frozen=True, slots=True)
class Merge:
    """A Delta MERGE: ``t`` is the table, ``s`` the rows of the epoch. A value, so each method returns a longer one.

    The first clause whose condition holds decides a row. At most one row of the batch may be applied to a row of the
    table. A second one is refused (E520). Conditions and values are SQL that Spark and deltalake understand alike. A
    column whose name is no plain word is put in backticks. An epoch is merged once, so values may build on those in the
    table. ::

        Merge("t.id = s.id")
        .when_matched_delete("s.gone")
        .when_matched_update("s.seq >= t.seq", {"seq": "s.seq", "total": "t.total + s.amount"})
        .when_not_matched_insert("NOT s.gone", {"id": "s.id", "seq": "s.seq", "total": "s.amount"})

    Attributes:
        on: SQL condition under which rows match.
        not_stored: columns of the batch for conditions and values that the table does not hold.
    """

    on: str
    clauses: tuple[Clause, ...] = ()
    not_stored: tuple[str, ...] = ()

    def when_matched_update(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> Self:
        """Update the matched row: all columns of the batch, or those of ``set`` to the SQL of their values."""
        return self._with(Clause("update", condition, _pairs(set)))

    def when_matched_delete(self, condition: str | None = None) -> Self:
        """Delete the matched row."""
        return self._with(Clause("delete", condition))

    def when_not_matched_insert(self, condition: str | None = None, values: Mapping[str, str] | None = None) -> Self:
        """Insert an unmatched row: all columns of the batch, or those of ``values``."""
        return self._with(Clause("insert", condition, _pairs(values)))

    def leaving_out(self, *columns: str) -> Self:
        """Name columns of the batch that the table does not hold."""
        return replace(self, not_stored=(*self.not_stored, *columns))

    def _with(self, clause: Clause) -> Self:
        return replace(self, clauses=(*self.clauses, clause))

    @property
    def anew(self) -> Merge:
        """The merge into an empty table, where no row matches."""
        return replace(self, on="false", clauses=tuple(clause for clause in self.clauses if clause.kind == "insert"))

    @property
    def takes_all(self) -> bool:
        """Whether some clause writes every column of the batch, so that it must fit the table."""
        return any(clause.kind != "delete" and clause.values is None for clause in self.clauses)

    @property
    def assigned(self) -> frozenset[str]:
        """Columns of the table that clauses name."""
        return frozenset(name for clause in self.clauses for name, _ in clause.values or ())

    @property
    def removes(self) -> bool:
        """Whether rows of the table may be updated or deleted."""
        return any(clause.kind != "insert" for clause in self.clauses)

    @property
    def problem(self) -> str | None:
        """Why it cannot work, in words."""
        if not self.on.strip() or not self.clauses:
            return "a merge needs a condition and at least one clause"
        for matched in (True, False):
            same = [clause for clause in self.clauses if (clause.kind != "insert") is matched]
            if any(clause.condition is None for clause in same[:-1]):
                return "a clause follows one of its kind that has no condition, so it would never be asked"
        return None

    def __str__(self) -> str:
        """The same as JSON, which :meth:`parse` reads."""
        clauses = [
            [clause.kind, clause.condition, None if clause.values is None else dict(clause.values)]
            for clause in self.clauses
        ]
        return json.dumps({"on": self.on, "clauses": clauses, "not_stored": self.not_stored}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The merge of a JSON text."""
        value: dict[str, Any] = json.loads(text)
        clauses = tuple(Clause(kind, condition, _pairs(values)) for kind, condition, values in value["clauses"])
        return cls(value["on"], clauses, tuple(value["not_stored"]))

    def build(self, builder: Any, columns: Sequence[str], say: Mapping[Kind, Say]) -> Any:
        """Add the clauses to a committer's builder. ``say`` adds a clause, by kind."""
        stored_columns = [name for name in columns if name not in self.not_stored]
        everything = {quote(name): f"s.{quote(name)}" for name in stored_columns}
        for clause in self.clauses:
            named = {quote(name): value for name, value in clause.values or ()}
            builder = say[clause.kind](builder, everything if clause.values is None else named, clause.condition)
        return builder


@dataclass(frozen=True, slots=True)
class Upsert:
    """How rows find the row they replace.

    Attributes:
        key: columns that identify a row. Empty: no key.
        sequence: column that orders the changes of a key. ``None``: a later epoch wins.
        delete: boolean column of the batch, not of the table. A row with true removes its key.
    """

    key: tuple[str, ...] = ()
    sequence: str | None = None
    delete: str | None = None

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same over rows whose columns were renamed."""
        sequence = None if self.sequence is None else names.get(self.sequence, self.sequence)
        return replace(self, key=tuple(names.get(name, name) for name in self.key), sequence=sequence)

    @property
    def merge(self) -> Merge | None:
        """The equivalent merge. ``None`` for an append. A null in the sequence comes before everything."""
        if not self.key:
            return None
        newer = None
        if self.sequence:
            column = quote(self.sequence)
            newer = replaces(f"s.{column}", f"t.{column}")
        merge = Merge(" AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in self.key))
        if self.delete is None:
            return merge.when_matched_update(newer).when_not_matched_insert()
        gone = f"s.{quote(self.delete)}"
        removal = f"{gone} AND {newer}" if newer else gone
        stays = f"NOT {gone}"
        # An older removal meets neither clause: it must not fall through to the update.
        update = f"{stays} AND {newer}" if newer else stays
        merge = merge.leaving_out(self.delete).when_matched_delete(removal).when_matched_update(update)
        return merge.when_not_matched_insert(stays)


def misnamed(
    upsert: Upsert, merge: Merge | None, batch: Mapping[str, Any], table: frozenset[str]
) -> tuple[str, str] | None:
    """Check the column names that the user gave. Returns a problem and its remedy, or ``None``.

    ``table`` holds present and possible columns, and is empty without a table.
    """
    if merge is None:
        return None
    columns = (*upsert.key, *([upsert.sequence] if upsert.sequence else []), *merge.not_stored)
    if problem := _uncompared(upsert, columns, batch):
        return problem
    if upsert.delete and batch[upsert.delete] != "boolean":
        difference = f"column {upsert.delete}, which delete_flag= names, is {batch[upsert.delete]}; it must be boolean"
        return difference, "name a boolean column of the batch"
    if unknown := sorted(merge.assigned - table):
        return f"merge= sets {', '.join(unknown)}, which the table does not have", "create them, or correct merge="
    if not table and not merge.takes_all:
        return "merge= writes into a table that does not exist", "create the table first"
    return None


def _uncompared(upsert: Upsert, columns: Sequence[str], batch: Mapping[str, Any]) -> tuple[str, str] | None:
    """Problem and remedy for a missing column, or for values that cannot be compared."""
    if absent := [name for name in columns if name not in batch]:
        named = f"key=, sequence=, delete_flag= or merge= names {', '.join(absent)}"
        difference = f"{named}, which the batch does not have; it has: {shorten_list([*batch])}"
        return difference, f"name columns of the batch{nearest(absent, batch)}"
    if nested := [name for name in (*upsert.key, upsert.sequence) if name and isinstance(batch[name], dict)]:
        difference = (
            f"column {nested[0]} is of type {batch[nested[0]]['type']}, which key= and sequence= cannot compare"
        )
        return difference, f"name plain columns of the batch, such as its text: to_json({nested[0]})"
    return None


def checked(upsert: Upsert, merge: Merge | None, schema: str) -> Merge | None:
    """The merge that a user's arguments ask for. ``None`` for an append. Raises E110 if they do not fit together."""
    names = [*upsert.key, *(name for name in (upsert.sequence, upsert.delete) if name is not None)]
    if merge is not None and names:
        problem, remedy = "merge= beside key=, sequence= or delete_flag=", "give one or the others"
        raise unfit("DeltaSink", problem, "merge= decides all that they would decide", remedy)
    if names and not upsert.key:
        problem = "sequence= or delete_flag= without key="
        raise unfit("DeltaSink", problem, "both are about the rows of a key", 'give key="id"')
    if len(set(names)) < len(names):
        problem = f"key={upsert.key!r}, sequence={upsert.sequence!r}, delete_flag={upsert.delete!r}"
        raise unfit("DeltaSink", problem, "a column is named twice", "name each once")
    if merge is None:
        return upsert.merge
    if merge.problem:
        remedy = 'Merge("t.id = s.id").when_matched_update()'
        raise unfit("DeltaSink", f"this merge=: {merge.problem}", "its clauses do not fit together", remedy)
    if schema == "add_columns" and not merge.takes_all:
        cause = "the merge would never write the columns that are added"
        raise unfit("DeltaSink", 'schema="add_columns" beside this merge=', cause, "leave it out")
    return merge


def _pairs(values: Mapping[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    return None if values is None else tuple(values.items())
