"""Parse the commands in a refusal, and check its facts.

Facts are looked up in the world. Commands are read as people read them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol, runtime_checkable

from onceonly.machine import acceptance
from onceonly.machine.acceptance import KINDS, Stop
from onceonly.machine.opening import by_epoch
from onceonly.machine.rewind import CutBack, RewindRequest, Step
from onceonly.protocol import Batch, Sink
from onceonly.replay import rewind
from onceonly.runtime import operator, remedies
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Lineage
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import Adoption, AdoptionKind, SourceOffsets
from onceonly_lab.model.parts import (
    PIPELINE,
    Desk,
    Harm,
    Records,
    SimulatedLedger,
    StagingArea,
    Target,
    is_there,
    record_at,
    records_in,
    records_of,
)
from onceonly_lab.model.sinks import REFUSED_ROW
from onceonly_lab.model.spark import Checkpoint, Planned, Source
from onceonly_lab.model.world import MISUSED, Program

# ---- The ways out that a refusal prints, read off its text as a person would, and what each of them does.

_COMMAND = re.compile(
    r"(?P<then>and after it: (?:[^\n]*: )?)?\bonceonly (?P<words>(?:recover|epochs) .*)$", re.MULTILINE
)
_REWIND = "recover rewind"
_VERBS = frozenset(
    {
        "recover adopt",
        "recover drop-sink",
        _REWIND,
        "recover rebuild-ledger",
        "recover rebuild-checkpoint",
        "recover resolve",
    }
)
_NAMED = frozenset({"recover adopt", "recover drop-sink", _REWIND, "recover rebuild-checkpoint"})
"""Commands whose first word is the pipeline's name, or a path."""
_PLACES = frozenset({"--ledger", "--query"})
_TO_FILL_IN = "MODULE:FUNCTION"
_LOST = "--accept-loss"
_SPAN = re.compile(r"(\d+)(?:\.\.(\d+))?")
_LIES = frozenset({AdoptionKind.CONTINUE, AdoptionKind.START})
"""Kinds that say of the source what only its owner knows: who obeys without knowing it, is not led astray by us."""


@runtime_checkable
class Lies(Protocol):
    """A sink in whose place the rows of an epoch lie, to be read as Spark reads them from another sink."""

    def lying(self, epoch: int) -> Batch:
        """The rows of an epoch, whatever became of them."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """One printed command.

    Attributes:
        verb: ``recover adopt``.
        options: the words after the pipeline's name, without those that say where things are.
        then: the command that is printed to be obeyed after it; ``None`` for none.
    """

    verb: str
    options: tuple[str, ...] = ()
    then: Way | None = None

    @property
    def words(self) -> str:
        """As it is typed, without what says where things are."""
        return shlex.join(("onceonly", *self.verb.split(), *self.options))

    @property
    def kind(self) -> AdoptionKind | None:
        """What is accepted; ``None`` where nothing is."""
        if self.verb != "recover adopt":
            return None
        named = [word.removeprefix("--") for word in self.options if word.startswith("--") and word != "--sink"]
        return AdoptionKind(named[0]) if named else None

    @property
    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch of which it accepts something; zeros for none."""
        if self.verb == _REWIND:
            words = [word for option, word in pairwise(self.options) if option == _LOST]
        else:
            words = list(self.options)
        spans = [_SPAN.fullmatch(word) for word in words]
        return next(((int(match[1]), int(match[2] or match[1])) for match in spans if match), (0, 0))

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks that it names; none: all."""
        return tuple(sink for sink, _, _ in self._named)

    @property
    def loses(self) -> bool:
        """Whether it accepts that rows are lost."""
        return self.kind is AdoptionKind.ACCEPT_LOSS or (self.verb == _REWIND and _LOST in self.options)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the sinks that it names, in their order; empty for none."""
        return tuple(version for _, _, version in self._named if version)

    @property
    def at(self) -> int:
        """The epoch at which it rebuilds, or to which it rewinds; 0 where it names none."""
        named = [option for option in ("--at", "--to") if option in self.options]
        return int(self.options[self.options.index(named[0]) + 1]) if named else 0

    @property
    def cuts_back(self) -> bool:
        """Whether it also rebuilds the checkpoint, once the ledger is cut back."""
        return self.verb == _REWIND and not self.sinks

    @property
    def can_be_obeyed(self) -> bool:
        """Whether the model knows the verb, and nothing is to be filled in."""
        return (self.verb in _VERBS or self.on_checkpoint) and _TO_FILL_IN not in self.options

    @property
    def on_checkpoint(self) -> bool:
        """Whether it rebuilds the checkpoint, or says where a new one begins."""
        return self.verb == "recover rebuild-checkpoint" or "--offsets" in self.options

    @property
    def dropped(self) -> str:
        """The sink that it takes out; empty for none."""
        return self.options[0] if self.verb == "recover drop-sink" else ""

    @property
    def accepted(self) -> Adoption:
        """What it names, as it is typed; of a command that accepts something."""
        assert self.kind is not None
        first, last = self.epochs
        return Adoption(self.kind, self.sinks, first, last, self.versions)

    @property
    def _named(self) -> Iterator[tuple[str, str, str]]:
        pairs = zip(self.options, self.options[1:], strict=False)
        return (value.partition("@") for option, value in pairs if option == "--sink")


def every(sinks: Sequence[Sink], ledger: Ledger) -> tuple[Way, ...]:
    """What can be accepted, for an operator who takes the wrong one: each kind, naming all that it can name here."""
    stop, end = _stopped(sinks, ledger)
    adoptions = {kind: acceptance.applicable(kind, stop, end) for kind in KINDS if kind not in _LIES}
    options = {kind: acceptance.option(adoption or Adoption(kind)) for kind, adoption in adoptions.items()}
    return tuple(Way("recover adopt", tuple(shlex.split(typed))) for typed in options.values())


def printed(text: str, *, knowing: bool = False) -> tuple[Way, ...]:
    """The ways out in a message that leave nothing to be filled in.

    Args:
        text: the message.
        knowing: whether the reader also knows what only the owner of a source does.
    """
    all_remedies = list[Way]()
    for match in _COMMAND.finditer(text):
        remedy = _way(shlex.split(match["words"]))
        if match["then"]:
            all_remedies[-1] = replace(all_remedies[-1], then=remedy)
        else:
            all_remedies.append(remedy)
    complete_remedies = [
        candidate for candidate in all_remedies if candidate.can_be_obeyed and (knowing or candidate.kind not in _LIES)
    ]
    return tuple(dict.fromkeys(complete_remedies))


def _way(words: list[str]) -> Way:
    verb, rest, options = " ".join(words[:2]), iter(words[2:]), list[str]()
    if verb in _NAMED:
        next(rest, None)
    for word in rest:
        if word in _PLACES:
            next(rest, None)
        else:
            options.append(word)
    return Way(verb, tuple(options))


def carry_out(remedy: Way, sinks: Sequence[Sink], ledger: Ledger, gone: Records = 0) -> bool:
    """Do what a command does, by the code that does it; of ``recover rebuild-ledger`` in the same steps.

    Args:
        remedy: the command.
        sinks: of the pipeline.
        ledger: of the pipeline.
        gone: records whose input files are gone.

    Returns:
        Whether anything is accepted by it.

    Raises:
        OnceOnlyError: it is refused.
    """
    if remedy.verb == "recover resolve":
        operator.resolve(sinks, ledger, PIPELINE)
        return False
    if remedy.verb == "recover rebuild-ledger":
        reread(sinks, ledger)
        return False
    if remedy.verb == _REWIND:
        _rewind(remedy, sinks, ledger, gone)
        return remedy.loses
    if remedy.dropped:
        others = [sink for sink in sinks if sink.id != remedy.dropped]
        operator.drop_sink(others, ledger, PIPELINE, Adoption(AdoptionKind.DROP_SINK, sinks=(remedy.dropped,)))
        return True
    accepted = remedy.accepted
    expected = acceptance.applicable(accepted.kind, *_stopped(sinks, ledger))
    if expected is None or not acceptance.same(accepted, expected):
        raise operator.not_applicable(PIPELINE, accepted.kind)
    return operator.adopt(sinks, ledger, PIPELINE, acceptance.complete(accepted, expected)) is not None


def _rewind(remedy: Way, sinks: Sequence[Sink], ledger: Ledger, gone: Records) -> None:
    request = RewindRequest(remedy.at, remedy.sinks, lost=remedy.epochs if remedy.loses else None)
    where = remedies.CommandContext(PIPELINE, "")
    of = rewind.Pipeline(PIPELINE, tuple(sinks), ledger, where, lambda path: is_there(path, gone))
    planned = rewind.plan(of, request)
    if isinstance(planned.direction, CutBack):
        rewind.cut_back(of, planned)
        return
    held = {sink.id: sink for sink in sinks if isinstance(sink, Lies)}

    def give(steps: Sequence[Step], take: Callable[[Step, Batch], None]) -> None:
        for step in steps:
            take(step, held[step.origin.sink].lying(step.epoch.number))

    rewind.bring_up(of, planned, request, give)


def reread(sinks: Sequence[Sink], ledger: Ledger) -> None:
    """Forget what markers tell again, and record that."""
    history = by_epoch([pair for sink in sinks for pair in sink.history()])
    if history:
        ledger.discard(PIPELINE, history[0][0].epoch.number)
    for marker, receipts in history:
        ledger.record(EpochRecord(PIPELINE, marker.fence, marker.epoch, receipts))


def _stopped(sinks: Sequence[Sink], ledger: Ledger) -> tuple[Stop | None, SourceOffsets | None]:
    """Why the pipeline stopped, and where it stands, by the ledger and by all that sinks hold."""
    epochs = [marker.epoch for sink in sinks for marker, _ in sink.history()]
    epochs += [record.epoch for record in ledger.epochs(PIPELINE)]
    newest = max(epochs, key=lambda epoch: epoch.number, default=None)
    return remedies.last(ledger, PIPELINE), newest.written.end if newest else None


# ---- What each refusal says of the world, looked up in the world itself: a code is right only where that is so.
#
# Nothing here asks the rules that refuse. A product that stops for another reason than it says is found stuck.


@dataclass(frozen=True)
class Situation:
    """Where a driver was refused.

    Attributes:
        targets: in commit order.
        staging: staged epochs.
        ledger: the index.
        checkpoint: that the driver runs on.
        desk: what is known outside.
        planned: the batch that it was handed; ``None`` before the first.
        source: what it reads.
        trims: whether rows of recorded epochs are left out.
        bad: records that break an expectation of the call.
    """

    targets: tuple[Target, ...]
    staging: StagingArea
    ledger: SimulatedLedger
    checkpoint: Checkpoint
    desk: Desk
    planned: Planned | None
    source: Source
    trims: bool = False
    bad: Records = 0

    def explains(self, code: str) -> bool:
        """Whether what a code says is so."""
        return code in _SITUATIONS and self.planned is not None and _SITUATIONS[code](self, self.planned)

    # ---- what is there

    @cached_property
    def known(self) -> tuple[Epoch, ...]:
        """Every epoch that a sink or the ledger holds."""
        held = (held.epoch for target in self.targets for held in target.held)
        return (*(record.epoch for record in self.ledger.records), *held)

    @cached_property
    def highest(self) -> Epoch | None:
        """The newest epoch that a sink holds."""
        newest = [target.newest.epoch for target in self.targets if target.newest]
        return max(newest, key=lambda epoch: epoch.number, default=None)

    @property
    def before(self) -> Lineage | None:
        """The engine's names for the newest batch that a sink holds."""
        return self.highest.resume_point.lineage if self.highest else None

    @property
    def elsewhere(self) -> bool:
        """Whether another query comes than the one that wrote last."""
        return self.before is not None and self.before.query_id != self.checkpoint.query

    @property
    def end(self) -> int:
        """Where the newest epoch in the sinks ends; a directory counts batches, a topic records."""
        return self._place(self.highest.written.end) if self.highest else 0

    def begins(self, planned: Planned) -> int:
        """Where a batch begins, counted like :attr:`end`."""
        return planned.batch_id if self.source.files else planned.start

    def _place(self, source_offsets: SourceOffsets) -> int:
        text = source_offsets.entries[0][1]
        if not self.source.files:
            return record_at(source_offsets)
        return int(json.loads(text)["logOffset"]) + 1 if text else 0

    def is_known(self, planned: Planned) -> bool:
        """Whether a batch is one that became an epoch, planned at the same moment."""
        names = (self.checkpoint.query, planned.batch_id, planned.clock)
        return any(_names(epoch.lineage) == names for epoch in self.known if epoch.lineage)

    def identities(self, target: Target) -> Iterator[str]:
        """What the ledger's newest receipt says that a target is."""
        head = self.ledger.head
        return (receipt.identity for receipt in (head.receipts if head else ()) if receipt.sink == target.name)


OTHER_ROWS = "E215"
"""The code with which a batch is refused that gives other rows when it is run again for its state."""


def _number(target: Target) -> int:
    return target.newest.epoch.number if target.newest else 0


def _is_replaced(now: Situation, target: Target) -> bool:
    return any(old_identity != target.identity for old_identity in now.identities(target))


def _set_back(now: Situation, _: Planned) -> bool:
    return any(_ends_early(now, target) for target in now.targets)


def _ends_early(now: Situation, target: Target) -> bool:
    head, highest = now.ledger.head, now.highest
    receipt_epoch = max(
        (receipt.epoch for receipt in (head.receipts if head else ()) if receipt.sink == target.name), default=0
    )
    first = dict(highest.sinks).get(target.name) if highest else None
    behind = highest is not None and first is not None and max(_number(target), first - 1) < highest.number - 1
    return not _is_replaced(now, target) and (_number(target) < receipt_epoch or behind)


def _other_history(now: Situation, _: Planned) -> bool:
    chains: dict[int, set[str]] = {}
    for epoch in now.known:
        chains.setdefault(epoch.number, set()).add(epoch.chain)
    follows = ((epoch.previous_chain, chains.get(epoch.number - 1)) for epoch in now.known)
    return any(len(chain) > 1 for chain in chains.values()) or any(
        earlier_chains and previous_chain not in earlier_chains for previous_chain, earlier_chains in follows
    )


def _not_healed(now: Situation, _: Planned) -> bool:
    highest = now.highest
    if highest is None:
        return False
    behind = [target for target in now.targets if _number(target) == highest.number - 1]
    staged = now.staging.holds(highest.manifest) if highest.manifest else None
    return bool(behind) and (staged is None or staged.torn or any(target.harm == Harm.HOLLOW for target in behind))


def _ends_before_checkpoint(now: Situation, planned: Planned) -> bool:
    """Sink and ledger both: the engine has logged batches as done that neither knows."""
    done = [batch for batch in now.checkpoint.returned if now.begins(batch) >= now.end]
    ledger = now.ledger.head
    knows_more = ledger is not None and now.highest is not None and ledger.epoch.number > now.highest.number
    return not now.elsewhere and not knows_more and bool(done) and now.begins(planned) > now.end


def _repeats(now: Situation, planned: Planned) -> bool:
    comes_again = now.begins(planned) < now.end or (now.source.files and now.trims)
    return now.highest is not None and comes_again and not _provable(now, planned)


def _provable(now: Situation, planned: Planned) -> bool:
    """Whether a batch is the newest epoch that its number became, and the ledger has all since."""
    assert now.highest is not None
    names = (now.checkpoint.query, planned.batch_id, planned.clock)
    same = [(epoch.number, _names(epoch.lineage)) for epoch in now.known if epoch.lineage]
    number, recorded_names = max((pair for pair in same if pair[1][:2] == names[:2]), default=(0, None))
    recorded = {record.epoch.number for record in now.ledger.records} | {now.highest.number}
    return recorded_names == names and set(range(number, now.highest.number + 1)) <= recorded


def _names(lineage: Lineage) -> tuple[str, int, int]:
    return lineage.query_id, lineage.batch_id, lineage.batch_timestamp_ms


def _another_batch(now: Situation, planned: Planned) -> bool:
    names = (now.checkpoint.query, planned.batch_id)
    same = [
        lineage
        for lineage in (epoch.lineage for epoch in now.known)
        if lineage and (lineage.query_id, lineage.batch_id) == names
    ]
    return bool(same) and not now.is_known(planned)


def _not_trimmed(now: Situation, planned: Planned) -> bool:
    if not now.trims or now.highest is None:
        return False
    if now.source.files:
        listed = {record.epoch.number for record in now.ledger.records if record.files}
        return bool({epoch.number for epoch in now.known if not epoch.adoption} - listed)
    return planned.first and not now.source.begins and not _provable(now, planned)


def _expects_something_else(now: Situation, planned: Planned) -> bool:
    """A batch that is run again for its state has other good rows where the call calls others bad."""
    names = (now.checkpoint.query, planned.batch_id, planned.clock)
    epochs = [epoch for epoch in now.known if epoch.lineage and _names(epoch.lineage) == names]
    return now.source.stateful and any(
        records_in(epoch.digest) != records_of(epoch) & ~now.bad for epoch in epochs if epoch.bad
    )


_SITUATIONS: Mapping[str, Callable[[Situation, Planned], bool]] = {
    **dict.fromkeys(MISUSED, lambda now, _: bool(now.desk.program) and Program(now.desk.program).misuses),
    "E203": _repeats,
    "E204": lambda now, planned: (
        now.highest is not None
        and now.begins(planned) > now.end
        and not _ends_before_checkpoint(now, planned)
        and not _set_back(now, planned)
    ),
    "E205": _another_batch,
    "E206": lambda now, _: now.source.stateful and now.elsewhere,
    "E207": _set_back,
    "E208": lambda now, _: any(_is_replaced(now, target) for target in now.targets),
    "E209": lambda now, _: any(target.changed is not None for target in now.targets),
    "E210": _other_history,
    "E211": lambda now, planned: now.elsewhere and (now.source.files or (planned.first and not now.source.begins)),
    "E213": lambda now, _: bool(now.desk.left_out),
    "E214": lambda now, planned: bool(planned.records & now.desk.gone),
    OTHER_ROWS: _expects_something_else,
    "E217": lambda now, planned: now.highest is None and now.begins(planned) > 0,
    "E219": _not_healed,
    "E220": _not_trimmed,
    "E229": _ends_before_checkpoint,
    "E246": lambda now, planned: bool(now.checkpoint.beside) and planned.first,
    REFUSED_ROW: lambda now, _: any(target.harm == Harm.PICKY for target in now.targets),
}
"""What must be so where a driver is refused, by code. A code that is not here explains nothing in these worlds."""
