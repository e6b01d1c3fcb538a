"""What a table must be for its sink, judged before the first epoch is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly.doctor import Check, spot
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.upsert import Merge


def judge(name: str, table: Table, merge: Merge) -> Iterator[Check]:
    """D207: an upsert whose key no unique index decides.

    Args:
        name: the sink's address.
        table: as it is.
        merge: how rows meet those already there.
    """
    if merge.key and frozenset(merge.key) not in table.keys:
        columns = ", ".join(f'"{column}"' for column in merge.key)
        yield spot("D207", name, table=table.name.text, key=", ".join(merge.key), columns=columns)
