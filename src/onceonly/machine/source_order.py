"""Compare source offsets and identities without knowing the source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum

from onceonly_checkpoints.model import SourceIdentity, SourceKind, SourceOffsets, canonical


class Order(Enum):
    """Order of two sets of offsets."""

    SAME = "same"
    BEFORE = "before"
    AFTER = "after"
    UNCLEAR = "unclear"


def portable(identity: SourceIdentity) -> bool:
    """Whether offsets of this source mean the same under another checkpoint."""
    return identity.kind not in (SourceKind.UNNAMED, SourceKind.FILES)


def numbers(text: str | None) -> dict[str, float] | None:
    """Return the numeric leaves of an offset by path (``/topic/partition``), or ``None`` for other text than JSON."""
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
    """Return the position of a Delta source's offset: the table's id, version, index. ``None`` for other offsets.

    Only positions in one table compare. Version and index compare as a pair: the first file of a version comes after
    the last one of the version before.
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


def _order_in_log(offset: str, other: str) -> Order | None:
    left, right = place_in_log(offset), place_in_log(other)
    if left is None or right is None:
        return None
    # A snapshot's files are numbered otherwise than those that a version added.
    if left[0] != right[0] or left == right or (left[1] == right[1] and _in_snapshot(offset) != _in_snapshot(other)):
        return Order.UNCLEAR
    return Order.BEFORE if left < right else Order.AFTER


def _order_of_one(offset: str | None, other: str | None) -> Order:
    if offset == other:
        return Order.SAME
    if offset is None:
        return Order.BEFORE
    if other is None:
        return Order.AFTER
    return _order_in_log(offset, other) or _order_by_numbers(offset, other)


def _order_by_numbers(offset: str, other: str) -> Order:
    left, right = numbers(offset), numbers(other)
    if left is None or right is None:
        return Order.UNCLEAR
    # Of what one of them alone names nothing is said: a topic that went or came is neither a gap nor an overlap.
    signs = {left[path] < right[path] for path in left.keys() & right if left[path] != right[path]}
    if signs == {True}:
        return Order.BEFORE
    return Order.AFTER if signs == {False} else Order.UNCLEAR


def order(offsets: SourceOffsets, other: SourceOffsets) -> Order:
    """Compare two sets of offsets by the numbers inside. For the text of a refusal only, never for a skip."""
    if offsets == other:
        return Order.SAME
    if offsets.sources != other.sources:
        return Order.UNCLEAR
    pairs = zip(offsets.entries, other.entries, strict=True)
    orders = {_order_of_one(left, right) for (_, left), (_, right) in pairs} - {Order.SAME}
    return orders.pop() if len(orders) == 1 else Order.UNCLEAR


def other_parts(end: SourceOffsets, start: SourceOffsets) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the topics and partitions that only one of two positions names.

    Those of ``end`` alone come first, then those of ``start`` alone, each with its offset, in words. ``None`` if a
    shared part has another offset, or if both name the same parts.
    """
    if end.sources != start.sources:
        return None
    gone, new = list[str](), list[str]()
    for (_, end_offset), (_, now) in zip(end.entries, start.entries, strict=True):
        before, after = _parts(end_offset), _parts(now)
        if end_offset != now and (
            not before or not after or any(before[at] != after[at] for at in before.keys() & after)
        ):
            return None
        gone += (f"{at} (read up to {before[at]})" for at in before.keys() - after)
        new += (f"{at} (from {after[at]} on)" for at in after.keys() - before)
    return (tuple(sorted(gone)), tuple(sorted(new))) if gone or new else None


def _parts(text: str | None) -> Mapping[str, int]:
    """Return offsets of Kafka by partition, in words. Empty for other offsets."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    topics = value.items() if isinstance(value, dict) else ()
    if not all(isinstance(numbers, dict) for _, numbers in topics):
        return {}
    return {f"partition {number} of {topic}": at for topic, numbers in topics for number, at in numbers.items()}


def counted(start: SourceOffsets, end: SourceOffsets, sources: tuple[SourceIdentity, ...]) -> int | None:
    """Count the offsets of Kafka between two positions: the records, except for transactions and compaction.

    ``None`` if another source counts otherwise, or a partition is named at one end only.
    """
    if not sources or not all(identity.kind is SourceKind.KAFKA for identity in sources):
        return None
    there, total = dict(end.entries), 0
    for source, text in start.entries:
        first, last = numbers(text), numbers(there.get(source))
        if not first or not last or first.keys() != last.keys():
            return None
        total += sum(int(last[path] - first[path]) for path in first)
    return total


def describe(offsets: SourceOffsets) -> str:
    """Format offsets for a sentence: one text, or ``source=text`` for several."""
    texts = [(source, "the beginning" if text is None else text) for source, text in offsets.entries]
    if len(texts) == 1:
        return texts[0][1]
    return ", ".join(f"{source}={text}" for source, text in texts) or "nothing"


def kafka_identity(cluster: str, topics: Mapping[str, str]) -> str:
    """Identity of a Kafka source."""
    return SourceKind.KAFKA.named(canonical({"cluster": cluster, "topics": dict(topics)}))


def _same_origin(source: SourceIdentity, other: SourceIdentity) -> bool:
    """Whether two identities can be the same. Brokers that cannot be asked contradict nothing."""
    if source.identity == other.identity:
        return True
    kinds = {source.kind, other.kind}
    if kinds == {SourceKind.FILES}:
        return not (_says_directory(source) and _says_directory(other))
    if not kinds <= {SourceKind.KAFKA, SourceKind.UNNAMED}:
        return False
    if SourceKind.UNNAMED in kinds:
        return True
    left, right = json.loads(source.name), json.loads(other.name)
    shared = left["topics"].keys() & right["topics"].keys()
    if left["topics"] and right["topics"] and not shared:
        return False
    return left["cluster"] == right["cluster"] and all(left["topics"][name] == right["topics"][name] for name in shared)


def read_of(target: str, sources: tuple[SourceIdentity, ...], end: SourceOffsets) -> tuple[str | None, ...] | None:
    """Return the offsets up to which a batch has read a target, one for each source that reads it.

    An offset is ``None`` if its source has not begun. Empty: no source reads the target. ``None``: brokers are silent.
    """
    offsets, target_identity = dict(end.entries), SourceIdentity("", target)
    reading_sources = [
        candidate.source
        for candidate in sources
        if candidate.identity is not None and _same_origin(target_identity, candidate)
    ]
    if not reading_sources and any(
        _may_read(candidate, target_identity, offsets.get(candidate.source)) for candidate in sources
    ):
        return None
    return tuple(offsets.get(source) for source in reading_sources)


def _may_read(source: SourceIdentity, target: SourceIdentity, offset: str | None) -> bool:
    """Whether a source without a name has offsets of the target's topics."""
    if source.identity is not None or target.kind is not SourceKind.KAFKA:
        return False
    topics, paths = json.loads(target.name)["topics"], numbers(offset) or {}
    return any(path.split("/")[1] in topics for path in paths if path)


def position_in(offset: str | None) -> int | str | None:
    """Return the position that an offset has passed: a version of a Delta table, or Kafka's offsets.

    An offset inside a version has not passed that version. One inside the first snapshot has passed nothing (``None``),
    because the versions of its files are unknown.
    """
    location = place_in_log(offset)
    if offset is None or location is None:
        return offset
    return None if _in_snapshot(offset) or not location[1] else location[1] - 1


def _says_directory(source: SourceIdentity) -> bool:
    """Whether a file source names its directory. On Spark Connect it cannot, so its files are compared."""
    return "[" in source.name


def carried(last: tuple[SourceIdentity, ...], offered: tuple[SourceIdentity, ...]) -> tuple[SourceIdentity, ...]:
    """Return the identities to record. If a source cannot be identified now, keep its former one for the next batch."""
    recorded = {source.source: source for source in last}
    return tuple(_remembering(recorded.get(source.source), source) for source in offered)


def _remembering(last: SourceIdentity | None, offered: SourceIdentity) -> SourceIdentity:
    if last is None:
        return offered
    topics = last.kind is SourceKind.KAFKA and offered.identity is None
    files = last.kind is offered.kind is SourceKind.FILES and not _says_directory(offered)
    return replace(offered, identity=last.identity) if topics or files else offered


def same_origins(recorded: tuple[SourceIdentity, ...], other: tuple[SourceIdentity, ...]) -> bool:
    """Whether ``other`` has every source of ``recorded``, in order and with its identity. It may have more, by name."""
    recorded_names, offered = [source.source for source in recorded], [source.source for source in other]
    named = all(not source.isdigit() for source in offered)
    if recorded_names != offered and not (
        named and [source for source in offered if source in recorded_names] == recorded_names
    ):
        return False
    now = {source.source: source for source in other}
    return all(_same_origin(source, now[source.source]) for source in recorded)


def same_inputs(recorded: tuple[SourceIdentity, ...], other: tuple[SourceIdentity, ...]) -> bool:
    """Whether a replay reads the sources, and for file sources the files, of a recorded epoch."""
    recorded_inputs, now = ([(source.source, source.inputs) for source in sources] for sources in (recorded, other))
    return recorded_inputs == now and same_origins(recorded, other)


def name_origins(sources: tuple[SourceIdentity, ...]) -> str:
    """Format source identities for a sentence."""
    return ", ".join(f"{source.source}={source.identity or 'unnamed'}" for source in sources) or "none"
