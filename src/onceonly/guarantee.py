"""Derives what is promised from sink, plan and source, in sentences: the text behind ``.explain()``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.facts import Adopt
from onceonly.protocol import Sink
from onceonly.sources import FILES

if TYPE_CHECKING:
    from onceonly.engine import Plan


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What holds for one sink.

    Attributes:
        promise: one sentence.
        reasons: why it holds, and what readers have to do.
        weakened_by: what would make it less.
    """

    promise: str
    reasons: tuple[str, ...]
    weakened_by: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole report."""
        lines = [self.promise, *(f"  because  {reason}" for reason in self.reasons)]
        return "\n".join([*lines, *(f"  unless   {danger}" for danger in self.weakened_by)])


def explain(sinks: Sequence[Sink], plan: Plan | None, adopt: Adopt, *, staged: bool) -> str:
    """The reports of all sinks of a pipeline; ``staged``: whether epochs are written to files first."""
    reports = [derive(sink, plan, adopt).text for sink in sinks]
    if len(sinks) > 1:
        reports.append(
            "All sinks get the same bytes: each epoch is staged once and committed to them one after the other.\n"
            "  to readers: for a moment some sinks show an epoch that others do not show yet"
        )
    elif staged:
        reports.append("Each epoch is staged first, and committed from there: it need not fit into the driver.")
    return "\n".join(reports)


def derive(sink: Sink, plan: Plan | None, adopt: Adopt) -> Guarantee:
    """The guarantee of one sink; ``plan`` is ``None`` until the query has started."""
    able = sink.capabilities
    rows = "every row of the stream once" if able.append_only else "the effect of every row of the stream once"
    reasons = [
        f"rows and marker are committed together ({able.committer})",
        "each opening fences older drivers out before it reads where the sink stands",
        f"to readers: {able.readers}",
    ]
    return Guarantee(
        f"{sink.id} holds {rows}.", (*reasons, *_of_plan(plan)), (*_dangers(sink, adopt), *_of_source(plan))
    )


def _of_plan(plan: Plan | None) -> tuple[str, ...]:
    if plan is None:
        return ("the plan is looked at when the query starts",)
    if not plan.stateful:
        return ("the plan keeps no state: a batch that is already written is skipped without being run",)
    reasons = (
        "the plan keeps state: a batch that is already written is run again into nothing, and its digest compared",
    )
    if plan.float_columns:
        left_out = ", ".join(sorted(plan.float_columns))
        return (*reasons, f"the digest leaves out float aggregates: {left_out} (W702)")
    return reasons


def _dangers(sink: Sink, adopt: Adopt) -> tuple[str, ...]:
    dangers: list[str] = []
    if not sink.capabilities.append_only:
        dangers.append("somebody else writes the same keys; audit cannot recount rows that are not only added")
    elif not sink.capabilities.recountable:
        dangers.append("rows carry no epoch, so audit cannot recount them")
    if adopt is not None:
        dangers.append("adopt= took over rows whose origin is not known")
    return tuple(dangers)


def _of_source(plan: Plan | None) -> tuple[str, ...]:
    if plan is None:
        return ()
    dangers: list[str] = []
    if any(source.reads_files for source in plan.sources):
        dangers.append(
            f"input files of a pending batch vanish (refused, E214); {FILES} offsets mean nothing in another checkpoint"
        )
    if any("TextSocket" in source.kind for source in plan.sources):
        dangers.append("the socket source cannot replay: a batch lost in a crash is gone before it reaches the sink")
    return tuple(dangers)
