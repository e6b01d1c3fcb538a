"""OpenLineage: send each committed epoch to a receiver, beside the query."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from onceonly.errors import caution, mask, refuse
from onceonly.errors.options import checks_arguments, meaningless
from onceonly.runtime.sink_refusals import reason_of
from onceonly.spark.engine import Run
from onceonly_checkpoints.epoch import Columns, EpochRecord
from onceonly_checkpoints.ledger import Event, EventKind, Ledger, LedgerUnavailable
from onceonly_checkpoints.model import canonical, parse_offset
from onceonly_checkpoints.storage import without_secrets

__all__ = ["OpenLineage"]

log = logging.getLogger(__name__)

_TRANSPORTS = ("http", "file", "kafka")
"""Those that answer for each event. The client's others drop or postpone an event and report success."""

_ANSWER_S = 10.0
_PAGE = 100
"""Epochs between two notes of the progress. A killed driver sends so many again at most."""

_PAUSES_S = (1.0, 60.0)
"""The first pause after an event that was not taken, and the longest."""


@checks_arguments
class OpenLineage:
    """A receiver of OpenLineage events, for ``exactly_once(lineage=)``.

    A committed epoch sends START and COMPLETE, a refused or failed attempt FAIL. Events come at least once. The run id
    of an epoch follows from namespace, pipeline and number, that of an attempt from its time, too.

    Args:
        to: URL of an HTTP receiver, path of a file, or the settings of a transport ``http``, ``file`` or ``kafka`` of
            the client library, also as JSON.
        namespace: of the job. The pipeline is its name.
        first_epoch: the first one to send if this pipeline has sent none yet.

    Raises:
        ConfigurationError: E108, ``openlineage-python`` is not installed. E110, no place that can be sent to.
    """

    def __init__(
        self, to: str | os.PathLike[str] | Mapping[str, Any], *, namespace: str = "onceonly", first_epoch: int = 1
    ) -> None:
        settings = _settings(to)
        address = settings.get("url") or settings.get("log_file_path") or f"topic {settings.get('topic')}"
        self.receiver = mask(f"The receiver {address}")
        self._transport = _transport(settings)
        self.namespace = namespace
        self._first_epoch = first_epoch

    def deliver(self, run: Run, ledger: Ledger, pipeline: str) -> Delivery:
        """Return the delivery of a run's epochs. It begins with the first batch."""
        sources: dict[str, str] = {}
        for source in run.plan.sources:
            if source.brokers:
                sources[source.id] = f"kafka://{source.brokers.servers.partition(',')[0]}"
            elif path := source.origin.partition("[")[2].removesuffix("]"):
                sources[source.id] = without_secrets(path)
        return Delivery(LedgerEvents(ledger, pipeline, self.namespace, sources), self, self._first_epoch)

    def emit(self, event: Any) -> None:
        """Send one event and wait for the answer. Raises if the receiver did not take it."""
        if self._transport.kind != "kafka":
            self._transport.emit(event)
            return
        # The client's own emit() only logs a refusal of the broker.
        from openlineage.client.serde import Serde

        refusals: list[object] = []
        producer = self._transport.producer
        producer.produce(
            self._transport.topic,
            key=f"run:{event.job.namespace}/{event.job.name}",
            value=Serde.to_json(event).encode(),
            on_delivery=lambda error, _: refusals.append(error) if error else None,
        )
        left = producer.flush(_ANSWER_S)
        if left or refusals:
            producer.purge()
            raise ConnectionError(str(refusals[0]) if refusals else f"no answer in {_ANSWER_S:g} s")


def _settings(to: object) -> dict[str, Any]:
    if isinstance(to, Mapping):
        settings: dict[str, Any] = dict(to)
    elif str(to).startswith("{"):
        try:
            settings = json.loads(str(to))
        except ValueError as error:
            raise meaningless("OpenLineage", "to", mask(str(to)), f"JSON ({error})", required=True) from error
    elif str(to).startswith(("http://", "https://")):
        settings = {"type": "http", "url": str(to), "retry": {"total": 0}}
    else:
        settings = {"type": "file", "log_file_path": os.fspath(to), "append": True}  # type: ignore[call-overload]
    if settings.get("type") not in _TRANSPORTS:
        expected = f"a URL, a path, or settings with type {', '.join(_TRANSPORTS)}"
        raise meaningless("OpenLineage", "to", settings.get("type"), expected, required=True)
    return settings


def _transport(settings: dict[str, Any]) -> Any:
    kind = settings.pop("type")
    try:
        from openlineage.client.transport import file, http, kafka

        # Not by the client's factory: a variable of the environment makes that one drop all events.
        kinds: dict[str, Any] = {"http": http.HttpTransport, "file": file.FileTransport, "kafka": kafka.KafkaTransport}
        return kinds[kind](kinds[kind].config_class.from_dict(settings))
    except ModuleNotFoundError as missing:
        package, extra = (
            ("confluent-kafka", "kafka")
            if kind == "kafka" and missing.name == "confluent_kafka"
            else ("openlineage-python", "lineage")
        )
        raise refuse("E108", what="OpenLineage()", package=package, extra=extra) from missing
    except (RuntimeError, TypeError, ValueError) as error:
        expected = f"the settings of the client's {kind} transport ({mask(str(error))})"
        raise meaningless("OpenLineage", "to", kind, expected, required=True) from error


# ---- Events of a pipeline, read from its ledger.


@dataclass(frozen=True, slots=True)
class Sent:
    """How far events were sent: the newest epoch with its chain, and the time of the newest failure."""

    epoch: int
    chain: str = ""
    failed_ms: int = 0


class LedgerEvents:
    """Events of a pipeline's epochs, and how far they were sent.

    ``sources`` are the addresses of the run's sources. Empty: as the newest run noted them.
    """

    def __init__(self, ledger: Ledger, pipeline: str, namespace: str | None, sources: Mapping[str, str]) -> None:
        self.ledger = ledger
        self.pipeline = pipeline
        self._namespace, self._sources = namespace, sources
        self._columns: tuple[int, Mapping[str, Columns]] = (0, {})
        self._plan: tuple[str, str] = ("", "")

    def _notes(self) -> Iterator[Mapping[str, Any]]:
        """Yield the notes of the progress, newest first."""
        for event in reversed(self.ledger.events(self.pipeline, kind=EventKind.LINEAGE_SENT)):
            yield {"epoch": event.epoch, **parse_offset(event.reason.partition(": ")[2])}

    @cached_property
    def _job(self) -> tuple[str, Mapping[str, str]]:
        noted = next(self._notes(), {}) if self._namespace is None or not self._sources else {}
        return self._namespace or noted.get("namespace", "onceonly"), self._sources or noted.get("sources", {})

    def sent(self) -> Sent | None:
        """Return the newest note that stands. ``None``: there is none.

        A driver that was fenced out may have noted an epoch after it was taken back.
        """
        positions = (Sent(note["epoch"], note["chain"], note["failed_ms"]) for note in self._notes())
        return next(filter(self.stands, positions), None)

    def stands(self, sent: Sent) -> bool:
        """Whether the epoch was not taken back since: it has come again under its number, or will."""
        recorded = self.ledger.epochs(self.pipeline, sent.epoch, sent.epoch)
        if recorded:
            return sent.chain in ("", recorded[0].epoch.chain)
        # A pruned epoch is not in the ledger.
        head = self.ledger.head(self.pipeline)
        return not sent.epoch or (head is not None and head.epoch.number > sent.epoch)

    def note(self, sent: Sent) -> None:
        """Note in the ledger how far events were sent."""
        namespace, sources = self._job
        note = {"namespace": namespace, "sources": dict(sources), "chain": sent.chain, "failed_ms": sent.failed_ms}
        reason = f"sent until epoch {sent.epoch}: {canonical(note)}"
        self.ledger.note(Event(self.pipeline, EventKind.LINEAGE_SENT, reason, sent.epoch))

    def pending(self, sent: Sent, last: int | None = None) -> Iterator[tuple[Sent, Sequence[Any]]]:
        """Yield the events of each failure and epoch that was not sent, and what is sent once they are taken.

        An epoch is there once every sink has confirmed it. Of failures there are the newest hundred.
        """
        from onceonly.lineage import events

        subject = self.subject()
        for failure in self.ledger.events(self.pipeline, _PAGE, EventKind.FAILED):
            if failure.at_ms > sent.failed_ms:
                sent = replace(sent, failed_ms=failure.at_ms)
                yield sent, [events.failed(subject, failure)]
        head = self.ledger.head(self.pipeline)
        newest = head.epoch.number if head else 0
        last = newest if last is None else min(last, newest)
        for first in range(sent.epoch + 1, last + 1, _PAGE):
            for record in self.ledger.epochs(self.pipeline, first, min(last, first + _PAGE - 1)):
                if record == head and record.lacking:
                    return
                sent = replace(sent, epoch=record.epoch.number, chain=record.epoch.chain)
                columns, plan = self._columns_of(record), self._plan_of(record)
                yield sent, events.committed(replace(subject, columns=columns, plan=plan), record)

    def subject(self) -> Any:
        """Return what all events of the pipeline share."""
        from onceonly.lineage import events

        namespace, sources = self._job
        entry = next((entry for entry in self.ledger.pipelines() if entry.name == self.pipeline), None)
        promises = self.ledger.events(self.pipeline, 1, EventKind.PROMISED)
        sinks, guarantee = dict(entry.sinks) if entry else {}, promises[0].reason if promises else ""
        return events.Subject(self.pipeline, namespace, sinks, sources, guarantee)

    def _columns_of(self, record: EpochRecord) -> Mapping[str, Columns]:
        number = record.epoch.columns_epoch
        if number and self._columns[0] != number:
            records = [record] if record.epoch.columns else self.ledger.epochs(self.pipeline, number, number)
            parts = records[0].epoch.columns if records else ()
            self._columns = number, {part.output: part.columns for part in parts}
        return self._columns[1] if number else {}

    def _plan_of(self, record: EpochRecord) -> str:
        lineage = record.epoch.lineage
        name = lineage.plan.text if lineage and lineage.plan else ""
        if name and self._plan[0] != name:
            plans = self.ledger.plans(self.pipeline)
            self._plan = name, next((plan.body for plan in plans if plan.plan == name), "")
        return self._plan[1] if name else ""

    def resend(self, to: OpenLineage, address: str, epochs: range | None = None) -> list[int]:
        """Send recorded epochs, by default what is not noted as sent, and return their numbers.

        ``address`` is how the user spelled the receiver.

        Raises:
            DestinationUnavailable: E532, the receiver did not take an event. What came before is noted.
            LedgerUnavailable: the ledger cannot be read.
        """
        begin = self.sent() or Sent(0)
        # Epochs that the user names are sent alone, without attempts that failed.
        sent = Sent(epochs.start - 1, failed_ms=sys.maxsize) if epochs else begin
        numbers: list[int] = []
        try:
            for reached, run_events in self.pending(sent, epochs.stop - 1 if epochs else None):
                self._emit(to, address, reached, run_events)
                numbers += [reached.epoch] if reached.epoch > sent.epoch else []
                sent = reached
        finally:
            if not epochs and sent != begin:
                self.note(sent)
        return numbers

    def _emit(self, to: OpenLineage, address: str, reached: Sent, run_events: Sequence[Any]) -> None:
        try:
            for event in run_events:
                to.emit(event)
        except Exception as error:
            raise refuse(
                "E532",
                receiver=to.receiver,
                epoch=reached.epoch,
                pipeline=self.pipeline,
                reason=reason_of(error),
                to=mask(address),
                ledger=self.ledger.address,
            ) from error


# ---- Delivery: a thread beside the query. The ledger is its queue.


class Delivery:
    """Send the epochs of one run, and those that an earlier run left.

    A call only sets a flag. The thread reads the ledger. An event counts as sent after the receiver has answered.
    """

    def __init__(self, ledger_events: LedgerEvents, to: OpenLineage, first_epoch: int) -> None:
        self._events, self._to, self._first_epoch = ledger_events, to, first_epoch
        self._woken, self._closed = threading.Event(), threading.Event()
        self._sent: Sent | None = None
        self._noted = Sent(0)
        self._thread = threading.Thread(target=self._run, name=f"lineage of {ledger_events.pipeline}", daemon=True)

    def wake(self) -> None:
        """Look at the ledger: a batch has ended. Returns at once."""
        self._woken.set()
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Try once more to send what is left, and wait for the answers."""
        self._closed.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause = 0.0
        while True:
            if pause:
                self._closed.wait(pause)
            else:
                self._woken.wait()
            self._woken.clear()
            is_last = self._closed.is_set()
            try:
                self.send(is_last=is_last)
                pause = 0.0
            except Exception as error:  # noqa: BLE001 - a transport raises what it likes, and the query goes on
                if not pause and not isinstance(error, LedgerUnavailable):
                    log.warning("%s", self._caution(error))
                pause = min(_PAUSES_S[1], 2 * pause or _PAUSES_S[0])
            if is_last:
                self._events.ledger.close()
                return

    def _caution(self, error: Exception) -> str:
        return caution(
            "W721",
            receiver=self._to.receiver,
            pipeline=self._events.pipeline,
            epoch=(self._sent or self._noted).epoch + 1,
            reason=reason_of(error),
        )

    def send(self, *, is_last: bool) -> None:
        """Send what is not sent. The progress is noted at the begin and the end of a run, and once a page."""
        if self._sent is None or not self._events.stands(self._sent):
            self._note(self._events.sent() or Sent(self._first_epoch - 1))
        sent = self._sent or self._noted
        try:
            for reached, run_events in self._events.pending(sent):
                for event in run_events:
                    self._to.emit(event)
                sent = self._sent = reached
                if sent.epoch - self._noted.epoch >= _PAGE:
                    self._note(sent)
        finally:
            if is_last and sent != self._noted:
                self._note(sent)

    def _note(self, sent: Sent) -> None:
        self._events.note(sent)
        self._sent = self._noted = sent
