"""Records of a topic by the epoch that brought them: committed ones, between the offsets that the markers name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onceonly.protocol.capabilities import Span
from onceonly_sinks.kafka import read
from onceonly_sinks.kafka.marker_reader import scan
from onceonly_sinks.kafka.producer import Destination, places


def of(destination: Destination, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """The records of these epochs that retention has left, partition by partition, each as ``key`` and ``value``.

    ``None`` where a topic was made anew: offsets of the old one say nothing of it.

    Raises:
        KafkaException: no answer.
    """
    written = read.epochs(destination, span[0] - 1)
    meant = [one for one in written if one.marker.epoch.number <= span[1]]
    if not meant:
        return iter(())
    topics = destination.cluster.topics(meant[-1].topics)
    if any(name not in topics or topics[name].id != id_ for name, id_ in meant[-1].topics.items()):
        return None
    ranges = {place: read.ranges_of(meant, place) for place in places(topics)}
    return _records(destination, {place: found for place, found in ranges.items() if found})


def _records(
    destination: Destination, ranges: Mapping[tuple[str, int], list[tuple[int, int, int]]]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    low, stable = destination.cluster.low(ranges), destination.cluster.stable(ranges)
    for place, found in ranges.items():
        start, end = max(low[place], found[0][0]), min(stable[place], found[-1][1])
        for message in scan(destination.options, place, start, end, destination.patience):
            if epoch := read.epoch_at(found, message.offset() or 0):
                yield epoch, {"key": message.key(), "value": message.value()}
