"""Draw rewind cases: positions and data of sinks, then facts.

The facts follow from the drawn state. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from onceonly.machine.rewind import Origin, OriginKind, RewindFacts, RewindRequest
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, Lineage, ReplayedEpochs
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice
from onceonly_lab.model.parts import offsets

SINKS = ("a", "b", "c")
STRANGER = "d"
"""No sink of the pipeline."""

_KINDS = ("batch", "batch", "batch", "batch", "empty", "operator", "split", "rerun", "published")
"""What an epoch is: of a batch that gave rows, or none; of an operator; one of whose rows a sink gets a part; of a
batch that ran others again; a published rerun, which no batch gave."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is so, and what is told of it.

    Attributes:
        facts: what is told.
        line: the epochs, as they were committed.
        held: what each sink gets of each epoch, by number and sink; nothing where it gets no rows.
        given: what the query's own code gives when it reads the source again, by number.
        joined: the first epoch of each sink.
        ruined: numbers of the epochs of which the ledger says something else, or nothing.
        astray: a sink that stands on another history.
    """

    facts: RewindFacts
    line: tuple[Epoch, ...]
    held: Mapping[tuple[int, str], str]
    given: Mapping[int, str]
    joined: Mapping[str, int]
    ruined: frozenset[int]
    astray: str

    def sources(self, sink: str, number: int) -> set[Origin]:
        """Where the rows of an epoch lie for a sink, of the places that may be asked."""
        facts, rows = self.facts, self.held.get((number, sink))
        if rows is None:
            return {Origin(OriginKind.NONE)}
        origins = {
            Origin(OriginKind.SINK, other) for other in self._others(number) if self.held.get((number, other)) == rows
        }
        if number in facts.staged:
            origins.add(Origin(OriginKind.STAGED))
        if facts.code and number not in facts.gone and self.given.get(number) == rows:
            origins.add(Origin(OriginKind.SOURCE))
        return origins if facts.request.origin is None else origins & {facts.request.origin}

    def lacks(self, sink: str, newest: int) -> list[int]:
        """Epochs that a sink has to get to stand at ``newest``."""
        return list(range(max(self.facts.sink_epochs[sink] + 1, self.joined[sink]), newest + 1))

    def _others(self, number: int) -> list[str]:
        """Sinks that can be read, are not written themselves, and hold an epoch."""
        facts = self.facts
        there = [sink for sink in facts.readable if self.joined[sink] <= number <= facts.sink_epochs[sink]]
        return [sink for sink in there if sink not in facts.request.sinks]


def drawn(chance: Random) -> Case:
    """A pipeline some of whose sinks may have been set back, and what somebody asks for."""
    names = SINKS[: chance.randint(1, 3)]
    newest = chance.randint(1, 5)
    joined = {sink: chance.choice((1, 1, 1, chance.randint(1, newest))) for sink in names}
    kinds = [chance.choice(_KINDS) for _ in range(newest)]
    line = _line(kinds, joined)
    sink_epochs = _stands(chance, joined, newest)
    request = _asked(chance, sink_epochs, newest)
    epochs_by_number, ruined = _ruined(chance, line)
    chains, astray = _chains(chance, line, sink_epochs, request)
    numbers = range(1, newest + 2)
    facts = RewindFacts(
        request,
        sink_epochs,
        epochs_by_number,
        staged={number for number in numbers if chance.random() < 0.3},
        readable=[sink for sink in chance.sample(names, len(names)) if chance.random() < 0.6],
        code=chance.random() < 0.4,
        gone={number: f"file {number}" for number in numbers if chance.random() < 0.15},
        chains=chains,
        outlived={sink: f"another {sink}" for sink in names if sink_epochs[sink] and chance.random() < 0.05},
    )
    held = {
        (epoch.number, sink): _held(kinds[epoch.number - 1], sink, epoch.number) for epoch in line for sink in names
    }
    query_rows = {number: f"{number} as the query gives them" for number in numbers if kinds[number - 1 : number]}
    return Case(facts, line, {at: rows for at, rows in held.items() if rows}, query_rows, joined, ruined, astray)


def _held(kind: str, sink: str, number: int) -> str:
    if kind in {"empty", "operator"}:
        return ""
    if kind in {"rerun", "published"}:
        return f"{number} of a rerun"
    if kind == "split":
        return f"{number}, a part of them" if sink == SINKS[-1] else f"{number} without what was set aside"
    return f"{number} as the query gives them"


def _line(kinds: list[str], joined: Mapping[str, int]) -> tuple[Epoch, ...]:
    made: list[Epoch] = []
    for number, kind in enumerate(kinds, 1):
        before = made[-1].chain if made else chain.GENESIS
        there = tuple((sink, first) for sink, first in joined.items() if first <= number)
        plain = Epoch(
            number,
            Slice(offsets(number - 1), offsets(number)),
            "",
            before,
            Digest(0 if kind in {"empty", "operator"} else 2, number, number),
            "columns",
            there,
            None if kind in {"operator", "published"} else Lineage("query", "run", "checkpoint", number, number, 0),
            adoption=Adoption(AdoptionKind.ACCEPT_CHANGE) if kind == "operator" else None,
            outputs=(OutputDigest("part", SINKS[-1:], "columns", Digest(1, number)),) if kind == "split" else (),
            replays=ReplayedEpochs("other", 1, 1, "theirs") if kind in {"rerun", "published"} else None,
        )
        made.append(chain.linked(plain))
    return tuple(made)


def _stands(chance: Random, joined: Mapping[str, int], newest: int) -> dict[str, int]:
    """Where sinks stand: all alike, or each at one of two places, or anywhere; none before its first epoch."""
    common, other = chance.randint(1, newest), chance.randint(0, newest)
    how = chance.random()
    among = (common,) if how < 0.3 else (common, other) if how < 0.8 else range(newest + 1)
    sink_epochs = {sink: chance.choice(among) for sink in joined}
    return {sink: at if at >= joined[sink] else 0 for sink, at in sink_epochs.items()}


def _asked(chance: Random, sink_epochs: Mapping[str, int], newest: int) -> RewindRequest:
    """What leads on where they stand, or anything."""
    least, most = min(sink_epochs.values()), max(sink_epochs.values())
    request = RewindRequest(least, tuple(sink for sink, at in sink_epochs.items() if at < most))
    if chance.random() < 0.3:
        among = [*sink_epochs, STRANGER] if chance.random() < 0.1 else [*sink_epochs]
        some = chance.sample(among, chance.randint(0, len(sink_epochs)))
        request = RewindRequest(chance.randint(0, newest + 1), tuple(some))
    if chance.random() < 0.3:
        others = [Origin(OriginKind.SINK, sink) for sink in sink_epochs]
        origin = chance.choice((Origin(OriginKind.STAGED), Origin(OriginKind.SOURCE), *others))
        request = replace(request, origin=origin)
    if chance.random() < 0.3:
        first = chance.randint(1, newest + 1)
        request = replace(request, lost=(first, chance.randint(first, newest + 1)))
    return request


def _ruined(chance: Random, line: tuple[Epoch, ...]) -> tuple[dict[int, Epoch], frozenset[int]]:
    """What is known of epochs: one of them may be forgotten, altered by hand, or be of another history."""
    epochs_by_number = {epoch.number: epoch for epoch in line}
    if chance.random() < 0.6 or len(line) == 1:
        return epochs_by_number, frozenset()
    ruined_epoch = chance.choice(line)
    how = chance.choice(("forgotten", "altered", "other"))
    if how == "forgotten":
        del epochs_by_number[ruined_epoch.number]
    elif how == "altered":
        epochs_by_number[ruined_epoch.number] = replace(ruined_epoch, schema="other columns")
    else:  # of the first nobody can tell
        ruined_epoch = line[-1] if ruined_epoch.number == 1 else ruined_epoch
        epochs_by_number[ruined_epoch.number] = chain.linked(replace(ruined_epoch, previous_chain="of another history"))
    contradicted = {ruined_epoch.number + 1} if how == "other" else set[int]()
    return epochs_by_number, frozenset({ruined_epoch.number, *contradicted})


def _chains(
    chance: Random, line: tuple[Epoch, ...], sink_epochs: Mapping[str, int], request: RewindRequest
) -> tuple[dict[str, str], str]:
    """What sinks say that they hold, where they are asked; one that is brought up may hold another history."""
    chains = {sink: line[at - 1].chain for sink, at in sink_epochs.items() if at and chance.random() < 0.8}
    astray = next((sink for sink in request.sinks if sink_epochs.get(sink)), "") if chance.random() < 0.15 else ""
    return chains | ({astray: "of another history"} if astray else {}), astray
