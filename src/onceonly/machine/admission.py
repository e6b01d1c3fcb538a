"""What must hold of a query before its first epoch, whichever door it comes in by: pure rules; ``api.admission`` asks.

A refusal here is one that the destination would give later in other words, or never: rows written twice, read again, or
put into a table that keeps something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceonly.errors import refuse
from onceonly.protocol import Names

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
