"""Event times of simulated epochs.

They are functions of an epoch's rows, so that no world becomes two.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from onceonly.machine.event_time import EventTimeConfig
from onceonly.protocol.row_times import RowTimes, TimedEpoch
from onceonly_checkpoints.digests import Digest
from onceonly_lab.model.parts import records_in

BY_RECORDS = EventTimeConfig("function", "integer")
"""The unit is the number of a record."""


def times_of(content: Digest) -> RowTimes:
    """What is said once these rows are written: that all records before the last of them are."""
    records = records_in(content)
    return RowTimes(callback_time=records.bit_length() or None)


def drawn(seed: int) -> Callable[[TimedEpoch], int]:
    """A word for each slice that a seed draws, as often as not less than the one before.

    Args:
        seed: it says the same for the same slice, in whichever start of the query.
    """
    return lambda epoch: random.Random(f"{seed} {epoch.slice.end.entries}").randint(0, _MOST)


_MOST = 20
