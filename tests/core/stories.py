"""Builders for epochs, offers and readings, so that the tests of the pure core read as sentences."""

from __future__ import annotations

from dataclasses import replace

from onceonly.machine.facts import BatchFacts, Offer, OpeningFacts, Reading
from onceonly.machine.source_order import kafka_identity
from onceonly.protocol import Peek, Position
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt, ResumePoint
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceIdentity, SourceOffsets

SINK = "memory:orders"

FROM_THE_LEDGER = dict.fromkeys(
    (
        "ledger",
        "behind",
        "range",
        "ways",
        "back",
        "onward",
        "again",
        "copy",
        "undo",
        "dump",
        "lost",
        "named",
        "first",
        "last",
        "then",
        "replace",
        "source",
    ),
    "",
)
"""Details that the ledger adds to what the rules say of a refusal."""

SOURCES = (SourceIdentity("0", kafka_identity("cluster", {"events": "id-1"})),)


def at(offset: int | None) -> SourceOffsets:
    return SourceOffsets.of({"0": None if offset is None else f'{{"events":{{"0":{offset}}}}}'})


def cut(start: int | None, end: int) -> Slice:
    return Slice(at(start), at(end))


def lineage(batch: int, query: str = "q1", clock: int = 0) -> Lineage:
    return Lineage(query, "r1", "file:/ckpt", batch, clock or 1000 + batch, 0)


def epochs(*ends: int, start: int | None = None, query: str = "q1") -> tuple[Epoch, ...]:
    """Epochs 1, 2, ... that end at the given offsets; batch ids count from 0."""
    made: list[Epoch] = []
    for index, end in enumerate(ends):
        begin = made[-1].written.end if made else at(start)
        previous = made[-1].chain if made else chain.GENESIS
        slice_, digest = Slice(begin, at(end)), Digest(10, index, index)
        epoch = Epoch(
            number=index + 1,
            written=slice_,
            chain="",
            previous_chain=previous,
            digest=digest,
            schema="schema",
            sinks=((SINK, 1),),
            lineage=lineage(index, query),
            sources=SOURCES,
        )
        made.append(chain.linked(epoch))
    return tuple(made)


def changed(*line: Epoch, **changes: object) -> tuple[Epoch, ...]:
    """The same run of epochs, each with these changes, and a chain that fits."""
    made: list[Epoch] = []
    for epoch in line:
        previous = made[-1].chain if made else epoch.previous_chain
        made.append(chain.linked(replace(epoch, previous_chain=previous, **changes)))  # type: ignore[arg-type]
    return tuple(made)


def adoption(last: Epoch, kind: str, to: SourceOffsets, /, **named: object) -> Epoch:
    decided = replace(Adoption(AdoptionKind(kind)), **named)  # type: ignore[arg-type]
    before = last.resume_point
    moved = replace(
        last,
        number=last.number + 1,
        written=Slice(last.written.end, to),
        digest=Digest(0),
        schema="",
        previous_chain=last.chain,
        lineage=None,
        adoption=decided,
        offered=None,
        carried=ResumePoint(before.lineage, (*before.accepted, decided)),
    )
    return chain.linked(moved)


def marked(epoch: Epoch, sink: str = SINK, generation: int = 1) -> Marker:
    return Marker("orders", sink, Fence(generation, "owner"), epoch)


def receipt(epoch: Epoch, sink: str = SINK, identity: str = "table-1") -> Receipt:
    return Receipt(sink, epoch.number, epoch.chain, identity, (), epoch.digest.rows)


def recorded(epoch: Epoch) -> EpochRecord:
    return EpochRecord("orders", Fence(1, "owner"), epoch, (receipt(epoch),))


def reading(
    newest: Epoch | None,
    *,
    known: Epoch | None = None,
    ahead: tuple[Epoch, ...] = (),
    identity: str = "table-1",
    rows: bool = True,
    disturbed: tuple[ExternalChange, ...] = (),
    sink: str = SINK,
    number: int | None = None,
) -> Reading:
    """What a sink says: it holds ``newest``; the ledger has a receipt for ``known``."""
    position = Position(
        Fence(2, "us"),
        marked(newest, sink) if newest else None,
        number if number is not None else newest.number if newest else 0,
        identity,
        rows,
        disturbed,
    )
    pairs = tuple((marked(epoch, sink), receipt(epoch, sink)) for epoch in ahead)
    return Reading(sink, position, receipt(known, sink) if known else None, pairs)


def sight(newest: Epoch | None, sink: str = SINK, *, strangers: bool = False) -> Peek:
    """What a look at a sink shows."""
    return Peek(marked(newest, sink) if newest else None, newest.number if newest else 0, strangers)


def opening(*readings: Reading, head: Epoch | None = None, **options: object) -> OpeningFacts:
    return replace(OpeningFacts("orders", readings, head), **options)  # type: ignore[arg-type]


def offer(slice_: Slice, batch: int, query: str = "q1", **options: object) -> Offer:
    made = Offer(slice_, lineage(batch, query), SOURCES, "schema")
    return replace(made, **options)  # type: ignore[arg-type]


def batch(last: Epoch | None, offered: Offer, descent: tuple[Epoch, ...] = (), **options: object) -> BatchFacts:
    made = BatchFacts("orders", SINK, last, offered, descent[0] if descent else None, descent)
    return replace(made, **options)  # type: ignore[arg-type]
