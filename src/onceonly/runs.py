"""Which run of each pipeline is the newest in this process, so that a callback of an older one is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from onceonly.errors import refuse


@dataclass
class _Seen:
    run_ids: list[str] = field(default_factory=list)
    query_id: str = ""


class Runs:
    """Runs by pipeline, oldest first. Safe to use from several callback threads."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def enter(self, pipeline: str, query_id: str, run_id: str, still_running: Callable[[str, str], bool]) -> None:
        """Make a run the newest of its pipeline.

        Args:
            pipeline: its name.
            query_id: Spark's id of the query.
            run_id: Spark's id of this start.
            still_running: tells of ``(query id, run id)`` whether that run is active.

        Raises:
            ConfigurationError: E103 another run of the pipeline is active.
            FencedOut: E402 a newer run has been entered since.
        """
        with self._lock:
            seen = self._seen.setdefault(pipeline, _Seen())
            if run_id in seen.run_ids[:-1]:
                raise refuse("E402", run=run_id, pipeline=pipeline)
            newest = seen.run_ids[-1] if seen.run_ids else run_id
            if newest != run_id and still_running(seen.query_id, newest):
                raise refuse("E103", pipeline=pipeline, run=newest)
            if newest != run_id or not seen.run_ids:
                seen.run_ids.append(run_id)
            seen.query_id = query_id

    def check(self, pipeline: str, run_id: str) -> None:
        """Refuse a run that is no longer the newest.

        Raises:
            FencedOut: E402.
        """
        with self._lock:
            if self._seen[pipeline].run_ids[-1] != run_id:
                raise refuse("E402", run=run_id, pipeline=pipeline)
