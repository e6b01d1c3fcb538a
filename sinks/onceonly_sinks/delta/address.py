"""Parse and build the address of a Delta sink.

It holds the table's location, and the options that reading or healing the sink needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.merge import Merge
from onceonly_sinks.delta.planning import Settings

if TYPE_CHECKING:
    from typing_extensions import Self


_KIND = "delta:"
_NAMES = frozenset({"id", "key", "sequence", "delete", "merge", "schema", "epoch_column", "partition_by", "foreign"})


@dataclass(frozen=True, slots=True)
class AddressOptions:
    """Options in an address after the place, in their order. A name with several values occurs several times."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, settings: Settings, id_: str | None, merge: Merge | None) -> Self:
        """Options that differ from the defaults.

        ``id_`` is ``None`` if it follows from the place. ``merge`` is the user's own.
        """
        upsert = settings.upsert
        said = [
            ("id", id_),
            *(("key", name) for name in upsert.key),
            ("sequence", upsert.sequence),
            ("delete", upsert.delete),
            ("merge", merge.text if merge else None),
            ("schema", "add_columns" if settings.grows else None),
            ("epoch_column", settings.epoch_column),
            ("foreign", None if settings.foreign is ChangePolicy.APPENDS else settings.foreign.word),
            *(("partition_by", name) for name in settings.partition_by),
        ]
        return cls(tuple((name, value) for name, value in said if value))

    def address(self, place: str) -> str:
        """``delta:<place>[#name=value&...]``."""
        mark = "#" if self.pairs or "#" in place else ""
        return f"{_KIND}{place}{mark}{urlencode(self.pairs, safe=':/,')}"

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the sink."""
        found: dict[str, Any] = {name: value for name, value in self.pairs if name not in ("key", "partition_by")}
        for name in ("key", "partition_by"):
            found[name] = tuple(value for said, value in self.pairs if said == name)
        if "merge" in found:
            found["merge"] = Merge.parse(found["merge"])
        return found


def read_address(address: str) -> tuple[str, AddressOptions]:
    """Split an address into place and options. A plain path is an address, too."""
    rest = address.removeprefix(_KIND)
    place, mark, query = rest.rpartition("#")
    said = {name: values for name, values in parse_qs(query).items() if name in _NAMES}
    if not mark or (query and not said):
        return rest, AddressOptions(())
    return place, AddressOptions(tuple((name, value) for name, values in said.items() for value in values))
