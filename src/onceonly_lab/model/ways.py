"""The ways out that a refusal prints, read off its text as a person would, and what each of them does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onceonly import acceptance, resolve, stops
from onceonly.acceptance import KINDS, Stop
from onceonly.protocol import Sink
from onceonly.recovery import by_epoch
from onceonly_checkpoints.adoption import Adoption
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.slices import SourceOffsets
from onceonly_lab.model.parts import PIPELINE

_COMMAND = re.compile(
    r"(?P<then>and after it: (?:[^\n]*: )?)?\bonceonly (?P<words>(?:queries|ledger|checkpoint|txn) .*)$", re.MULTILINE
)
_VERBS = frozenset(
    {"queries adopt", "queries drop-sink", "ledger rebuild", "checkpoint rebuild", "checkpoint offsets", "txn resolve"}
)
_NAMED = frozenset({"queries adopt", "queries drop-sink", "checkpoint rebuild"})
"""Commands whose first word is the pipeline's name, or a path."""
_PLACES = frozenset({"--ledger", "--query"})
_SPAN = re.compile(r"(\d+)(?:\.\.(\d+))?")
_LIES = frozenset({"continue", "start"})
"""Kinds that say of the source what only its owner knows: who obeys without knowing it, is not led astray by us."""


@dataclass(frozen=True, slots=True)
class Way:
    """One printed command.

    Attributes:
        verb: ``queries adopt``.
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
    def kind(self) -> str:
        """What is accepted; empty where nothing is."""
        if self.verb != "queries adopt":
            return ""
        named = [word.removeprefix("--") for word in self.options if word.startswith("--") and word != "--sink"]
        return self.options[self.options.index("--overlap") + 1] if "overlap" in named else (named or [""])[0]

    @property
    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch that it names; zeros for none."""
        spans = [_SPAN.fullmatch(word) for word in self.options]
        return next(((int(found[1]), int(found[2] or found[1])) for found in spans if found), (0, 0))

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks that it names; none: all."""
        return tuple(sink for sink, _, _ in self._named)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the sinks that it names, in their order; empty for none."""
        return tuple(version for _, _, version in self._named if version)

    @property
    def at(self) -> int:
        """The epoch at which it rebuilds; 0 where it names none."""
        return int(self.options[self.options.index("--at") + 1]) if "--at" in self.options else 0

    @property
    def dropped(self) -> str:
        """The sink that it takes out; empty for none."""
        return self.options[0] if self.verb == "queries drop-sink" else ""

    @property
    def accepted(self) -> Adoption:
        """What it names, as it is typed."""
        first, last = self.epochs
        return Adoption(self.kind, self.sinks, first, last, self.versions)

    @property
    def _named(self) -> Iterator[tuple[str, str, str]]:
        pairs = zip(self.options, self.options[1:], strict=False)
        return (value.partition("@") for option, value in pairs if option == "--sink")


def every(sinks: Sequence[Sink], ledger: Ledger) -> tuple[Way, ...]:
    """What can be accepted, for an operator who takes the wrong one: each kind, naming all that it can name here."""
    stop, end = _stopped(sinks, ledger)
    found = {kind: acceptance.applicable(kind, stop, end) for kind in KINDS if kind not in _LIES}
    options = {kind: acceptance.option(wanted or Adoption(kind)) for kind, wanted in found.items()}
    return tuple(Way("queries adopt", tuple(shlex.split(typed))) for typed in options.values())


def printed(text: str, *, knowing: bool = False) -> tuple[Way, ...]:
    """The ways out in a message that leave nothing to be filled in.

    Args:
        text: the message.
        knowing: whether the reader also knows what only the owner of a source does.
    """
    found = list[Way]()
    for match in _COMMAND.finditer(text):
        way = _way(shlex.split(match["words"]))
        if match["then"]:
            found[-1] = replace(found[-1], then=way)
        else:
            found.append(way)
    return tuple(dict.fromkeys(way for way in found if way.verb in _VERBS and (knowing or way.kind not in _LIES)))


def _way(words: list[str]) -> Way:
    verb, rest, kept = " ".join(words[:2]), iter(words[2:]), list[str]()
    if verb in _NAMED:
        next(rest, None)
    for word in rest:
        if word in _PLACES:
            next(rest, None)
        else:
            kept.append(word)
    return Way(verb, tuple(kept))


def carry_out(way: Way, sinks: Sequence[Sink], ledger: Ledger) -> bool:
    """Do what a command does, by the code that does it; of ``ledger rebuild`` in the same steps.

    Returns:
        Whether anything is accepted by it.

    Raises:
        OnceOnlyError: it is refused.
    """
    if way.verb == "txn resolve":
        resolve.resolve(sinks, ledger, PIPELINE)
        return False
    if way.verb == "ledger rebuild":
        _reread(sinks, ledger)
        return False
    if way.dropped:
        others = [sink for sink in sinks if sink.id != way.dropped]
        resolve.drop_sink(others, ledger, PIPELINE, Adoption("drop-sink", sinks=(way.dropped,)))
        return True
    wanted = acceptance.applicable(way.kind, *_stopped(sinks, ledger))
    if wanted is None or not acceptance.same(way.accepted, wanted):
        raise resolve.not_applicable(PIPELINE, way.kind)
    return resolve.adopt(sinks, ledger, PIPELINE, acceptance.complete(way.accepted, wanted)) is not None


def _reread(sinks: Sequence[Sink], ledger: Ledger) -> None:
    """Forget what markers tell again, and record that."""
    told = by_epoch([pair for sink in sinks for pair in sink.history()])
    if told:
        ledger.discard(PIPELINE, told[0][0].epoch.number)
    for marker, receipts in told:
        ledger.record(EpochRecord(PIPELINE, marker.fence, marker.epoch, receipts))


def _stopped(sinks: Sequence[Sink], ledger: Ledger) -> tuple[Stop | None, SourceOffsets | None]:
    """Why the pipeline stopped, and where it stands, by the ledger and by all that sinks hold."""
    known = [marker.epoch for sink in sinks for marker, _ in sink.history()]
    known += [record.epoch for record in ledger.epochs(PIPELINE)]
    newest = max(known, key=lambda epoch: epoch.number, default=None)
    return stops.last(ledger, PIPELINE), newest.slice.end if newest else None
