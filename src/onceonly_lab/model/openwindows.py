"""Windows of the simulated world, which never close.

Their state is a running sum of the sealed rows.

It is kept where a catalogue of keys is: what the keeper's epochs have brought, committed in their transactions and
replaced with them. So it needs no place of its own, and no world becomes two. What windows, triggers and panes are is
for ``tests/panes``; here only where their state comes from, and with what it is committed.
"""

from __future__ import annotations

from onceonly.machine.division_rules import WindowsConfig
from onceonly.protocol.batch import Bound
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_lab.model.parts import Records, records_in

WINDOWS = WindowsConfig("a running sum", "a running sum")


def behind(to: Bound, recalled: Records, brought: Digest) -> EpochWindows:
    """What an epoch says of its windows.

    Args:
        to: what they go on from, by what the epoch before says.
        recalled: records that the keeper's state holds.
        brought: rows of the epoch.
    """
    open_ = Digest(recalled.bit_count() + brought.rows, recalled | records_in(brought))
    return EpochWindows(WINDOWS.definition, WINDOWS.meaning, open_, brought.rows, 0, to.clock, to.since)
