"""Sinks that take rows one by one, and do so in the wrong way; what they do not override is the tutorial's folder."""

from __future__ import annotations

from typing import Any

from tests.sinks.tutorial import FolderHarness, FolderSink

from onceonly_checkpoints.epoch import Marker
from onceonly_lab.conformance.claims_kills import (
    a_cut_off_epoch_that_is_replayed_leaves_each_key_once_with_its_newest_row as _replayed,
)
from onceonly_lab.conformance.claims_kills import a_marker_never_stands_before_all_of_its_rows as _marker_last
from onceonly_lab.conformance.claims_kills import (
    rows_of_a_cut_off_first_epoch_are_not_called_a_strangers as _not_strange,
)


class MarkerFirst(FolderSink):
    """Puts the marker before the rows: what is cut off then is never put again."""

    def _put_rows(self, table: Any, marker: Marker) -> None:
        self._put(self._epoch(marker.epoch.number), {"marker": marker.text, "rows": table.num_rows})
        super()._put_rows(table, marker)


class KeyOfItsGeneration(FolderSink):
    """Puts each row under a key that the replay does not give again."""

    def _put_rows(self, table: Any, marker: Marker) -> None:
        self._put(self._ours / "begun.json", {"epoch": marker.epoch.number})
        for row in table.to_pylist():
            self._put(self.root / "rows" / f"%3D{row[self.key]}-{marker.fence.generation}.json", row)


class TakesItsOwnForAStrangers(FolderSink):
    """Goes by rows and markers alone: what its own first epoch left, cut off, is somebody else's."""

    def _strangers(self) -> bool:
        return bool(self._has_rows())


PUTS: dict[type[Any], set[str]] = {
    MarkerFirst: {_marker_last.__name__, _replayed.__name__, _not_strange.__name__},
    KeyOfItsGeneration: {_replayed.__name__},
    TakesItsOwnForAStrangers: {_not_strange.__name__},
}
"""Each with the claims that must catch it, and no other."""


def harness_of(broken: type[Any], moments: int = 10) -> type[Any]:
    """A harness of a broken one."""

    class Harness(FolderHarness):
        def connect(self) -> Any:
            return broken(self._root, "id")

    Harness.moments = moments
    return Harness
