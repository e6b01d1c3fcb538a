"""The operator: at a refusal obeys one of the commands that it prints. What that changes is told by the code itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onceonly.errors import OnceOnlyError
from onceonly.lab.model.bench import Bench, BenchLedger, Turned
from onceonly.lab.model.parts import (
    Conflict,
    Desk,
    Records,
    SimulatedLedger,
    StagingArea,
    Target,
    between,
    missing,
    receipt,
    records_in,
)
from onceonly.lab.model.spark import Checkpoint, Entry, Planned
from onceonly.lab.model.ways import Way, carry_out, every, printed
from onceonly.overlap import reads_files
from onceonly.runner import Runner
from onceonly.state import State
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Intent


@dataclass(frozen=True, slots=True)
class Stop:
    """A driver that was refused.

    Attributes:
        code: of the refusal.
        text: its message.
        planned: the batch that it was handed.
        missing: records of it whose files are gone.
        intents: what its runner left in the ledger beside the epochs.
    """

    code: str
    text: str
    planned: Planned
    missing: Records
    intents: tuple[Intent, ...]


@dataclass(frozen=True, slots=True)
class Wreck:
    """What a command may change.

    Attributes:
        targets: in commit order.
        staging: staged epochs.
        ledger: the index.
        checkpoint: that the next driver starts on.
        desk: what was accepted so far.
    """

    targets: tuple[Target, ...]
    staging: StagingArea
    ledger: SimulatedLedger
    checkpoint: Checkpoint
    desk: Desk


def ways(stop: Stop, wreck: Wreck) -> tuple[Way, ...]:
    """The commands that the refusal prints, by the production code's own words; those that can be carried out here."""
    found = printed(stop.text)
    return tuple(way for way in found if way.verb != "checkpoint rebuild" or _rebuilt(wreck) is not None)


def stop_of(state: State, planned: Planned, wreck: Wreck) -> tuple[Stop, Wreck]:
    """What the production runner says, and leaves, when it is driven to the refusal of a machine.

    Raises:
        AssertionError: the machine does not refuse.
    """
    bench = Bench(wreck.targets, wreck.ledger)
    ledger = BenchLedger(bench)
    try:
        Runner(bench.sinks, ledger, fetch=bench.fetch(wreck.staging)).run(state)
    except OnceOnlyError as error:
        gone = missing(state.offer) if state.offer else 0
        return Stop(error.code, str(error), planned, gone, ledger.intents), replace(wreck, ledger=bench.ledger)
    raise AssertionError(f"{state.phase} is no refusal")


def obey(way: Way, stop: Stop, wreck: Wreck) -> tuple[str, Wreck]:
    """What comes of a command, in words and in the world."""
    words = f"the operator obeys `{way.words}`"
    after = replace(wreck, desk=replace(wreck.desk, obeyed=wreck.desk.obeyed + 1))
    if way.verb == "checkpoint rebuild":
        rebuilt = _rebuilt(wreck)
        assert rebuilt is not None
        return words, replace(after, checkpoint=rebuilt)
    if way.verb == "ledger rebuild":
        return words, replace(after, ledger=_reread(wreck.targets))
    bench = Bench(wreck.targets, wreck.ledger)
    bench.heal(wreck.staging)
    ledger = BenchLedger(bench, stop.intents)
    try:
        accepted = carry_out(way, bench.sinks, ledger)
    except (OnceOnlyError, Turned) as error:
        return f"{words}, which is refused: {getattr(error, 'code', error)}", after
    desk = _named(way, stop, wreck, after.desk) if accepted else after.desk
    return words, replace(after, targets=tuple(bench.targets.values()), ledger=bench.ledger, desk=desk)


def _named(way: Way, stop: Stop, wreck: Wreck, desk: Desk) -> Desk:
    """The desk with what an accepted command names: no other row may be lost or doubled."""
    named, before = _in_epochs(*way.epochs, wreck), between(0, stop.planned.start)
    if way.kind == "accept-duplicates":
        return replace(desk, doubled=desk.doubled | named & ~before)
    if way.kind != "accept-loss":
        return desk
    # Of an epoch that neither a sink nor the ledger remembers it is known only that its rows lie before the batch.
    between_epochs = stop.code in {"E204", "E229"} or not _all_known(*way.epochs, wreck)
    given = named | stop.missing | (before & ~_in_epochs(1, 1 << 30, wreck) if between_epochs else 0)
    return replace(desk, lost=(*desk.lost, *((sink, given) for sink in way.sinks or ("",))))


def _in_epochs(first: int, last: int, wreck: Wreck) -> Records:
    found = 0
    for epoch in _epochs(wreck):
        found |= records_in(epoch.digest) if first <= epoch.number <= last else 0
    return found


def _all_known(first: int, last: int, wreck: Wreck) -> bool:
    return set(range(first, last + 1)) <= {epoch.number for epoch in _epochs(wreck)}


def _epochs(wreck: Wreck) -> list[Epoch]:
    epochs = [record.epoch for record in wreck.ledger.records]
    return epochs + [held.epoch for target in wreck.targets for held in target.held]


def _reread(targets: tuple[Target, ...]) -> SimulatedLedger:
    """What ``ledger rebuild`` reads back from the sinks."""
    ledger = SimulatedLedger()
    for target in targets:
        for marker in target.markers:
            known = next((one for one in ledger.records if one.epoch.number == marker.epoch.number), None)
            receipts = (*(known.receipts if known else ()), receipt(marker, target.identity))
            try:
                ledger = ledger.record(marker.epoch, receipts)
            except Conflict:
                continue
    return ledger


def _rebuilt(wreck: Wreck) -> Checkpoint | None:
    """What ``checkpoint rebuild`` writes from ledger and sinks; ``None`` where they lack a batch of the query."""
    known = {record.epoch.number: record.epoch for record in wreck.ledger.records}
    known |= {marker.epoch.number: marker.epoch for target in wreck.targets for marker in target.markers}
    epochs = [known[number] for number in sorted(known)]
    if not epochs or any(epoch.adoption or epoch.lineage is None for epoch in epochs):
        return None
    listed = {record.epoch.number for record in wreck.ledger.records if record.files}
    if any(reads_files(epoch.sources) and epoch.number not in listed for epoch in epochs):
        return None  # markers do not tell which files a batch has read
    query = epochs[-1].lineage.query_id if epochs[-1].lineage else ""
    own = [epoch for epoch in epochs if epoch.lineage and epoch.lineage.query_id == query]
    batches = [epoch.lineage.batch_id for epoch in own if epoch.lineage]
    if len(own) != len(epochs) or batches != list(range(len(own))):
        return None
    entries = list[Entry]()
    for epoch in own:
        assert epoch.lineage is not None
        end = records_in(epoch.digest).bit_length() or (entries[-1].end if entries else 0)
        entries.append(Entry(end, epoch.lineage.batch_timestamp_ms))
    done = all(target.newest and target.newest.epoch.number >= epochs[-1].number for target in wreck.targets)
    fresh = replace(wreck.checkpoint, query=query, entries=tuple(entries), done=done, begin=0, plans=1000 + len(own))
    return replace(fresh, unreadable="")


def after_each(stop: Stop, wreck: Wreck, *, errs: bool = False) -> Iterator[tuple[bool, str, Wreck]]:
    """What comes of each command that is printed, and of every other acceptance where the operator errs.

    Yields:
        Whether it was printed, what is done in words, the world after it.
    """
    told = ways(stop, wreck)
    bench = Bench(wreck.targets, wreck.ledger)
    accepted = every(bench.sinks, BenchLedger(bench, stop.intents)) if errs else ()
    others = [way for way in accepted if way.kind not in {one.kind for one in told}]
    for way in (*told, *others):
        yield way in told, *obey(way, stop, wreck)
