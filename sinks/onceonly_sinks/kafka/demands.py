"""What a topic demands of the values of records, as rules. Pure.

Left to the brokers: how large a record may be, which they judge as it comes out of compression, and their own clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceonly.protocol.row_rules import AfterEpoch, Between, Named, NotNull, Rule

_LAST_PARTITION = 2**31 - 1


def of(present: frozenset[str], partitions: Sequence[int], *, compacted: bool) -> tuple[Rule, ...]:
    """The rules for a batch.

    Args:
        present: its optional columns; ``topic`` only where no topic was given.
        partitions: of the topic that was given; none where it is not known how many there are.
        compacted: whether that topic keeps rows by key.
    """
    most = max(partitions, default=_LAST_PARTITION)
    rules = {
        "topic": [Rule("topic", NotNull())],
        "key": [Rule("key", NotNull())] if compacted else [],
        "partition": [Rule("partition", Between(0, most))],
        "timestamp": [Rule("timestamp", AfterEpoch())],
        "headers": [Rule("headers", NotNull(), each=True), Rule("headers", Named("key"), each=True)],
    }
    return tuple(rule for name, said in rules.items() if name in present for rule in said)
