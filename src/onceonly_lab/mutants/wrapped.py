"""A sink that hands everything on to the one it wraps; a mutant overrides what it breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from onceonly.protocol import Batch, Capabilities, Position, Prepared, Recorder, Sight
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_lab.stores.places import Place

if TYPE_CHECKING:
    import pyarrow as pa


class Wrapped:
    """A real sink on a real place.

    Args:
        place: where it writes to.
    """

    def __init__(self, place: Place) -> None:
        # Mutants reach for what only their own kind of place and sink has.
        self.place: Any = place
        self.inner: Any = place.sink()

    @property
    def id(self) -> str:
        """The wrapped sink's."""
        return str(self.inner.id)

    @property
    def address(self) -> str:
        """The wrapped sink's."""
        return str(self.inner.address)

    @property
    def capabilities(self) -> Capabilities:
        """The wrapped sink's."""
        found: Capabilities = self.inner.capabilities
        return found

    @property
    def ledger_url(self) -> str | None:
        """None: the ledger lies elsewhere."""
        return None

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Nobody looks for a mutant.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError

    def open(self, pipeline: str) -> None:
        """Handed on, as all that follows."""
        self.inner.open(pipeline)

    def fence(self) -> Fence | None:
        """Handed on."""
        found: Fence | None = self.inner.fence()
        return found

    def look(self) -> Sight:
        """Handed on."""
        found: Sight = self.inner.look()
        return found

    def install(self, fence: Fence) -> None:
        """Handed on."""
        self.inner.install(fence)

    def position(self, since: Receipt | None) -> Position:
        """Handed on."""
        found: Position = self.inner.position(since)
        return found

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Handed on."""
        prepared: Prepared = self.inner.prepare(batch, epoch)
        return prepared

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Handed on."""
        receipt: Receipt = self.inner.commit(prepared, marker)
        return receipt

    def look_up(self, marker: Marker) -> Receipt | None:
        """Handed on."""
        found: Receipt | None = self.inner.look_up(marker)
        return found

    def sweep(self) -> None:
        """Handed on."""
        self.inner.sweep()

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Handed on."""
        yield from self.inner.history(after)

    def recount(self) -> Mapping[int, int] | None:
        """Not asked in these runs."""
        return None

    def close(self) -> None:
        """Handed on."""
        self.inner.close()

    def receipt(self, marker: Marker) -> Receipt:
        """The receipt of an epoch that is there, whoever brought it."""
        return next(receipt for _, receipt in self.history(marker.epoch.number - 1))


class Held:
    """Rows that wait in this process.

    Args:
        table: the rows.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def rows(self) -> int:
        """How many."""
        return int(self.table.num_rows)

    def abandon(self) -> None:
        """They go with the process."""


def held(batch: Batch) -> Held:
    """Take all rows of a batch."""
    import pyarrow as pa

    return Held(pa.Table.from_batches(list(batch.arrow()), batch.schema))
