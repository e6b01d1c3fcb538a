"""Rule over the code versions that wrote epochs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, found
from onceonly.audit.sink_history import SinkHistory

_SHOWN = 8
"""How many of the newest ranges of epochs are told one by one."""


def code_changed(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A183: more than one code version wrote the epochs, as far as they record it."""
    records = facts.ledger.records if facts.ledger else ()
    noted = [(record.epoch.number, record.epoch.lineage.code) for record in records if record.epoch.lineage]
    ranges = [
        (code.text, [number for number, _ in those])
        for code, those in groupby((one for one in noted if one[1].known), lambda one: one[1])
    ]
    if len(ranges) < 2:
        return
    told = [f"epochs {numbers[0]}..{numbers[-1]}: {text}" for text, numbers in ranges[-_SHOWN:]]
    earlier = [f"{len(ranges) - _SHOWN} ranges before"] if len(ranges) > _SHOWN else []
    yield found("A183", facts.pipeline, None, ranges[-1][1][0], "; ".join([*earlier, *told]))
