"""The product's rules, which explorer and tests can turn off.

Each names the behaviour of a product without it.
"""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """One rule; the value says what is done where it is off."""

    OWNER = "sinks compare generations and not owners"
    HIGHEST = "the next generation is taken from the ledger, and sinks take a lower one"
    FENCE_FIRST = "positions are read before the fences are installed"
    FENCED_COMMIT = "a commit checks the fence first and writes then"
    CHAIN = "a commit does not look at the epoch that stands before it"
    MARKER_WITH_ROWS = "rows are committed first and their marker in a second transaction"
    ROWS_WITH_MARKER = "the marker is committed first and its rows in a second transaction"
    LOOKED_UP = "a lost answer is taken for a yes"
    ONE_COPY = "a sink sends a commit again when its answer was lost"
    LOCKED = "nobody waits for a COMMIT in flight before the head is read"
    ONE_HANDLE = "a Delta version is read on one handle and committed by path"
    CLAIM = "a Kafka fence is a new producer and no record"
    SETTLED = "Kafka is read without waiting for hidden commits"
    NEW_PRODUCER = "a Kafka producer lives on after a lost answer"
    STAGED = "each sink computes the batch for itself"
    WHOLE = "staged files are neither flushed nor checked nor counted"
    NAMED = "an epoch is healed from any manifest of its number"
    KEPT = "staged bytes end with the driver that staged them"
    SWEPT_LAST = "staging is swept before the fences stand"
    LINEAGE = "a batch is taken for a recorded epoch whose slice reads the same"
    REFUSED_ROW = "a row that a sink refuses is taken for a lost answer"
    HEALER_DELETES = "a sink that is healed gets the new rows of a full refresh and keeps the old ones"
    CLEARED_WITH_MARKER = "rows that a full refresh replaces leave in a transaction before the one that brings others"
    MARKERS_OUTPUT = "a sink that is behind gets the output of the call and not that of the marker"
    SET_ASIDE = "a sink without an output gets all rows that lie staged, the bad ones as well"
    TOGETHER = "sinks of one transaction commit one after the other, from the driver's memory"
    EVERY_HEAD = "a transaction of several sinks looks at fence and chain of the first one alone"
    SEEN_UNDER_FENCE = "the catalogue of keys is read before the fences are installed"
    SEEN_WITH_MARKER = "keys enter the catalogue in a transaction after the one of their marker"
    SEEN_BEFORE = "a batch that is computed again finds its own keys in the catalogue"
    SEEN_ANEW = "a full refresh leaves the catalogue of keys as it is"
    GOOD_IN_WINDOWS = "windows take the bad rows of a batch as well"
    TIME_WITH_MARKER = "what an epoch says of time is committed in a transaction after the one of its marker"
    TIME_COPIED = "a sink that is healed is told what is asked anew of time, and not what the marker says"
    EVERY_SINK = "a batch is returned to the engine after the first sink has committed"


ALL_KEPT: frozenset[Rule] = frozenset()
"""No rule is off: the product as it is."""
