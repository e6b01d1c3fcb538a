"""Admission rules of a query before epoch 1. Pure.

A refusal here is one that the destination would give later in other words, or never: rows written twice, read again, or
put into a table that keeps something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from onceonly.errors import refuse
from onceonly.machine.source_order import read_of
from onceonly.protocol import Names, Sink
from onceonly_checkpoints.model import SourceIdentity, SourceOffsets
from onceonly_checkpoints.storage import resolved

# ---- Names of columns.


def check_names(query: str, sink: str, names: Names, columns: Sequence[str]) -> None:
    """Refuse columns that cannot be told apart in a destination, with a call that renames them.

    Args:
        query: name of the pipeline.
        sink: whose destination it is.
        names: what it tells apart.
        columns: their names, in order.

    Raises:
        ConfigurationError: E138.
    """
    if found := _fault(names, columns):
        call = f"df.toDF({', '.join(map(_quoted, renamed(names, columns)))})"
        way = f"rename by position, where the stream is made or in before=: {call}\nor leave one out with select()"
        raise refuse("E138", query=query, sink=sink, problem=found[0], cause=found[1], next=way)


def _fault(names: Names, columns: Sequence[str]) -> tuple[str, str] | None:
    met: dict[str, str] = {}
    for at, name in enumerate(columns, start=1):
        kept, key = _cut(names, name), _key(names, name)
        if not name:
            return f"column {at} has no name", "an alias that is empty"
        if kept != name:
            held = f"column {name} has {len(name.encode())} bytes, of which {names.most} are kept: {kept}"
            return held, "a name that was put together from others"
        if key in met:
            other = met[key]
            alike = f"two columns are called {name}" if other == name else f"{other} and {name} are one name there"
            return alike, "a join keeps the column of both sides, or a select names it twice"
        met[key] = name
    return None


def renamed(names: Names, columns: Sequence[str]) -> tuple[str, ...]:
    """The names, of which those that do not fit are others; every name that fits and comes first stays."""
    taken: dict[str, str] = {}
    for at, name in enumerate(columns, start=1):
        wanted, number = _cut(names, name) or f"column_{at}", 1
        while _key(names, wanted) in taken or (wanted != name and wanted in columns):
            number += 1
            wanted = f"{_cut(names, name or f'column_{at}', len(f'_{number}'))}_{number}"
        taken[_key(names, wanted)] = wanted
    return tuple(taken.values())


def _cut(names: Names, name: str, room: int = 0) -> str:
    if names.most is None:
        return name
    return name.encode()[: names.most - room].decode(errors="ignore")


def _key(names: Names, name: str) -> str:
    return name.lower() if names.folds else name


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ---- Targets: as they are spelled where a call is made, and as they are once they were resolved.

_OPTIONS = re.compile(r"[?#][a-z_]+=.*")
"""What an address says of the sink behind its target; a table of Postgres stands behind a # without a name for it."""


def spelled(sink: Sink) -> str:
    """Where a sink writes to, as its address spells it, without what that says of the sink itself."""
    return _OPTIONS.sub("", sink.address)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a sink writes to.

    Attributes:
        sink: its id.
        address: as it was spelled.
        place: in one way however it was spelled; empty where that is not known.
        keeps: what is kept apart from good rows there; empty for these.
        named: whether the sink's id was given: a second sink on one target is then meant.
        feeds: what a source that reads the target is identified by; ``None`` where that was not asked.
    """

    sink: str
    address: str
    place: str
    keeps: str = ""
    named: bool = True
    feeds: str | None = None


Pair = tuple[Target, Target]


def check_apart(query: str, targets: Sequence[Target]) -> tuple[Pair, ...]:
    """Refuse two sinks on one target, unless an id says that it is meant; those pairs are returned (W701).

    Raises:
        ConfigurationError: E139.
    """
    pairs = tuple(_on_one(targets))
    for one, other in pairs:
        keeps = one.keeps or other.keeps
        if not keeps and (one.named or other.named):
            continue
        way = f'name one of them, if rows are to stand there for each: id="{other.sink}-2"; else leave one out'
        if keeps:
            way = f"give {keeps} a target of their own, which nothing else is written to"
        both = f"{one.address} and {other.address}"
        raise refuse("E139", query=query, sinks=f"{one.sink} and {other.sink}", place=one.place, both=both, next=way)
    return pairs


def _on_one(targets: Sequence[Target]) -> Iterator[Pair]:
    return ((one, other) for one, other in combinations(targets, 2) if one.place and one.place == other.place)


def check_loop(query: str, target: Target, sources: tuple[SourceIdentity, ...]) -> None:
    """Refuse a target that a source of the query reads: each epoch would be the input of the next.

    Raises:
        ConfigurationError: E147.
    """
    place = target.place.partition(":")[2]
    if any(source.folder and resolved(source.folder) == place for source in sources) or (
        target.feeds and read_of(target.feeds, sources, SourceOffsets(()))
    ):
        raise refuse("E147", query=query, sink=target.sink, target=target.address)


# ---- Output mode.

_CHANGES = re.compile(r"\.(Aggregate|FlatMapGroups\w*|TransformWithState\w*|MapGroups\w*)\"")
"""Classes of nodes, as a plan in JSON names them, whose rows come again once they have changed."""


def further_rows(output: str, plan: str | None, *, stateful: bool) -> bool:
    """Whether a group that changes is a row again: in output mode update, of a plan that has groups.

    Args:
        output: the query's output mode.
        plan: its analysed plan in JSON; ``None`` where nobody can spell it.
        stateful: whether it keeps state.
    """
    return output == "update" and stateful and (plan is None or _CHANGES.search(plan) is not None)


def check_output(query: str, output: str, adding: Sequence[str]) -> None:
    """Refuse the whole result, each epoch again, for sinks that only add rows.

    Args:
        query: name of the pipeline.
        output: its output mode; empty where the engine does not say it.
        adding: ids of such sinks.

    Raises:
        ConfigurationError: E137.
    """
    if output == "complete" and adding:
        raise refuse("E137", query=query, sinks=", ".join(adding))
