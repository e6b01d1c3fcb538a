"""Drawn schedules of commits, rewinds, failures, outages and deaths: no epoch of the ledger stays unsent."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints.samples import history

from onceonly.lineage import Delivery, LedgerEvents, OpenLineage, Sent
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger

SEEDS = range(20)
STEPS = 40


@dataclass
class Catalogue:
    """A receiver that keeps the chain of each complete epoch, and is away now and then."""

    chains: dict[int, str] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    is_away: bool = False

    def emit(self, event: Any) -> None:
        if self.is_away:
            raise ConnectionError("away")
        facets = event.run.facets
        if event.eventType.value == "FAIL":
            self.refusals.append(facets["onceonly_refusal"].reason)
        elif event.eventType.value == "COMPLETE":
            told = facets["onceonly_epoch"]
            self.chains[told.epoch] = told.chain


class CountsBeforeTheAnswer(OpenLineage):
    """Broken: an event that the receiver did not take counts as sent."""

    def emit(self, event: Any) -> None:
        try:
            super().emit(event)
        except ConnectionError:
            return


class ForgetsRewinds(LedgerEvents):
    """Broken: an epoch that took the number of a removed one counts as sent."""

    def sent(self) -> Sent | None:
        notes = self.ledger.events(self.pipeline, 1, EventKind.LINEAGE_SENT)
        return Sent(notes[0].epoch) if notes else None


class SendsUnconfirmedEpochs(LedgerEvents):
    """Broken: an epoch is complete before its sinks have confirmed it."""

    def pending(self, sent: Sent, last: int | None = None) -> Iterator[tuple[Sent, Sequence[Any]]]:
        from onceonly.lineage import events

        for record in self.ledger.epochs(self.pipeline, sent.epoch + 1, last):
            yield replace(sent, epoch=record.epoch.number), events.committed(self.subject(record), record)


class NotesWhatItWillSend(LedgerEvents):
    """Broken: the progress that is noted is that of the ledger."""

    def note(self, sent: Sent) -> None:
        head = self.ledger.head(self.pipeline)
        super().note(replace(sent, epoch=head.epoch.number if head else sent.epoch))


def schedule(
    place: Path,
    seed: int,
    kind: Callable[..., LedgerEvents] = LedgerEvents,
    receiver: type[OpenLineage] = OpenLineage,
) -> list[str]:
    """Play one schedule, and return what the catalogue has wrong at its end."""
    draw = random.Random(seed)
    ledger = SqlLedger(str(place / f"{kind.__name__}-{receiver.__name__}-{seed}.db"))
    ledger.open()
    catalogue, to = Catalogue(), receiver(place / "events.jsonl")
    to._transport = type("Transport", (), {"kind": "http", "emit": staticmethod(catalogue.emit)})
    epochs: list[EpochRecord] = list(history(STEPS))
    failures: list[str] = []
    faults: list[str] = []
    branch, whole = 0, 0
    confirmed: set[tuple[int, str]] = set()

    def run() -> Delivery:
        return Delivery(kind(ledger, "orders", "tests", {}), to, 1)

    def send(delivery: Delivery, *, is_last: bool) -> None:
        try:
            delivery.send(is_last=is_last)
        except ConnectionError:
            assert catalogue.is_away
        faults.extend(f"{epoch} was sent unconfirmed" for epoch in catalogue.chains.items() - confirmed)

    delivery = run()
    for step in range(STEPS):
        head = ledger.head("orders")
        newest = head.epoch.number if head else 0
        move = draw.choice(("commit", "commit", "begin", "send", "send", "away", "die", "end", "rewind", "fail"))
        if move in ("commit", "begin"):
            number = newest if head and newest > whole else newest + 1
            record = epochs[number - 1]
            record = replace(record, epoch=replace(record.epoch, chain=f"{branch}-{number}"))
            ledger.record(record if move == "commit" else replace(record, receipts=()))
            if move == "commit":
                whole = number
                confirmed.add((number, record.epoch.chain))
        elif move == "send":
            send(delivery, is_last=False)
        elif move == "away":
            catalogue.is_away = not catalogue.is_away
        elif move == "die":
            delivery = run()
        elif move == "end":
            send(delivery, is_last=True)
            delivery = run()
        elif move == "rewind" and whole > 1 and newest == whole:
            send(delivery, is_last=True)
            branch, whole = branch + 1, draw.randrange(whole)
            ledger.supersede("orders", whole + 1, "rewound")
            delivery = run()
        elif move == "fail":
            failures.append(f"E203: step {step}")
            ledger.note(Event("orders", EventKind.FAILED, failures[-1], newest + 1, at_ms=step + 1))
    catalogue.is_away = False
    send(run(), is_last=True)
    recorded = {record.epoch.number: record.epoch.chain for record in ledger.epochs("orders", 1, whole)}
    ledger.close()
    faults += [f"epoch {n} is not what was committed" for n in recorded if catalogue.chains.get(n) != recorded[n]]
    return faults + [f"{failure} is missing" for failure in failures if failure not in catalogue.refusals]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_schedule_leaves_an_epoch_or_a_failure_unsent(tmp_path: Path, seed: int) -> None:
    assert schedule(tmp_path, seed) == []


@pytest.mark.parametrize("broken", [ForgetsRewinds, SendsUnconfirmedEpochs, NotesWhatItWillSend, CountsBeforeTheAnswer])
def test_what_is_broken_on_purpose_is_found(tmp_path: Path, broken: type) -> None:
    kinds = {"receiver": broken} if issubclass(broken, OpenLineage) else {"kind": broken}
    assert any(schedule(tmp_path, seed, **kinds) for seed in SEEDS), broken.__doc__
