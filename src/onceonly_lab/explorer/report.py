"""What a search found, in words for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onceonly_lab.explorer.found import Found, numbered
from onceonly_lab.model.world import Bound


def described(bound: Bound) -> str:
    """A bound in one sentence."""
    parts = [
        f"{len(bound.kinds)} sinks ({', '.join(bound.sinks)})",
        f"{bound.records} records in batches of 1 to {bound.longest}",
        f"{bound.drivers} drivers, {'one after the other' if bound.alone else 'two alive at once'}",
        f"{bound.unknowns} lost answer{'s' if bound.unknowns != 1 else ''}",
    ]
    if bound.ledgers:
        parts.append("the ledger lost once")
    if bound.damages:
        parts.append(f"the checkpoint once {' or '.join(damage.value for damage in bound.damages)}")
    parts += _source(bound)
    return "; ".join([*parts, *(f"rule off: {rule.value}" for rule in sorted(bound.off, key=lambda one: one.name))])


def _source(bound: Bound) -> Iterator[str]:
    source = bound.source
    if source.files:
        yield "a directory of files" + (", of which one is lost" if bound.loses_files else "")
    if source.begins:
        yield "the source says where it begins"
    if source.stateful:
        yield "the plan keeps state"
    if bound.trims:
        yield "rows of recorded epochs are left out"
    if len(bound.programs) > 1:
        yield " or ".join(f"the program {program.value}" for program in bound.programs)
    if bound.harms:
        yield f"a sink once {' or '.join(harm.value for harm in bound.harms)}"
    if bound.prunes:
        yield "the ledger is pruned instead of lost"
    if bound.leaves_out:
        yield "the program's call leaves a sink out"
    if bound.meanwhile:
        befalls = " or ".join(harm.value for harm in bound.meanwhile)
        yield f"before a command is obeyed another sink may be {befalls}"
    if bound.cuts:
        yield "a command may be killed in its middle"
    if bound.obeys:
        yield f"an operator obeys up to {bound.obeys} printed commands"
    if bound.stages:
        yield "one sink is staged, too"


def lines(found: Found) -> Iterator[str]:
    """A report, line by line."""
    yield f"bound: {described(found.bound)}"
    yield (
        f"{found.states:,} states ({found.shared:,} of what outlives drivers), {found.transitions:,} moves, "
        f"depth {found.depth}, {found.seconds:.1f} s of processor, {found.rate:,} states/s"
    )
    if found.violation is not None:
        yield f"{found.violation.name}: {found.violation.words}; the shortest way there:"
        yield from numbered(found.story)
    elif found.complete:
        yield "complete: every interleaving, crash and lost answer within the bound; no invariant is violated"
    else:
        yield "incomplete: stopped at its time limit; no violation so far"


def document(name: str, found: Found) -> dict[str, Any]:
    """The same as values."""
    return {
        "bound": name,
        "described": described(found.bound),
        "states": found.states,
        "moves": found.transitions,
        "depth": found.depth,
        "seconds": found.seconds,
        "complete": found.complete,
        "anomaly": found.violation and str(found.violation.name),
        "story": list(found.story),
    }
