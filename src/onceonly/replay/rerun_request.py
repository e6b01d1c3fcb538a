"""Request of a rerun, and its progress, to resume after a crash."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NoReturn

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.protocol import Inspectable, Sink
from onceonly.protocol.registry import sink_from_address
from onceonly_checkpoints.epoch import Epoch, EpochRecord, ReplayedEpochs

Held = tuple[tuple[Epoch, ReplayedEpochs], ...]
"""Epochs of a rerun, each with what it ran again."""


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """Epochs to run again, and their target, which is not open.

    ``own`` is the rerun's name, ``records`` the pipeline's records. ``shaped`` means that ``transform=`` was given.
    """

    pipeline: str
    own: str
    epochs: range
    records: Sequence[EpochRecord]
    into: Sink
    ledger: str
    shaped: bool = False

    @property
    def text(self) -> str:
        """``epochs 3..7 of orders``."""
        return f"epochs {self.epochs.start}..{self.epochs.stop - 1} of {self.pipeline}"

    @property
    def batches(self) -> list[Epoch]:
        """Epochs with a batch. Decisions of operators are not run again."""
        return [record.epoch for record in self.records if record.epoch.lineage and record.epoch.number in self.epochs]

    def command(self, *, first: int | None = None, last: int | None = None, into: str = "", panes: bool = True) -> str:
        """Return the command of this request, with changes."""
        begin, end = self.epochs.start if first is None else first, self.epochs.stop - 1 if last is None else last
        query, ledger, own = map(shlex.quote, (self.pipeline, self.ledger, self.own))
        target, windows = shlex.quote(into or self.into.address), " --windows MODULE:NAME" if panes else ""
        before = " --transform MODULE:FUNCTION" if self.shaped else ""
        return (
            f"onceonly replay run {begin}..{end} --query {query} --ledger {ledger} --into {target} --as {own} "
            f"--with MODULE:FUNCTION{before}{windows}"
        )

    def demand_target(self, places: Mapping[str, Mapping[str, str]], *, panes: bool) -> None:
        """Refuse the pipeline's own sink, and another target than an earlier rerun of this name had (E110).

        ``places`` has, for each pipeline with an epoch, addresses by sink id.
        """
        if own := self.among(self.into, places.get(self.pipeline, {}).values()):
            raise misused(
                f'A backfill of "{self.pipeline}" cannot write into {self.into.address}.',
                f"that is one of the pipeline's own sinks ({own}), and you would get every row twice",
                "name a target that holds nothing",
            )
        addresses = places.get(self.own, {}).values()
        if not addresses or self.into.address in addresses:
            return
        first = next(iter(addresses))
        remedy = f"continue there: {self.command(into=first, panes=panes)}"
        raise misused(
            f'"{self.own}" has gone to {first}, and cannot continue in {self.into.address}.',
            "a backfill of this name began before, into another target",
            f"{remedy}\nor give this one a name of its own: --as NAME",
        )

    def among(self, sink: Sink, addresses: Collection[str]) -> str:
        """Return the address of a pipeline's sink that is the target, or empty. A silent address is another target."""
        kind = sink.address.partition(":")[0]
        alike = [address for address in addresses if address.partition(":")[0] == kind]
        if sink.address in alike or not alike:
            return sink.address if alike else ""
        target = _location_of(copy.copy(sink), self.own)
        for candidate in alike if target else ():
            with suppress(OnceOnlyError):
                if _location_of(sink_from_address(candidate, self.ledger), self.pipeline) == target:
                    return candidate
        return ""

    def held(self) -> Held:
        """Return epochs of the rerun in the target, oldest first (E239: one reruns no other epoch)."""
        reading = copy.copy(self.into)
        with closing(reading):
            reading.open(self.own)
            epochs = [marker.epoch for marker, _ in reading.history()]
        return tuple((epoch, epoch.replays or self.refuse(epoch)) for epoch in epochs)

    def next(self, held: Held) -> tuple[int, str | None]:
        """Return the first epoch that the target lacks, and the chain before, or ``None`` (E239: other epochs)."""
        if not held:
            return self.epochs.start, None
        epoch, replayed = held[-1]
        chains = {record.epoch.number: record.epoch.chain for record in self.records}
        same = replayed.pipeline == self.pipeline and chains.get(replayed.last) == replayed.chain
        first = next((batch.number for batch in self.batches), self.epochs.start)
        if not same or held[0][1].first != first or replayed.last >= self.epochs.stop:
            self.refuse(epoch)
        return replayed.last + 1, replayed.chain

    def refuse(self, epoch: Epoch, by: str = "") -> NoReturn:
        """Refuse a target because of its newest epoch (E239). ``by`` names a difference from the request, if any."""
        contents = f"{epoch.replays.text}{by}" if epoch.replays else "not a backfilled epoch"
        details = {"stands": contents, "offered": self.text, "ledger": shlex.quote(self.ledger)}
        raise refuse("E239", pipeline=self.own, sink=self.into.id, epoch=epoch.number, **details)


def _location_of(sink: Sink, pipeline: str) -> str:
    with closing(sink):
        sink.open(pipeline)
        return sink.place() if isinstance(sink, Inspectable) else ""


# ---- What is on record of the epochs that are run again.


def demanded(pipeline: str, records: Sequence[EpochRecord], epochs: range | None, begun: int = 1) -> range:
    """Return the numbers of the requested epochs, by default all from ``begun`` on (E110: some are not on record)."""
    numbers = [record.epoch.number for record in records]
    every = range(max(begun, min(numbers, default=1)), max(numbers, default=0) + 1)
    requested = every if epochs is None else epochs
    lacking = set(requested) - set(numbers)
    if not requested or lacking:
        held = f"it holds epochs {min(numbers)}..{max(numbers)}" if numbers else "it holds none"
        missing = f"epoch {min(lacking)} of" if lacking else "an epoch of"
        raise misused(
            f'The ledger does not hold {missing} "{pipeline}".',
            held,
            "name epochs that are on record, the first and the last one",
        )
    return requested


def checkpoint(records: Sequence[EpochRecord], path: str | os.PathLike[str] | None) -> str:
    """Return the user's checkpoint, or by default that of the newest batch."""
    if path is not None:
        return os.fspath(path)
    lineages = (record.epoch.lineage for record in reversed(records))
    return next((lineage.checkpoint for lineage in lineages if lineage), "")
