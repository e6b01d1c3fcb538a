"""Request of a rerun, and its progress, to resume after a crash."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NoReturn

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Placed, Sink
from onceonly.protocol.registry import sink_from_address
from onceonly_checkpoints.epoch import Epoch, EpochRecord, ReplayedEpochs

Held = tuple[tuple[Epoch, ReplayedEpochs], ...]
"""Epochs of a rerun, each with what it ran again."""


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """Epochs to run again, and their target, which is not open.

    ``own`` is the rerun's name, ``found`` the pipeline's records. ``shaped`` means that ``before=`` was given.
    """

    pipeline: str
    own: str
    wanted: range
    found: Sequence[EpochRecord]
    into: Sink
    ledger: str
    shaped: bool = False

    @property
    def text(self) -> str:
        """``epochs 3..7 of orders``."""
        return f"epochs {self.wanted.start}..{self.wanted.stop - 1} of {self.pipeline}"

    @property
    def batches(self) -> list[Epoch]:
        """Epochs with a batch. Decisions of operators are not run again."""
        return [record.epoch for record in self.found if record.epoch.lineage and record.epoch.number in self.wanted]

    def command(self, *, first: int | None = None, last: int | None = None, into: str = "", panes: bool = True) -> str:
        """Return the command of this request, with changes."""
        begin, end = self.wanted.start if first is None else first, self.wanted.stop - 1 if last is None else last
        query, ledger, own = map(shlex.quote, (self.pipeline, self.ledger, self.own))
        target, windows = shlex.quote(into or self.into.address), " --panes MODULE:NAME" if panes else ""
        before = " --before MODULE:FUNCTION" if self.shaped else ""
        return (
            f"onceonly epochs rerun {begin}..{end} --query {query} --ledger {ledger} --into {target} --as {own} "
            f"--with MODULE:FUNCTION{before}{windows}"
        )

    def demand_target(self, places: Mapping[str, Mapping[str, str]], *, panes: bool) -> None:
        """Refuse the pipeline's own sink, and another target than that of an earlier rerun of this name.

        ``places`` has, for each pipeline with an epoch, addresses by sink id.

        Raises:
            ConfigurationError: E110.
        """
        if own := self.among(self.into, places.get(self.pipeline, {}).values()):
            raise refuse(
                "E110",
                problem=f'A rerun of "{self.pipeline}" cannot write into {self.into.address}.',
                cause=f"that is one of the pipeline's own sinks ({own}), and every row would stand there twice",
                next="name a target that holds nothing",
            )
        known = places.get(self.own, {}).values()
        if not known or self.into.address in known:
            return
        first = next(iter(known))
        way = f"go on where it was: {self.command(into=first, panes=panes)}"
        raise refuse(
            "E110",
            problem=f'"{self.own}" has gone to {first}, and cannot go on in {self.into.address}.',
            cause="a rerun of this name was begun before, into another target",
            next=f"{way}\nor give this one a name of its own: --as NAME",
        )

    def among(self, sink: Sink, addresses: Collection[str]) -> str:
        """Return the address among those of the pipeline's sinks that leads to the rerun's target, or an empty text.

        An address that does not answer is another target: the rerun's target answers.
        """
        kind = sink.address.partition(":")[0]
        alike = [address for address in addresses if address.partition(":")[0] == kind]
        if sink.address in alike or not alike:
            return sink.address if alike else ""
        target = _place(copy.copy(sink), self.own)
        for one in alike if target else ():
            with suppress(OnceOnlyError):
                if _place(sink_from_address(one, self.ledger), self.pipeline) == target:
                    return one
        return ""

    def held(self) -> Held:
        """Return epochs of the rerun in the target, oldest first.

        Raises:
            IdentityError: E239, one of them is no rerun of another epoch.
        """
        reading = copy.copy(self.into)
        with closing(reading):
            reading.open(self.own)
            epochs = [marker.epoch for marker, _ in reading.history()]
        return tuple((epoch, epoch.replays or self.refuse(epoch)) for epoch in epochs)

    def next(self, held: Held) -> tuple[int, str | None]:
        """Return the first epoch that the target lacks, and the chain before it, or ``None`` if the target is empty.

        Raises:
            IdentityError: E239, it holds other epochs.
        """
        if not held:
            return self.wanted.start, None
        epoch, stands = held[-1]
        chains = {record.epoch.number: record.epoch.chain for record in self.found}
        same = stands.pipeline == self.pipeline and chains.get(stands.last) == stands.chain
        first = next((batch.number for batch in self.batches), self.wanted.start)
        if not same or held[0][1].first != first or stands.last >= self.wanted.stop:
            self.refuse(epoch)
        return stands.last + 1, stands.chain

    def refuse(self, epoch: Epoch, by: str = "") -> NoReturn:
        """Refuse a target because of its newest epoch.

        ``by`` are words on a difference from the request. Empty for none.

        Raises:
            IdentityError: E239.
        """
        stands = f"{epoch.replays.text}{by}" if epoch.replays else "no recorded epoch run again"
        said = {"stands": stands, "offered": self.text, "ledger": shlex.quote(self.ledger)}
        raise refuse("E239", pipeline=self.own, sink=self.into.id, epoch=epoch.number, **said)


def _place(sink: Sink, pipeline: str) -> str:
    with closing(sink):
        sink.open(pipeline)
        return sink.place() if isinstance(sink, Placed) else ""
