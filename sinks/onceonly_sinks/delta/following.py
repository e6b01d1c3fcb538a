"""Cache the entries of a Delta log between looks.

A listing takes longer the older the table is. A reader that runs beside a query looks once for each epoch. So the
newest version is found from the previous newest one, and only later files are read. The cache is valid while the file
of that version is unchanged. A table that was recreated in the place has another file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from onceonly_sinks.delta import log as loginspect
from onceonly_sinks.delta.log import DeltaLog, LogEntry
from onceonly_sinks.delta.marker import pipeline_of, unpack

NEWEST = 200
"""Commits in which other writers are looked for: enough to meet each that is at work, and soon read."""


class CachedLog:
    """Memory of a log between two looks: a number, a hash, and names for at most :data:`NEWEST` commits."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._head = -1
        self._said: str | None = None
        self._writers: dict[int, frozenset[str]] = {}

    def head(self) -> int:
        """The newest version. -1 if there is none."""
        if self._said is None or self.fingerprint(self._head) != self._said:
            self._writers.clear()
            self._head = self._log.head()
            self._said = self.fingerprint(self._head)
        # A version follows the one before it, in every log: so one that is missing is the end.
        while (said := self.fingerprint(self._head + 1)) is not None:
            self._head, self._said = self._head + 1, said
        return self._head

    def fingerprint(self, version: int) -> str | None:
        """A hash of one version's file. ``None`` if it is missing."""
        text = self._log.text(version)
        return None if text is None else hashlib.sha256(text.encode()).hexdigest()

    def newest_first(self) -> Iterator[LogEntry]:
        """Every entry whose file still exists. The folder is listed only for entries below a missing one."""
        lowest = self.head() + 1
        for entry in self._log.before(lowest - 1):
            yield entry
            lowest = entry.version
        for version in reversed(self._log.versions() if lowest > 0 else ()):
            if version < lowest and (older := self._log.entry(version)) is not None:
                yield older

    def writers(self) -> list[str]:
        """Pipelines that wrote epochs in the newest commits, by name."""
        head = self.head()
        newest = range(max(0, head - NEWEST + 1), head + 1)
        self._writers = {version: self._written(version) for version in newest}
        return sorted(frozenset().union(*self._writers.values()))

    def _written(self, version: int) -> frozenset[str]:
        if version in self._writers:
            return self._writers[version]
        told = loginspect.transactions(self._log.text(version) or "")
        found = (pipeline_of(app) for app, number in told if unpack(number)[1])
        return frozenset(name for name in found if name is not None)
