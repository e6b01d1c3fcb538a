"""Export ledger changes as Prometheus metrics.

Counters start at 0 with the exporter, as is usual for Prometheus. Activity before the exporter's first read is not
counted. All activity of a pipeline that appears later is. If the ledger could not be read at first, its times separate
the two.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from onceonly.runtime.events import late_rows
from onceonly.runtime.remedies import open_epoch
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.epoch_time import END, EpochTime
from onceonly_checkpoints.ledger import Event, EventKind, Ledger, LedgerUnavailable, Pipeline

log = logging.getLogger(__name__)

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: a commit takes milliseconds, a staged batch of a large job minutes."""

_WHILE_AWAY = 1000
"""How many epochs are looked through for those that were recorded before a ledger could be read."""

_COMMITTED, _ADOPTED = "committed", "adopted"

_OUTCOMES = {
    EventKind.SKIPPED: "skipped",
    EventKind.TRIMMED: "trimmed",
    EventKind.REPLACED: "replaced",
    EventKind.RESOLVED: "resolved",
    EventKind.DIVERGED: "diverged",
    EventKind.FAILED: "failed",
    EventKind.FENCED: "fenced",
    EventKind.OPENED: "opened",
}


class Exporter:
    """Read a ledger repeatedly, and keep the metrics of its pipelines.

    The caller opens and closes the ledger. ``registry`` is for ``prometheus_client.start_http_server``. ``shown`` are
    the pipelines with metrics, as of the last read. ``predicate`` filters them.
    """

    def __init__(self, ledger: Ledger, predicate: Callable[[Pipeline], bool] = lambda _: True) -> None:
        self.registry = CollectorRegistry()
        self.shown: tuple[Pipeline, ...] = ()
        self._ledger = ledger
        self._is_selected = predicate
        self._looked = False
        self._away_since_ms: int | None = None
        self._readable = True
        self._lock = threading.Lock()
        self._last: dict[str, int] = {}
        self._events: dict[str, Event | None] = {}
        counter = partial(Counter, labelnames=("pipeline",), registry=self.registry)
        gauge = partial(Gauge, labelnames=("pipeline",), registry=self.registry)
        self._epochs = counter("onceonly_epochs", "Epochs and attempts by outcome.", labelnames=("pipeline", "outcome"))
        self._rows = counter("onceonly_rows", "Rows of committed epochs.")
        self._late = counter("onceonly_late_rows", "Rows that Spark dropped as older than the watermark.")
        self._behind = counter("onceonly_rows_behind_time", "Rows that came after their time was noted as complete.")
        self._lower = gauge("onceonly_lower_seconds", "Before which all rows are there, since 1970.")
        self._time_lag = gauge("onceonly_time_lag_seconds", "From what is complete to planned, newest epoch.")
        self._windows = gauge("onceonly_pane_windows", "Windows open behind the newest epoch.")
        self._dropped = counter("onceonly_pane_dropped_rows", "Rows that are in no window.")
        self._bad = counter("onceonly_bad_rows", "Rows that broke an expectation.")
        self._repeated = counter("onceonly_repeated_rows", "Rows left out as their id had been seen before.")
        self._phases = Histogram(
            "onceonly_phase_seconds",
            "Time of each phase.",
            ("pipeline", "phase"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._newest = gauge("onceonly_epoch", "Number of the newest recorded epoch.")
        self._generation = gauge("onceonly_generation", "Newest fencing generation.")
        self._lag = gauge("onceonly_epoch_lag_seconds", "From planned to recorded, newest epoch.")
        self._recorded = gauge("onceonly_epoch_recorded_timestamp_seconds", "When the newest epoch was recorded.")
        self._doubt = gauge(
            "onceonly_in_doubt_seconds", "Age of an epoch whose outcome is unknown; 0: none, or its driver is at work."
        )
        self._up = gauge("onceonly_ledger_up", "Whether the ledger could be read last time.", labelnames=())

    def look(self, now_ms: int) -> None:
        """Read new entries at ``now_ms``, milliseconds since 1970. An unreadable ledger is a metric, not an error."""
        if not self._ask(lambda entries: self._look_at(entries, now_ms)) and not self._looked:
            self._away_since_ms = self._away_since_ms or now_ms

    def begin(self) -> None:
        """Start counting for pipelines without metrics yet. The first read does the same for all."""
        self._ask(self._begin)

    def _ask(self, what: Callable[[Sequence[Pipeline]], None]) -> bool:
        with self._lock:
            try:
                what(self._ledger.pipelines())
            except LedgerUnavailable as error:
                if self._readable:
                    log.warning("the ledger cannot be read: %s", error)
                self._readable = False
            else:
                self._readable = True
            self._up.set(self._readable)
            return self._readable

    def _look_at(self, entries: Sequence[Pipeline], now_ms: int) -> None:
        if not self._looked:
            self._begin(entries)
        shown = tuple(entry for entry in entries if self._is_selected(entry))
        for entry in shown:
            self._look(entry, now_ms)
        self.shown = shown

    def _begin(self, entries: Sequence[Pipeline]) -> None:
        shown_names = {entry.name for entry in self.shown}
        for entry in entries:
            if entry.name not in shown_names:
                events = [event for event in self._ledger.events(entry.name) if self._is_old(event.at_ms)]
                self._last[entry.name], self._events[entry.name] = self._old(entry), events[-1] if events else None
        self._looked = True

    def _is_old(self, at_ms: int) -> bool:
        return self._away_since_ms is None or at_ms <= self._away_since_ms

    def _old(self, entry: Pipeline) -> int:
        """Number of the newest epoch that is not counted."""
        if self._away_since_ms is None:
            return entry.epoch
        first = max(1, entry.epoch - _WHILE_AWAY + 1)
        records = self._ledger.epochs(entry.name, first) if entry.epoch else ()
        return max((record.epoch.number for record in records if self._is_old(record.recorded_ms)), default=first - 1)

    def _look(self, entry: Pipeline, now_ms: int) -> None:
        name = entry.name
        self._begin_at_zero(name)
        in_doubt = open_epoch(self._ledger, entry, now_ms)
        for record in self._ledger.epochs(name, self._last.setdefault(name, 0) + 1):
            self._count(record)
            self._last[name] = record.epoch.number
        for event in self._new_events(name):
            if outcome := _OUTCOMES.get(event.kind):
                self._epochs.labels(name, outcome).inc()
            self._late.labels(name).inc(late_rows(event))
        doubtful = in_doubt is not None and in_doubt.overdue and in_doubt.epoch > self._last[name]
        self._doubt.labels(name).set(in_doubt.age_ms(now_ms) / 1000 if in_doubt and doubtful else 0)
        self._generation.labels(name).set(entry.generation)
        head = self._ledger.head(name)
        self._newest.labels(name).set(head.epoch.number if head else 0)
        if head is not None:
            self._recorded.labels(name).set(head.recorded_ms / 1000)
            planned = head.epoch.lineage.batch_timestamp_ms if head.epoch.lineage else 0
            self._lag.labels(name).set(max(0, head.recorded_ms - planned) / 1000 if planned else 0)
            self._says_time(name, head.epoch.time)
            if head.epoch.windows is not None:
                self._windows.labels(name).set(head.epoch.windows.open.rows)

    def _begin_at_zero(self, name: str) -> None:
        # Of a series that appears with its first event, Prometheus cannot tell that it has increased.
        for outcome in (_COMMITTED, _ADOPTED, *_OUTCOMES.values()):
            self._epochs.labels(name, outcome)
        for counter in (self._rows, self._late, self._bad, self._repeated, self._behind, self._dropped):
            counter.labels(name)

    def _count(self, record: EpochRecord) -> None:
        name, epoch = record.pipeline, record.epoch
        self._epochs.labels(name, _COMMITTED if epoch.adoption is None else _ADOPTED).inc()
        self._rows.labels(name).inc(epoch.rows)
        self._bad.labels(name).inc(epoch.bad.digest.rows if epoch.bad else 0)
        self._repeated.labels(name).inc(epoch.repeated.rows if epoch.repeated else 0)
        self._behind.labels(name).inc(epoch.time.late_rows if epoch.time else 0)
        self._dropped.labels(name).inc(epoch.windows.dropped if epoch.windows and epoch.adoption is None else 0)
        for phase, seconds in record.phases:
            self._phases.labels(name, phase).observe(seconds)

    def _says_time(self, name: str, time: EpochTime | None) -> None:
        # A series of numbers that nobody said would read as 1970, so there is none until there is a word.
        if time is None or time.unit != "ms" or time.dataset_complete_until is None or time.complete_until is None:
            return
        lower = math.inf if time.dataset_complete_until == END else time.dataset_complete_until / 1000
        self._lower.labels(name).set(lower)
        # Behind the end of time nothing follows, so nobody is behind.
        lag = 0 if time.complete_until == END else (time.batch_timestamp_ms - time.complete_until) / 1000
        self._time_lag.labels(name).set(lag)

    def _new_events(self, name: str) -> Sequence[Event]:
        events = list(self._ledger.events(name))
        last_event = self._events.get(name)
        self._events[name] = events[-1] if events else None
        after = next((index + 1 for index in range(len(events) - 1, -1, -1) if events[index] == last_event), 0)
        return events[after:]
