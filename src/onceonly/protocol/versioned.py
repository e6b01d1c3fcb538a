"""Reading a sink as of an epoch: what those that can are asked, and how they say that they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from onceonly_checkpoints.epoch import Epoch, Receipt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class EpochExpired(Exception):
    """Rows as of an epoch were there once and are not all there any more. The words hold no secret.

    Attributes:
        reason: what is missing, and since when where that is known.
        cause: what may have taken it.
    """

    def __init__(self, reason: str, cause: str) -> None:
        super().__init__(reason)
        self.reason, self.cause = reason, cause


class NotVersioned(Exception):
    """A sink, as it was made, does not tell the rows of an epoch from later ones. The words hold no secret.

    Attributes:
        reason: why.
        option: what would make it tell them.
        newest: whether the rows of the newest epoch can be read, as of which it no longer stands.
    """

    def __init__(self, reason: str, option: str, *, newest: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.option, self.newest = reason, option, newest


@runtime_checkable
class Versioned(Protocol):
    """A sink whose rows can be read as of an epoch. Optional; ``onceonly.reading.read_at`` asks it.

    Each method is called after ``open``, without a fence, with the receipt of an epoch, and with that of an earlier one
    whose rows, and those before it, are left out. Rows as of an epoch are the same however often they are read: where
    that can no longer be, nothing is read. Without it a sink is read with its destination's own means.
    """

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """See that rows can be read as of an epoch, as far as that shows without reading them.

        Raises:
            EpochGone: not all of them are there any more.
            NotVersioned: the sink does not tell them.
            DestinationError: there is no answer.
        """
        ...

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Rows as of an epoch, in this process.

        Raises:
            EpochGone, NotVersioned, DestinationError: as :meth:`check_at`.
        """
        ...

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """Rows as of an epoch, by Spark, when they are asked for; the sink may be closed before.

        Raises:
            EpochGone, NotVersioned, DestinationError: as :meth:`check_at`.
        """
        ...


@runtime_checkable
class Seals(Protocol):
    """A sink that shows readers no epoch before all sinks hold it, or keeps old rows for them. Optional.

    Without it readers of several sinks take a read point.
    """

    def seal(self, epoch: Epoch, pinned: int | None) -> None:
        """Take note that all sinks hold an epoch; after it was recorded. Never raises.

        Args:
            epoch: the one that this sink has committed last.
            pinned: the oldest epoch that a reader has pinned, 0 for none; ``None`` where nobody has looked.
        """
        ...


@runtime_checkable
class Selectable(Protocol):
    """A sink whose rows as of an epoch can be read by one statement of SQL. Optional."""

    def select_at(self, at: Receipt, since: Receipt | None = None) -> str:
        """The statement, complete, for whoever reads the target with its own means. After ``open``, without a fence.

        Raises:
            EpochGone, NotVersioned, DestinationError: as :meth:`Versioned.check_at`.
        """
        ...


@runtime_checkable
class Locates(Protocol):
    """A sink some of whose columns say where and when a row lies, as offsets do. Optional.

    Rows of two targets are compared without them: the same row lies elsewhere in each.
    """

    @property
    def location_columns(self) -> tuple[str, ...]:
        """Their names."""
        ...
