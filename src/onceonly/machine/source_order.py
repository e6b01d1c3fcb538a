"""Compare source offsets and identities without knowing the source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum

from onceonly_checkpoints.model import SourceIdentity, SourceKind, SourceOffsets, canonical


class Order(Enum):
    """How one set of offsets lies to another."""

    SAME = "same"
    BEFORE = "before"
    AFTER = "after"
    UNCLEAR = "unclear"


def portable(identity: SourceIdentity) -> bool:
    """Whether offsets of this source mean the same under another checkpoint."""
    return identity.kind not in (SourceKind.UNNAMED, SourceKind.FILES)


def numbers(text: str | None) -> dict[str, float] | None:
    """Numeric leaves of an offset by path (``/topic/partition``); ``None`` where the offset is not JSON."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return dict(_leaves("", value))


def _leaves(path: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _leaves(f"{path}/{key}", child)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _leaves(f"{path}/{index}", child)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def place_in_log(text: str | None) -> tuple[str, int, int] | None:
    """Where an offset of a Delta source stands: the table's id, version, index.

    The two numbers are one place: the first file of a version comes after the last one of the version before.

    Returns:
        The place; only places of one table compare. ``None`` for other offsets.
    """
    try:
        value = json.loads(text or "null")
    except ValueError:
        return None
    match value:
        case {"reservoirId": str(table), "reservoirVersion": int(version), "index": int(index)}:
            return table, version, index
        case _:
            return None


def _in_snapshot(text: str) -> bool:
    return bool(json.loads(text).get("isStartingVersion"))


def _order_in_log(one: str, other: str) -> Order | None:
    left, right = place_in_log(one), place_in_log(other)
    if left is None or right is None:
        return None
    # A snapshot's files are numbered otherwise than those that a version added.
    if left[0] != right[0] or left == right or (left[1] == right[1] and _in_snapshot(one) != _in_snapshot(other)):
        return Order.UNCLEAR
    return Order.BEFORE if left < right else Order.AFTER


def _order_of_one(one: str | None, other: str | None) -> Order:
    if one == other:
        return Order.SAME
    if one is None:
        return Order.BEFORE
    if other is None:
        return Order.AFTER
    return _order_in_log(one, other) or _order_by_numbers(one, other)


def _order_by_numbers(one: str, other: str) -> Order:
    left, right = numbers(one), numbers(other)
    if left is None or right is None:
        return Order.UNCLEAR
    # Of what one of them alone names nothing is said: a topic that went or came is neither a gap nor an overlap.
    signs = {left[path] < right[path] for path in left.keys() & right if left[path] != right[path]}
    if signs == {True}:
        return Order.BEFORE
    return Order.AFTER if signs == {False} else Order.UNCLEAR


def order(one: SourceOffsets, other: SourceOffsets) -> Order:
    """How ``one`` lies to ``other``, by the numbers inside; for wording a refusal only, never for skipping."""
    if one == other:
        return Order.SAME
    if one.sources != other.sources:
        return Order.UNCLEAR
    pairs = zip(one.entries, other.entries, strict=True)
    found = {_order_of_one(left, right) for (_, left), (_, right) in pairs} - {Order.SAME}
    return found.pop() if len(found) == 1 else Order.UNCLEAR


def other_parts(end: SourceOffsets, start: SourceOffsets) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Topics and partitions that only one of two positions names, where all that both name stand at the same place.

    Args:
        end: where an epoch ended.
        start: where a batch starts.

    Returns:
        Those that ``end`` alone names, and those that ``start`` alone does, each with its offset, in words; ``None``
        where something that both name stands elsewhere, or neither is alone with anything.
    """
    if end.sources != start.sources:
        return None
    gone, new = list[str](), list[str]()
    for (_, was), (_, now) in zip(end.entries, start.entries, strict=True):
        before, after = _parts(was), _parts(now)
        if was != now and (not before or not after or any(before[at] != after[at] for at in before.keys() & after)):
            return None
        gone += (f"{at} (read up to {before[at]})" for at in before.keys() - after)
        new += (f"{at} (from {after[at]} on)" for at in after.keys() - before)
    return (tuple(sorted(gone)), tuple(sorted(new))) if gone or new else None


def _parts(text: str | None) -> Mapping[str, int]:
    """Offsets of Kafka by partition, in words; empty for others."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    topics = value.items() if isinstance(value, dict) else ()
    if not all(isinstance(numbers, dict) for _, numbers in topics):
        return {}
    return {f"partition {number} of {topic}": at for topic, numbers in topics for number, at in numbers.items()}


def counted(start: SourceOffsets, end: SourceOffsets, sources: tuple[SourceIdentity, ...]) -> int | None:
    """How many offsets of Kafka lie between two positions.

    Returns:
        Their number, which is that of the records but for transactions and compaction; ``None`` where it is not known:
        another source counts otherwise, or a partition is named at one end only.
    """
    if not sources or not all(one.kind is SourceKind.KAFKA for one in sources):
        return None
    there, found = dict(end.entries), 0
    for source, text in start.entries:
        first, last = numbers(text), numbers(there.get(source))
        if not first or not last or first.keys() != last.keys():
            return None
        found += sum(int(last[path] - first[path]) for path in first)
    return found


def describe(offsets: SourceOffsets) -> str:
    """Offsets for a sentence: one text, or ``source=text`` for several."""
    texts = [(source, "the beginning" if text is None else text) for source, text in offsets.entries]
    if len(texts) == 1:
        return texts[0][1]
    return ", ".join(f"{source}={text}" for source, text in texts) or "nothing"


def kafka_identity(cluster: str, topics: Mapping[str, str]) -> str:
    """Identity of a Kafka source."""
    return SourceKind.KAFKA.named(canonical({"cluster": cluster, "topics": dict(topics)}))


def _same_origin(one: SourceIdentity, other: SourceIdentity) -> bool:
    """Whether nothing speaks against two identities being one; brokers that could not be asked say nothing."""
    if one.identity == other.identity:
        return True
    kinds = {one.kind, other.kind}
    if kinds == {SourceKind.FILES}:
        return not (_says_directory(one) and _says_directory(other))
    if not kinds <= {SourceKind.KAFKA, SourceKind.UNNAMED}:
        return False
    if SourceKind.UNNAMED in kinds:
        return True
    left, right = json.loads(one.name), json.loads(other.name)
    shared = left["topics"].keys() & right["topics"].keys()
    if left["topics"] and right["topics"] and not shared:
        return False
    return left["cluster"] == right["cluster"] and all(left["topics"][name] == right["topics"][name] for name in shared)


def read_of(target: str, sources: tuple[SourceIdentity, ...], end: SourceOffsets) -> tuple[str | None, ...] | None:
    """Up to where a batch has read a target: an offset of each source that reads it; ``None``: it has not begun.

    Args:
        target: what a source that reads it is identified by.
        sources: of the batch.
        end: of its slice.

    Returns:
        Empty where no source reads it; ``None`` where brokers did not say whether one does.
    """
    offsets, wanted = dict(end.entries), SourceIdentity("", target)
    found = [one.source for one in sources if one.identity is not None and _same_origin(wanted, one)]
    if not found and any(_may_read(one, wanted, offsets.get(one.source)) for one in sources):
        return None
    return tuple(offsets.get(source) for source in found)


def _may_read(source: SourceIdentity, target: SourceIdentity, offset: str | None) -> bool:
    """Whether a source without a name has offsets of the target's topics."""
    if source.identity is not None or target.kind is not SourceKind.KAFKA:
        return False
    topics, paths = json.loads(target.name)["topics"], numbers(offset) or {}
    return any(path.split("/")[1] in topics for path in paths if path)


def position_in(offset: str | None) -> int | str | None:
    """The place that an offset has passed, as readers of time take it: a version of a Delta table, or Kafka's offsets.

    An offset inside of a version has not passed that version, and one inside of the first snapshot has passed nothing,
    which is ``None``: of which versions its files are, nobody knows.
    """
    place = place_in_log(offset)
    if offset is None or place is None:
        return offset
    return None if _in_snapshot(offset) or not place[1] else place[1] - 1


def _says_directory(source: SourceIdentity) -> bool:
    """Whether a file source says which directory it reads, as it cannot on Spark Connect; its files are compared."""
    return "[" in source.name


def carried(last: tuple[SourceIdentity, ...], offered: tuple[SourceIdentity, ...]) -> tuple[SourceIdentity, ...]:
    """Identities to record: where a source cannot say now what it is, the former one is kept for the next batch."""
    known = {source.source: source for source in last}
    return tuple(_remembering(known.get(source.source), source) for source in offered)


def _remembering(last: SourceIdentity | None, offered: SourceIdentity) -> SourceIdentity:
    if last is None:
        return offered
    topics = last.kind is SourceKind.KAFKA and offered.identity is None
    files = last.kind is offered.kind is SourceKind.FILES and not _says_directory(offered)
    return replace(offered, identity=last.identity) if topics or files else offered


def same_origins(one: tuple[SourceIdentity, ...], other: tuple[SourceIdentity, ...]) -> bool:
    """Whether ``other`` has every source of ``one``, in order and with its identity. It may have more, by name."""
    known, offered = [source.source for source in one], [source.source for source in other]
    named = all(not source.isdigit() for source in offered)
    if known != offered and not (named and [source for source in offered if source in known] == known):
        return False
    now = {source.source: source for source in other}
    return all(_same_origin(source, now[source.source]) for source in one)


def same_inputs(one: tuple[SourceIdentity, ...], other: tuple[SourceIdentity, ...]) -> bool:
    """Whether a replay reads the sources, and of file sources the files, that a recorded epoch was read from."""
    was, now = ([(source.source, source.inputs) for source in sources] for sources in (one, other))
    return was == now and same_origins(one, other)


def name_origins(sources: tuple[SourceIdentity, ...]) -> str:
    """Source identities for a sentence."""
    return ", ".join(f"{source.source}={source.identity or 'unnamed'}" for source in sources) or "none"
