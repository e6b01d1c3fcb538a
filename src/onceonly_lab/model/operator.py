"""Simulated operator that obeys commands printed by refusals.

The product's own code computes the effect of a command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onceonly.errors import OnceOnlyError
from onceonly.machine.commands import Committed
from onceonly.machine.overlap import reads_files
from onceonly.machine.state import State
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.epoch import Epoch, Marker
from onceonly_checkpoints.ledger import Intent
from onceonly_checkpoints.model import AdoptionKind
from onceonly_lab.model.bench import Bench, BenchLedger, Cut, Turned
from onceonly_lab.model.parts import (
    DROPPED,
    PIPELINE,
    Desk,
    Harm,
    Records,
    SimulatedLedger,
    StagingArea,
    Target,
    between,
    harmed,
    missing,
    record_at,
    records_of,
)
from onceonly_lab.model.sinks import Wire
from onceonly_lab.model.spark import Checkpoint, Entry, Planned
from onceonly_lab.model.ways import Way, carry_out, every, printed


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
        records: how many the source has.
    """

    targets: tuple[Target, ...]
    staging: StagingArea
    ledger: SimulatedLedger
    checkpoint: Checkpoint
    desk: Desk
    records: int


def ways(stop: Stop, wreck: Wreck) -> tuple[Way, ...]:
    """The commands that the refusal prints, by the production code's own words; those that can be carried out here."""
    return _ways(stop.text, wreck)


def _ways(text: str, wreck: Wreck) -> tuple[Way, ...]:
    return tuple(remedy for remedy in printed(text) if _can_be(remedy, wreck))


def _can_be(remedy: Way, wreck: Wreck) -> bool:
    """Whether the checkpoint that a command is about can be written in these worlds."""
    if remedy.cuts_back:
        return _rebuilt(wreck, remedy.at) is not None
    return not remedy.on_checkpoint or _anew(remedy, wreck) is not None


def stop_of(state: State, planned: Planned, wreck: Wreck) -> tuple[Stop, Wreck]:
    """What the production runner says, and leaves, when it is driven to the refusal of a machine.

    Raises:
        AssertionError: the machine does not refuse.
    """
    bench = Bench(wreck.targets, wreck.ledger)
    ledger = BenchLedger(bench)
    try:
        sinks = [sink for sink in bench.sinks if sink.id in state.job.sinks]
        Runner(sinks, ledger, fetch=bench.fetch(wreck.staging)).run(state)
    except OnceOnlyError as error:
        gone = missing(state.job.offer) if state.job.offer else 0
        return Stop(error.code, str(error), planned, gone, ledger.intents), replace(wreck, ledger=bench.ledger)
    raise AssertionError(f"{state.phase} is no refusal")


@dataclass(frozen=True, slots=True)
class Obeyed:
    """What comes of a command.

    Attributes:
        words: what was done.
        wreck: the world after it.
        changes: how many things it has changed that outlive it.
        refused: the message with which it was refused; empty if it was not.
        intents: what the ledger holds of intents now.
    """

    words: str
    wreck: Wreck
    changes: int = 0
    refused: str = ""
    intents: tuple[Intent, ...] = ()


def obey(remedy: Way, stop: Stop, wreck: Wreck, most: int | None = None) -> Obeyed:
    """Carry a command out.

    Args:
        remedy: the command.
        stop: the refusal that has printed it.
        wreck: the world.
        most: how many changes the command lives to make; ``None``: all.
    """
    words, desk = f"the operator obeys `{remedy.words}`", wreck.desk
    after = replace(wreck, desk=replace(desk, obeyed=desk.obeyed + 1))
    if remedy.on_checkpoint:
        checkpoint = _anew(remedy, wreck)
        assert checkpoint is not None
        return Obeyed(words, replace(after, checkpoint=checkpoint))
    remaining = [target for target in wreck.targets if target.name != remedy.dropped]
    bench = Bench(remaining, wreck.ledger, most, who=f"command {desk.obeyed + desk.cut + 1}")
    if remedy.verb != "recover rebuild-ledger":
        bench.heal(wreck.staging, remedy.sinks if remedy.kind is AdoptionKind.ACCEPT_CHANGE else ())
    ledger, checkpoint = BenchLedger(bench, stop.intents), wreck.checkpoint
    try:
        accepted = carry_out(remedy, bench.sinks, ledger, wreck.desk.gone)
        if remedy.cuts_back and (anew := _cut_back(remedy, wreck, bench)):
            bench.step()
            checkpoint = anew
    except (OnceOnlyError, Turned) as error:
        words += f", which is refused: {getattr(error, 'code', error)}"
        return Obeyed(words, after, refused=str(error), intents=ledger.intents)
    except Cut:
        words += f" and is killed after {bench.changes} change{'s' if bench.changes > 1 else ''}"
        accepted, desk = True, replace(desk, cut=desk.cut + 1)
    else:
        desk = after.desk
    targets = tuple(_left(remedy, bench, target) for target in wreck.targets)
    desk = _named(remedy, stop, wreck, desk) if accepted else desk
    return Obeyed(
        words,
        replace(wreck, targets=targets, ledger=bench.ledger, desk=desk, checkpoint=checkpoint),
        bench.changes,
        intents=ledger.intents,
    )


def _cut_back(remedy: Way, wreck: Wreck, bench: Bench) -> Checkpoint | None:
    """The checkpoint, set back as far as the ledger was; ``None`` where it cannot be rebuilt, and stays."""
    back = _rebuilt(replace(wreck, targets=tuple(bench.targets.values()), ledger=bench.ledger), remedy.at)
    if back is None:
        return None
    return replace(back, unlisted=wreck.desk.gone & ~between(0, back.entries[-1].end))


def _left(remedy: Way, bench: Bench, target: Target) -> Target:
    """The target after a command; one that is taken out is not touched, and nothing is promised of it any more."""
    return bench.targets[target.name] if target.name != remedy.dropped else replace(target, harm=DROPPED)


def _anew(remedy: Way, wreck: Wreck) -> Checkpoint | None:
    """The checkpoint after a command about it: rebuilt, or a new one that begins where the newest epoch ended."""
    if remedy.verb == "recover rebuild-checkpoint":
        return _rebuilt(wreck, remedy.at)
    newest = max(_epochs(wreck), key=lambda epoch: epoch.number, default=None)
    if newest is None or reads_files(newest.sources) or newest.written.end.unset:
        return None  # a directory has no starting offsets
    begin = record_at(newest.written.end)
    if begin >= wreck.records:
        return None  # where nothing is left to read, nobody is handed a batch that could tell
    old = wreck.checkpoint
    return Checkpoint(old.name, f"{old.query}+", plans=2000 + old.plans, begin=begin)


def _named(remedy: Way, stop: Stop, wreck: Wreck, desk: Desk) -> Desk:
    """The desk with what an accepted command names: no other row may be lost or doubled."""
    named, before = _in_epochs(*remedy.epochs, wreck), between(0, stop.planned.start)
    if remedy.kind is AdoptionKind.ACCEPT_DUPLICATES:
        return replace(desk, doubled=desk.doubled | named & ~before)
    if remedy.kind is AdoptionKind.ACCEPT_CHANGE:
        losses = ((target.name, _taken_back(target)) for target in wreck.targets if target.name in remedy.sinks)
        return replace(desk, lost=(*desk.lost, *losses))
    if not remedy.loses:
        return desk
    if remedy.cuts_back:
        return replace(desk, lost=(*desk.lost, ("", named & desk.gone)))  # the rest is read again
    # Of an epoch that neither a sink nor the ledger remembers it is known only that its rows lie before the batch.
    first, last = remedy.epochs
    known = {epoch.number for epoch in _epochs(wreck)}
    between_epochs = stop.code in {"E204", "E229"} or not set(range(first, last + 1)) <= known
    lost_records = named | stop.missing | (before & ~_in_epochs(1, 1 << 30, wreck) if between_epochs else 0)
    return replace(desk, lost=(*desk.lost, *((sink, lost_records) for sink in remedy.sinks or ("",))))


def _taken_back(target: Target) -> Records:
    records = 0
    for held in target.held:
        records |= records_of(held.epoch) if held.back else 0
    return records


def _in_epochs(first: int, last: int, wreck: Wreck) -> Records:
    records = 0
    for epoch in _epochs(wreck):
        records |= records_of(epoch) if first <= epoch.number <= last else 0
    return records


def _epochs(wreck: Wreck) -> list[Epoch]:
    epochs = [record.epoch for record in wreck.ledger.records]
    return epochs + [held.epoch for target in wreck.targets for held in target.held]


def _rebuilt(wreck: Wreck, at: int = 0) -> Checkpoint | None:
    """What ``recover rebuild-checkpoint`` writes from ledger and sinks; ``None`` where they lack a batch of the query.

    Args:
        wreck: the world.
        at: the last epoch that counts as done; 0: the newest.
    """
    epochs_by_number = {record.epoch.number: record.epoch for record in wreck.ledger.records}
    epochs_by_number |= {marker.epoch.number: marker.epoch for target in wreck.targets for marker in target.markers}
    epochs = [epochs_by_number[number] for number in sorted(epochs_by_number) if not at or number <= at]
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
        end = records_of(epoch).bit_length() or (entries[-1].end if entries else 0)
        entries.append(Entry(end, epoch.lineage.batch_timestamp_ms))
    done = all(target.newest and target.newest.epoch.number >= epochs[-1].number for target in wreck.targets)
    fresh = replace(wreck.checkpoint, query=query, entries=tuple(entries), done=done, begin=0, plans=1000 + len(own))
    return replace(fresh, unreadable="")


def after_each(
    stop: Stop,
    wreck: Wreck,
    *,
    errs: bool = False,
    cuts: bool = False,
    meanwhile: Sequence[Harm] = (),
    vanish: bool = False,
) -> Iterator[tuple[bool, str, Wreck]]:
    """What comes of each command that is printed, and of every other acceptance where the operator errs.

    Args:
        stop: the refusal.
        wreck: the world.
        errs: whether the operator also accepts what nobody has printed.
        cuts: whether a command may be killed between two changes; the query is restarted then, or it is obeyed again.
        meanwhile: what may befall a sink between the refusal and the command.
        vanish: whether the file of a record may be gone before a pipeline is cut back.

    Yields:
        Whether it was printed, what is done in words, the world after it.
    """
    printed_remedies = ways(stop, wreck)
    bench = Bench(wreck.targets, wreck.ledger)
    accepted = every(bench.sinks, BenchLedger(bench, stop.intents)) if errs else ()
    others = [
        candidate
        for candidate in accepted
        if candidate.kind not in {printed_remedy.kind for printed_remedy in printed_remedies}
    ]
    for remedy in (*printed_remedies, *others):
        outcome = obey(remedy, stop, wreck)
        if further := _ways(outcome.refused, outcome.wreck):
            for other in further:
                after = obey(other, replace(stop, intents=outcome.intents), _asked(wreck, outcome))
                yield remedy in printed_remedies, f"{outcome.words}; {after.words}", after.wreck
            continue
        yield remedy in printed_remedies, outcome.words, outcome.wreck
        if remedy.verb == "recover rewind":
            for words, woken in _woken(wreck, outcome.wreck):
                yield True, f"{outcome.words}; {words}", woken
        if remedy.then is not None and not outcome.refused and _anew(remedy.then, outcome.wreck):
            both = obey(
                remedy.then, stop, replace(outcome.wreck, desk=replace(outcome.wreck.desk, obeyed=wreck.desk.obeyed))
            )
            yield True, f"{outcome.words}, and after it `{remedy.then.words}`", both.wreck
        if cuts and not outcome.refused and not wreck.desk.cut:
            yield from _cut_short(remedy, stop, wreck, outcome.changes)
    for remedy in printed_remedies:
        for words, hurt in (*_hurt(wreck, meanwhile), *(_vanished(wreck) if vanish and remedy.cuts_back else ())):
            if not remedy.on_checkpoint:
                yield from _late(remedy, stop, hurt, words)


def _woken(before: Wreck, after: Wreck) -> Iterator[tuple[str, Wreck]]:
    """A driver that a rewind should have fenced out sends the epoch again whose answer it waits for, and it lands."""
    epochs_by_number = {epoch.number: epoch for epoch in _epochs(before)}
    for at, (previous, now) in enumerate(zip(before.targets, after.targets, strict=True)):
        epoch = epochs_by_number.get(now.newest.epoch.number + 1) if now.newest else None
        if epoch is None or previous.newest is None:
            continue
        theirs = previous.newest.fence
        # Where no fence is said to stand it is that of the newest epoch: a restored sink has no other one.
        open_ = now if now.fence else replace(now, fence=theirs)
        marker = Marker(PIPELINE, now.name, theirs, epoch)
        reply = next(Wire().commit(open_, marker, epoch.digest_in(now.name), None))
        if isinstance(reply.outcome, Committed):
            *older, late = reply.target.held
            target = replace(reply.target, held=(*older, replace(late, stale=True)))
            words = f"a driver of before wakes, and its epoch {epoch.number} lands in sink '{now.name}'"
            yield words, replace(after, targets=(*after.targets[:at], target, *after.targets[at + 1 :]))


def _late(remedy: Way, stop: Stop, wreck: Wreck, words: str) -> Iterator[tuple[bool, str, Wreck]]:
    """A command in a world that has changed since it was printed."""
    after = obey(remedy, stop, wreck)
    further = _ways(after.refused, after.wreck)
    if not further:
        yield True, f"{words}; {after.words}", after.wreck
    for other in further:
        second = obey(other, replace(stop, intents=after.intents), _asked(wreck, after))
        yield True, f"{words}; {after.words}; {second.words}", second.wreck


def _asked(wreck: Wreck, refused: Obeyed) -> Wreck:
    """The world after a command that was refused with the one that would do: of the two, one is counted."""
    return replace(refused.wreck, desk=replace(refused.wreck.desk, obeyed=wreck.desk.obeyed))


def _cut_short(remedy: Way, stop: Stop, wreck: Wreck, changes: int) -> Iterator[tuple[bool, str, Wreck]]:
    """A command that is killed after each of its changes, and the same command once more."""
    for most in range(1, changes):
        cut = obey(remedy, stop, wreck, most)
        yield True, cut.words, cut.wreck
        retry = obey(remedy, replace(stop, intents=cut.intents), cut.wreck)
        yield True, f"{cut.words}; {retry.words}", retry.wreck


def _vanished(wreck: Wreck) -> Iterator[tuple[str, Wreck]]:
    """The file of a record that an epoch has read is gone; of another one nobody could know."""
    read = _in_epochs(1, 1 << 30, wreck) if not wreck.desk.gone else 0
    for record in (bit for bit in range(read.bit_length()) if read >> bit & 1):
        words = f"the file of record {record + 1} is gone"
        yield words, replace(wreck, desk=replace(wreck.desk, gone=1 << record))


def _hurt(wreck: Wreck, meanwhile: Sequence[Harm]) -> Iterator[tuple[str, Wreck]]:
    for at, target in enumerate(wreck.targets):
        for harm in () if target.harm else meanwhile:
            after = harmed(target, harm)
            if after is not None:
                targets = (*wreck.targets[:at], after, *wreck.targets[at + 1 :])
                yield f"sink '{target.name}' is {harm.value}", replace(wreck, targets=targets)
