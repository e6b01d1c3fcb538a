"""The wait for transactions whose end is hidden: decided, but not visible; or open, and not known to be another's."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from onceonly_sinks.kafka.cluster import Cluster, End, Place
from onceonly_sinks.kafka.ownership import Held, untold

log = logging.getLogger(__name__)

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_UNUSUAL = 0.2
"""Seconds after which it is asked whose transaction it is: ends of our own show within milliseconds."""

_LONG = 1.0
"""Seconds after which the wait is told, once."""


class Hidden(Exception):
    """A transaction's end is not visible: it is still open, or its end was lost in the brokers.

    Attributes:
        places: ``{(topic, partition): (last stable offset, offset that it should have passed)}``.
    """

    def __init__(self, places: Mapping[Place, tuple[int, int]]) -> None:
        self.places = places
        (topic, partition), (stable, wanted) = min(places.items())
        self.topic, self.partition, self.stable = topic, partition, stable
        super().__init__(f"{topic}/{partition} is readable up to {stable}, and written up to {wanted}")


def settled(cluster: Cluster, places: Iterable[Place], bound: float, held: Held = untold) -> dict[Place, End]:
    """Wait until all that is in these partitions now is decided and visible; their ends as they were before the wait.

    Args:
        cluster: who is asked.
        places: the partitions.
        bound: seconds.
        held: tells which partitions hold an open transaction of ours; those of others are not waited for.

    Raises:
        Hidden: not within ``bound`` seconds.
        KafkaException: no answer.
    """
    ends = cluster.ends(places)
    settle(cluster, {place: end.high for place, end in ends.items()}, bound, ends, held)
    return ends


def settle(
    cluster: Cluster,
    targets: Mapping[Place, int],
    bound: float,
    known: Mapping[Place, End] | None = None,
    held: Held = untold,
) -> dict[Place, End]:
    """Wait until every transaction that began below these offsets is decided and its end visible; the ends after that.

    Args:
        cluster: who is asked.
        targets: offsets that the last stable ones must reach.
        bound: seconds.
        known: ends that were asked for already; the first look is saved.
        held: tells which partitions hold an open transaction of ours; those of others are not waited for.

    Raises:
        Hidden: not within ``bound`` seconds.
        KafkaException: no answer.
    """
    begun, pause, asked, told = time.monotonic(), _SHORTEST_PAUSE, 0.0, False
    ends, wanted = cluster.ends(targets) if known is None else dict(known), dict(targets)
    while behind := {place: (ends[place].stable, high) for place, high in wanted.items() if ends[place].stable < high}:
        waited = time.monotonic() - begun
        if waited >= bound:
            raise Hidden(behind)
        long = waited > _LONG and not told
        if long or waited > max(_UNUSUAL, 2 * asked):
            asked, told, ours = waited, told or long, held(behind)
            _tell(logging.WARNING if long else logging.DEBUG, cluster.sink, behind, ours)
            if ours is not None:
                wanted = {place: high for place, high in wanted.items() if place not in behind or place in ours}
            continue
        time.sleep(min(pause, bound - waited))
        pause = min(pause * 2, _LONGEST_PAUSE)
        ends |= cluster.ends(behind)
    return ends


def _tell(level: int, sink: str, behind: Iterable[Place], ours: Iterable[Place] | None) -> None:
    if ours is None:
        log.log(level, "%s: open transactions in %s, whose they are cannot be told here: waiting", sink, sorted(behind))
    else:
        log.log(level, "%s: open transactions in %s, of ours in %s", sink, sorted(behind), sorted(ours))
