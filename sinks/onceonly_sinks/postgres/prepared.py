"""What ``prepare`` hands to ``commit``: rows near the target, that nobody else can see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly_sinks.postgres.castplan import Plan

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly_sinks.postgres.upsert import Waiting


@dataclass(slots=True)
class PostgresPrepared:
    """Rows of one epoch.

    Attributes:
        plan: how they were converted, and for which table.
        rows: counted by the server as it took them.
        release: what to do when they are not needed any more; never raises.
        connection: the open transaction that holds them; ``None`` if they were staged, or if there are none.
        waiting: where those wait that are not yet in the target.
        proven: whether the rows that wait must be counted again before the commit.
    """

    plan: Plan
    rows: int
    release: Callable[[], None]
    connection: Connection | None = None
    waiting: Waiting | None = None
    proven: bool = True

    def abandon(self) -> None:
        """Roll back, or drop the staging table. Never raises; may repeat."""
        release, self.release = self.release, _nothing
        release()


def _nothing() -> None:
    return
