"""Tuning options and the address of a Delta sink.

The address holds the table's location, and the options that reading or healing the sink needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qs, urlencode

from onceonly.errors.options import Bytes, Column, Typed, checks_arguments, read_texts, write_texts
from onceonly_checkpoints.epoch_time import milliseconds
from onceonly_sinks.delta.merge import Merge
from onceonly_sinks.delta.planning import Settings

Committer = Literal["auto", "log", "spark"]
"""Who commits: deltalake (``log``), Spark's Delta, or the one that fits the table."""
SchemaChange = Literal["fail", "add_columns"]
"""Reaction to columns of a batch that the table lacks."""
AllowedChanges = Literal["nothing", "appends", "deletes", "changes"]
"""Changes that other writers may make. Each word includes the ones before it."""


@checks_arguments
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeltaTuning(Typed):
    """How rows travel to a Delta table.

    Attributes:
        committer: ``log`` commits through deltalake, ``spark`` through Spark's Delta. ``auto`` takes deltalake, except
            for merges beyond ``driver_limit``, tables with features that deltalake does not write, and rows that Spark
            would read differently. Those are rows of a table with generated columns, and some merges: a partition
            column is a timestamp, a decimal, floating point or bytes, a partition's name is not ASCII, or Spark wrote
            timestamps before 1678 or after 2262. Without Spark's Delta, merges beyond ``driver_limit`` go through the
            driver, and the others are refused (E110).
        driver_limit: largest epoch, in bytes of Arrow, that goes through the driver.
        epoch_column: name of a column that gets the epoch's number. ``None``: no such column.

    Raises:
        ConfigurationError: E110, a value without meaning.
    """

    committer: Committer = "auto"
    driver_limit: Bytes = 64 * 1024 * 1024
    epoch_column: Column | None = None


TUNING = DeltaTuning()

_KIND, _KEEPS = "delta:", "keeps"
_NAMES = ("id", "key", "sequence", "delete_flag", "merge", "schema", "epoch_column", "external_changes", "partition_by")


def address_of(
    location: str, settings: Settings, id_: str | None, merge: Merge | None, call: Callable[..., Any]
) -> str:
    """``delta:<place>[#name=value&...]``, with options that differ from their defaults. ``call`` takes them.

    ``id_`` is ``None`` if it follows from the place. ``merge`` is the user's own.
    """
    values = {
        **{"id": id_, "merge": merge, "schema": "add_columns" if settings.grows else "fail"},
        **{"key": settings.upsert.key, "sequence": settings.upsert.sequence, "delete_flag": settings.upsert.delete},
        **{"epoch_column": settings.epoch_column, "partition_by": settings.partition_by},
        "external_changes": settings.foreign.word,
    }
    keeps = {_KEEPS: [f"{settings.keeps} seconds"]} if settings.keeps else {}
    texts = {**write_texts(values, ("id",) if keeps else _NAMES, call, DeltaTuning), **keeps}
    mark = "#" if texts or "#" in location else ""
    return f"{_KIND}{location}{mark}{urlencode(texts, doseq=True, safe=':/,')}"


def read_address(address: str, call: Callable[..., Any]) -> tuple[str, dict[str, Any], int]:
    """Split an address into place, keyword arguments, and the seconds for which ids are kept. A path is one, too.

    Raises E110: there is no such option.
    """
    rest = address.removeprefix(_KIND)
    location, mark, query = rest.rpartition("#")
    texts: dict[str, Sequence[str]] = {**parse_qs(query)}
    if not mark or (query and not texts):
        return rest, {}, 0
    keeps = (milliseconds(",".join(texts.pop(_KEEPS, ()))) or 0) // 1000
    values = read_texts("the address of a Delta sink", texts, _NAMES, call, DeltaTuning)
    column = values.pop("epoch_column", None)
    return location, {**values, "tuning": DeltaTuning(epoch_column=column)}, keeps
