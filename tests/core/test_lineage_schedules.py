"""Drawn schedules of commits, rewinds, outages, deaths and late notes: no epoch of the ledger stays unsent."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints.samples import history

from onceonly.lineage import Delivery, LedgerEvents, OpenLineage, Sent
from onceonly_checkpoints.ledger import Event, EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger

SEEDS = range(30)
STEPS = 50


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
            epoch = facets["onceonly_epoch"]
            self.chains[epoch.epoch] = epoch.chain


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
            yield replace(sent, epoch=record.epoch.number), events.committed(self.subject(), record)


class NotesWhatItWillSend(LedgerEvents):
    """Broken: the progress that is noted is that of the ledger."""

    def note(self, sent: Sent) -> None:
        head = self.ledger.head(self.pipeline)
        super().note(Sent(head.epoch.number, head.epoch.chain, sent.failed_ms) if head else sent)


class Schedule:
    """One schedule: a pipeline's ledger, a catalogue, the delivery of a run, and one of a run that was fenced out."""

    def __init__(self, place: Path, seed: int, kind: Callable[..., LedgerEvents], receiver: type[OpenLineage]) -> None:
        self.draw = random.Random(seed)
        self.ledger = SqlLedger(str(place / f"{seed}.db"))
        self.ledger.open()
        self.catalogue, self.to, self.kind = Catalogue(), receiver(place / "events.jsonl"), kind
        self.to._transport = type("Transport", (), {"kind": "http", "emit": staticmethod(self.catalogue.emit)})
        self.epochs = list(history(STEPS))
        self.branch = self.whole = self.newest = 0
        self.confirmed: set[tuple[int, str]] = set()
        self.failures: list[str] = []
        self.faults: list[str] = []
        self.delivery = self.zombie = self.run()

    def run(self) -> Delivery:
        return Delivery(self.kind(self.ledger, "orders", "tests", {}), self.to, 1)

    def send(self, delivery: Delivery, *, is_last: bool) -> None:
        try:
            delivery.send(is_last=is_last)
        except ConnectionError:
            assert self.catalogue.is_away
        wrong = self.catalogue.chains.items() - self.confirmed
        self.faults += [f"{epoch} was sent unconfirmed" for epoch in wrong]

    def commit(self, *, confirmed: bool) -> None:
        self.newest = self.newest if self.newest > self.whole else self.newest + 1
        record, chain = self.epochs[self.newest - 1], f"{self.branch}-{self.newest}"
        receipts = tuple(replace(receipt, chain=chain) for receipt in record.receipts) if confirmed else ()
        self.ledger.record(replace(record, epoch=replace(record.epoch, chain=chain), receipts=receipts))
        if confirmed:
            self.whole = self.newest
            self.confirmed.add((self.newest, chain))

    def go_back(self, forget: Callable[[int], object]) -> None:
        if self.whole > 1 and self.newest == self.whole:
            self.branch, self.whole = self.branch + 1, self.draw.randrange(self.whole)
            self.newest = self.whole
            forget(self.whole + 1)
            self.zombie, self.delivery = self.delivery, self.run()

    def fail(self, step: int) -> None:
        self.failures.append(f"E203: step {step}")
        self.ledger.note(Event("orders", EventKind.FAILED, self.failures[-1], self.newest + 1, at_ms=step + 1))

    def step(self, number: int) -> None:
        moves = "commit commit commit begin send send away die end rewind lose late fail"
        match self.draw.choice(moves.split()):
            case "commit":
                self.commit(confirmed=True)
            case "begin":
                self.commit(confirmed=False)
            case "send":
                self.send(self.delivery, is_last=False)
            case "away":
                self.catalogue.is_away = not self.catalogue.is_away
            case "die":
                self.delivery = self.run()
            case "end":
                self.send(self.delivery, is_last=True)
                self.delivery = self.run()
            case "rewind":
                self.go_back(lambda first: self.ledger.supersede("orders", first, "rewound"))
            case "lose":  # as an operator who gives a loss up: nothing keeps what the ledger had
                self.go_back(lambda first: self.ledger.discard("orders", first))
            case "late":
                self.send(self.zombie, is_last=True)
            case "fail":
                self.fail(number)

    def finish(self) -> list[str]:
        """Send what is left, and return what the catalogue has wrong."""
        self.catalogue.is_away = False
        self.send(self.run(), is_last=True)
        recorded = {record.epoch.number: record.epoch.chain for record in self.ledger.epochs("orders", 1, self.whole)}
        self.ledger.close()
        lacking = [number for number, chain in recorded.items() if self.catalogue.chains.get(number) != chain]
        self.faults += [f"epoch {number} is not what was committed" for number in lacking]
        return self.faults + [f"{each} is missing" for each in self.failures if each not in self.catalogue.refusals]


def played(
    place: Path,
    seed: int,
    kind: Callable[..., LedgerEvents] = LedgerEvents,
    receiver: type[OpenLineage] = OpenLineage,
) -> list[str]:
    """Play one schedule, and return what is wrong at its end."""
    schedule = Schedule(place, seed, kind, receiver)
    for number in range(STEPS):
        schedule.step(number)
    return schedule.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_schedule_leaves_an_epoch_or_a_failure_unsent(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed) == []


@pytest.mark.parametrize("broken", [ForgetsRewinds, SendsUnconfirmedEpochs, NotesWhatItWillSend, CountsBeforeTheAnswer])
def test_what_is_broken_on_purpose_is_found(tmp_path: Path, broken: type) -> None:
    kinds = {"receiver": broken} if issubclass(broken, OpenLineage) else {"kind": broken}
    assert any(played(tmp_path, seed, **kinds) for seed in SEEDS), broken.__doc__
