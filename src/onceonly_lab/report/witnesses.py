"""The rows that a finding names: where they come from, what brought them, and how often each sink shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onceonly_lab.checker import Finding
from onceonly_lab.checker.reading import Reading
from onceonly_lab.report.words import taken


@dataclass(frozen=True, slots=True)
class Witness:
    """One row.

    Attributes:
        identity: unique in the input.
        key: its key; empty without one.
        origin: the slice of the input that holds it; empty if the input does not have it.
        brought: the commits that landed with it, in words, at most :data:`MOST`.
        seen: how often the last read of each sink shows it, in the order of the sinks; ``None``: never read.
    """

    identity: str
    key: str
    origin: str
    brought: tuple[str, ...]
    seen: tuple[int | None, ...]


MOST = 8
"""Commits that are told of one row."""


def witnesses(reading: Reading, finding: Finding) -> tuple[Witness, ...]:
    """The rows that a finding names, as many as the checker gives."""
    return tuple(_witness(reading, identity) for identity in finding.witnesses)


def _witness(reading: Reading, identity: str) -> Witness:
    case = reading.case
    homes = (entry for entry in case.inputs if any(row.identity == identity for row in entry.rows or ()))
    home = next(homes, None)
    return Witness(
        identity,
        case.keys.get(identity) or "",
        taken(home.slice or ()) if home else "",
        tuple(_brought(reading, identity))[:MOST],
        tuple(_count(reading, sink, identity) for sink in case.sinks),
    )


def _brought(reading: Reading, identity: str) -> Iterator[str]:
    for (sink, epoch), commits in reading.landed.items():
        for commit in commits:
            if commit.rows and identity in commit.rows:
                actor, incarnation = commit.call.who
                yield f"epoch {epoch} in {sink}, by {actor} {incarnation}, line {commit.at}"


def _count(reading: Reading, sink: str, identity: str) -> int | None:
    reads = [read for read in reading.case.seen(sink) if read.rows is not None]
    return reads[-1].counts[identity] if reads else None
