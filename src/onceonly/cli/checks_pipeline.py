"""Checks of pipelines that a ledger knows: their past epochs, their sinks, their checkpoints, their names."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from onceonly.cli import checks_sink
from onceonly.doctor import Check, Observed, State
from onceonly.doctor.gather import facts_of, mount_of, records_of
from onceonly.doctor.observed import observe, spell
from onceonly.doctor.rules import judge_checkpoint, judge_names
from onceonly.errors import OnceOnlyError
from onceonly.protocol import Sink
from onceonly.registry import sink_from_address
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Ledger, Pipeline


def all_checks(ledger: Ledger, query: str | None, sinks: Sequence[str], location: str) -> Iterator[Check]:
    """Everything about the pipelines of a ledger.

    Args:
        ledger: opened.
        query: the only one to look at; ``None``: all.
        sinks: addresses that the caller looks at; those of a pipeline are known by its ledger, too.
        location: where the ledger lies; sinks in its database log in as it does.

    Raises:
        LedgerUnavailable: it cannot be read.
    """
    for entry in ledger.pipelines():
        if query in (None, entry.name):
            yield from _pipeline(ledger, entry, sinks, location)


def _pipeline(ledger: Ledger, entry: Pipeline, others: Sequence[str], location: str) -> Iterator[Check]:
    records = records_of(ledger, entry)
    observed = observe(records, int(time.time() * 1000))
    yield Check(entry.name, State.OK, _seen(entry, observed))
    addresses = [address for _, address in entry.sinks]
    for address in dict.fromkeys([*addresses, *others]):
        yield from checks_sink.destination(address, entry.name, observed, location)
    if entry.checkpoint:
        yield from judge_checkpoint(entry.checkpoint, mount_of(entry.checkpoint))
    yield from judge_names(facts_of(entry, records, list(_fences(entry, records, location))))


def _seen(entry: Pipeline, observed: Observed) -> str:
    pause = spell(observed.longest_gap_s)
    took = f"longest transaction {spell(observed.longest_open_s)}, longest pause between two epochs {pause}"
    return f"epoch {entry.epoch}; {took}" if observed.epochs else "no epoch yet"


def _fences(entry: Pipeline, records: Sequence[EpochRecord], location: str) -> Iterator[tuple[str, int]]:
    """Newest generation in each sink that can be read; one that cannot is told by its own checks."""
    for sink_id, address in entry.sinks if records else ():
        try:
            with closing(sink_from_address(address, location)) as sink:
                generation = _generation(sink, entry.name)
        except (OnceOnlyError, OSError):
            continue
        if generation is not None:
            yield sink_id, generation


def _generation(sink: Sink, pipeline: str) -> int | None:
    sink.open(pipeline)
    fence = sink.fence()
    return None if fence is None else fence.generation
