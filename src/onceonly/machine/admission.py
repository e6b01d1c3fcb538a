"""Admission rules of a query before epoch 1. Pure.

The destination would refuse the same later in other words, or never: rows written twice, read again, or written to a
table for other rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from onceonly.errors import refuse
from onceonly.machine.facts import Happening
from onceonly.machine.source_order import read_of
from onceonly.protocol import Sink
from onceonly.protocol.values import Names
from onceonly_checkpoints.epoch import Epoch, OutputColumns, StateVersion
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import SourceIdentity, SourceOffsets
from onceonly_checkpoints.storage import resolved

# ---- Names of columns.


def check_names(query: str, sink: str, names: Names, columns: Sequence[str]) -> None:
    """Refuse columns that a destination cannot distinguish, with a call that renames them (E138)."""
    if fault := _fault(names, columns):
        call = f"df.toDF({', '.join(map(_quoted, renamed(names, columns)))})"
        remedy = (
            f"rename by position, where the stream is made or in transform=: {call}\nor leave one out with select()"
        )
        raise refuse("E138", query=query, sink=sink, problem=fault[0], cause=fault[1], next=remedy)


def _fault(names: Names, columns: Sequence[str]) -> tuple[str, str] | None:
    met: dict[str, str] = {}
    for at, name in enumerate(columns, start=1):
        short_name, key = _cut(names, name), _key(names, name)
        if not name:
            return f"column {at} has no name", "an alias that is empty"
        if short_name != name:
            held = f"column {name} has {len(name.encode())} bytes, of which {names.most} are kept: {short_name}"
            return held, "a name that was put together from others"
        if key in met:
            other = met[key]
            alike = f"two columns are called {name}" if other == name else f"{other} and {name} are one name there"
            return alike, "a join keeps the column of both sides, or a select names it twice"
        met[key] = name
    return None


def renamed(names: Names, columns: Sequence[str]) -> tuple[str, ...]:
    """Rename columns that do not fit. Every name that fits and comes first stays."""
    names_by_key: dict[str, str] = {}
    for at, name in enumerate(columns, start=1):
        candidate, number = _cut(names, name) or f"column_{at}", 1
        while _key(names, candidate) in names_by_key or (candidate != name and candidate in columns):
            number += 1
            candidate = f"{_cut(names, name or f'column_{at}', len(f'_{number}'))}_{number}"
        names_by_key[_key(names, candidate)] = candidate
    return tuple(names_by_key.values())


def _cut(names: Names, name: str, room: int = 0) -> str:
    if names.most is None:
        return name
    return name.encode()[: names.most - room].decode(errors="ignore")


def _key(names: Names, name: str) -> str:
    return name.lower() if names.folds else name


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ---- Columns of an epoch.


def columns_to_record(known: Sequence[OutputColumns], now: Sequence[OutputColumns]) -> tuple[OutputColumns, ...]:
    """Return the columns of all outputs if some of them differ from the newest recorded ones, else nothing."""
    before = {part.output: part.columns for part in known}
    new = tuple(part for part in now if before.get(part.output) != part.columns)
    changed = {part.output: replace(part, before=before.get(part.output, ())) for part in new}
    # An output may lack in an epoch, as that of late rows does. It is compared with its last columns.
    same = (replace(part, before=()) for part in (*known, *now) if part.output not in changed)
    kept = {part.output: part for part in same}
    return tuple((kept | changed).values()) if new else ()


def columns_changed(epoch: Epoch) -> tuple[Happening, ...]:
    """Note the columns that an epoch changed. Those that no epoch had recorded before are no change."""
    what = epoch.changed_columns
    return (Happening(EventKind.SCHEMA_CHANGED, what, epoch.number, once=True),) if what else ()


def state_left(epoch: Epoch, state: StateVersion | None) -> tuple[Happening, ...]:
    """Note the state that a replay left, if it is in other files than the epoch recorded."""
    if state is None or epoch.lineage is None or epoch.lineage.state in (None, state):
        return ()
    return (Happening(EventKind.STATE_LEFT, state.text, epoch.number),)


# ---- Targets: as they are spelled where a call is made, and as they are once they were resolved.

OPTIONS = re.compile(r"[?#][a-z_]+=.*")
"""What an address says of the sink behind its target; a table of Postgres stands behind a # without a name for it."""


def spelled(sink: Sink) -> str:
    """Return the address of a sink's target as the user spelled it, without options of the sink."""
    return OPTIONS.sub("", sink.address)


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a sink.

    Attributes:
        address: as the user spelled it.
        full_location: one spelling for all of the target's addresses. Empty if unknown.
        keeps: kind of rows that are kept apart from good rows there. Empty for good rows.
        named: whether the sink's id was given, so that a second sink on one target is intended.
        feeds: identity of a source that reads the target, or ``None`` if not asked.
    """

    sink: str
    address: str
    full_location: str
    keeps: str = ""
    named: bool = True
    feeds: str | None = None


Pair = tuple[Target, Target]


def check_apart(query: str, targets: Sequence[Target]) -> tuple[Pair, ...]:
    """Refuse two sinks on one target (E139), unless an id shows that it is intended. Return those pairs (W701)."""
    pairs = tuple(
        (target, other)
        for target, other in combinations(targets, 2)
        if target.full_location and target.full_location == other.full_location
    )
    for target, other in pairs:
        keeps = target.keeps or other.keeps
        if not keeps and (target.named or other.named):
            continue
        remedy = f'name one of them, if you want the rows of each: id="{other.sink}-2"; else leave one out'
        if keeps:
            remedy = f"give {keeps} a target of their own, which nothing else is written to"
        both = f"{target.address} and {other.address}"
        raise refuse(
            "E139",
            query=query,
            sinks=f"{target.sink} and {other.sink}",
            place=target.full_location,
            both=both,
            next=remedy,
        )
    return pairs


def check_loop(query: str, target: Target, sources: tuple[SourceIdentity, ...]) -> None:
    """Refuse a target that a source of the query reads (E147): each epoch would be the input of the next."""
    location = target.full_location.partition(":")[2]
    if any(source.folder and resolved(source.folder) == location for source in sources) or (
        target.feeds and read_of(target.feeds, sources, SourceOffsets(()))
    ):
        raise refuse("E147", query=query, sink=target.sink, target=target.address)


# ---- Output mode.

_CHANGES = re.compile(r"\.(Aggregate|FlatMapGroups\w*|TransformWithState\w*|MapGroups\w*)\"")
"""Classes of nodes, as a plan in JSON names them, whose rows come again once they have changed."""


def further_rows(output: str, plan: str | None, *, stateful: bool) -> bool:
    """Whether a changed group is a row again: in output mode update, if the plan has groups.

    ``plan`` is the analysed plan in JSON, or ``None`` if unavailable.
    """
    return output == "update" and stateful and (plan is None or _CHANGES.search(plan) is not None)


def check_output(query: str, output: str, adding: Sequence[str]) -> None:
    """Refuse output mode complete (E137), which repeats the whole result each epoch, for sinks that only add rows.

    ``output`` is empty if the engine does not give the mode. ``adding`` has the ids of such sinks.
    """
    if output == "complete" and adding:
        raise refuse("E137", query=query, sinks=", ".join(adding))
