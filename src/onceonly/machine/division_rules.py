"""Rules for a pipeline's outputs and windows. Pure.

A good row is in each output once or not at all. A bad row is in output ``bad`` alone. A row whose id was seen before is
in no output. The action that stages the rows counts each kind by itself, so that a row which only some sinks lack is
noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceonly.errors import caution
from onceonly.machine.event_time import text
from onceonly.machine.facts import Happening, PreviousClock, Refusal
from onceonly.protocol.batch import AsOf, Bound
from onceonly_checkpoints.digests import (
    BAD,
    LATE,
    OF_WINDOWS,
    SEEN_IDS,
    STATE,
    WINDOWS,
    Digest,
    OutputDigest,
    bad_in,
    beside_windows,
    repeated_in,
)
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochTime, EpochWindows
from onceonly_checkpoints.ledger import EventKind

if TYPE_CHECKING:
    from onceonly.protocol.row_rules import BrokenCheck

ALWAYS = 100
"""Rows that a share lets through, however few rows there are: two bad ones of ten are no other source."""

MaxBad = int | float | None
"""How many rows of an epoch may be bad: a number, a share of them up to 1.0, or ``None`` for any number."""


def rows_in(digest: Digest, outputs: Sequence[OutputDigest]) -> int:
    """Count the rows of a batch, good and bad, without those whose id had been seen before."""
    bad = bad_in(tuple(outputs))
    return digest.rows + (bad.digest.rows if bad else 0)


def staged_in(digest: Digest, outputs: Sequence[OutputDigest]) -> int:
    """Count the staged rows of a batch: those of windows come on top of the divided ones."""
    made = (output.digest.rows for output in outputs if output.name in OF_WINDOWS)
    return rows_in(digest, outputs) + (sum(made) if beside_windows(outputs) else 0)


def unbalanced(
    digest: Digest, outputs: Sequence[OutputDigest], windows: EpochWindows | None = None
) -> tuple[str, int, int] | None:
    """Return the first output that does not add up: its name, its count, and the count of the batch.

    ``windows`` that stand beside other outputs took each good row, and no other.
    """
    if beside_windows(outputs):
        # Bad and repeated rows must reach no window, and windows must miss none of the others.
        if windows and windows.rows != digest.rows:
            return WINDOWS, windows.rows, digest.rows
        outputs = [output for output in outputs if output.name not in OF_WINDOWS]
    for output in outputs:
        claimed_rows = output.filtered if output.name == BAD else output.digest.rows + output.filtered
        if claimed_rows != digest.rows:
            return output.name, claimed_rows, digest.rows
    return _lost(digest, outputs)


def _lost(digest: Digest, outputs: Sequence[OutputDigest]) -> tuple[str, int, int] | None:
    """Compare the row counts if rows may be dropped as seen before."""
    offered = next((output.offered for output in outputs if output.name == SEEN_IDS), None)
    repeated = repeated_in(tuple(outputs))
    there = rows_in(digest, outputs) + (repeated.rows if repeated else 0)
    return None if offered in (None, there) else (SEEN_IDS, there, offered)


def allowed(max_bad: MaxBad, rows: int) -> int:
    """Return how many of these rows may be bad."""
    if max_bad is None:
        return rows
    if isinstance(max_bad, int):
        return max_bad
    return max(ALWAYS, int(max_bad * rows)) if max_bad else 0


def broken(pipeline: str, number: int, checks: Sequence[BrokenCheck]) -> Refusal | None:
    """Refuse an epoch whose rows break a check of the call."""
    first = next(iter(checks), None)
    if first is None:
        return None
    over = f'output "{first.check.of}"' if first.check.of else "its rows"
    return Refusal.of(
        "E531",
        pipeline=pipeline,
        epoch=number,
        check=first.check.name,
        over=over,
        text=first.text,
        next="set all rows of such an epoch aside, to look at them and write them later: "
        'quality=Quality(..., quarantine=sink, on_broken="quarantine")',
    )


def set_aside(epoch: Epoch) -> tuple[str, ...]:
    """Return the reasons for which all rows of a recorded epoch are bad, a broken check among them."""
    bad = None if epoch.digest.rows else epoch.bad
    return tuple(reason for reason, rows in bad.reasons if rows == bad.digest.rows) if bad else ()


# ---- Rules for a pipeline's windows: continuation and open limits. Pure.
#
# :mod:`onceonly.windows` decides on windows and their panes. This module uses only their record in epochs.


_SOON = 0.8
"""Share of the most windows from which on it is said that they get many."""


@dataclass(frozen=True, slots=True)
class WindowsConfig:
    """How a pipeline defines its windows: ``windows=``, as the machine takes it.

    Attributes:
        definition: fingerprint of the whole argument.
        meaning: fingerprint of the part that may not change while the pipeline continues.
        lateness: how long after its end a window takes rows, in the unit of time. ``END``: until the writer ends.
        most: limit for open windows after an epoch, or ``None`` for any number.
        overlap: whether a row can be in several windows, and so be counted as dropped several times.
        closing: ``definition`` as if late rows waited until their window closes. Empty if all was given.
    """

    definition: str
    meaning: str
    lateness: int = 0
    most: int | None = None
    overlap: bool = False
    closing: str = ""


def refused(windows: WindowsConfig | None, pipeline: str, last: Epoch | None, *, begins: bool) -> Refusal | None:
    """Refuse to continue if the windows differ from those of the newest epoch.

    Without ``windows``, rows are written as they come. ``begins`` is true if the epoch replaces all earlier rows.
    """
    if last is None or begins or (last.windows is None and (windows is None or _nothing_stands(last))):
        return None
    if windows is None or last.windows is None:
        return _other(pipeline, *_appeared(last))
    if windows.meaning != last.windows.result_definition:
        problem = (
            f"key, values, time, window, accumulation or the form of rows is another one than in epoch {last.number}"
        )
        return _other(pipeline, problem, "the definition was changed under a running name", _ANEW)
    if windows.definition != last.windows.definition and last.windows.open.rows:
        problem = f"trigger or lateness is another one, and {last.windows.text} behind epoch {last.number}"
        if windows.closing == last.windows.definition:
            return _other(pipeline, problem, _UNSAID, _AS_BEFORE)
        return _other(pipeline, problem, "the definition was changed while windows were open", _DRAINED)
    return None


def _appeared(last: Epoch) -> tuple[str, str, str]:
    """Return problem, cause and remedy if only one of the call and the newest epoch has windows."""
    if last.windows is None:
        problem = f"its rows up to epoch {last.number} were written as they came"
        return problem, "windows= was added to a query that had written rows", _ANEW
    problem = f"epoch {last.number} wrote window results, and windows= is missing"
    return problem, "windows= was taken out of the call", "give the windows= that it was started with"


_ANEW = "give the query its own name, checkpoint and table: queryName(...)"
_UNSAID = "late= is missing: these windows keep late rows until they close, and the default fires for each of them"
_AS_BEFORE = 'give it: trigger=AtWatermark(late="closing"), with early= if you gave it; the default once none is open'
_DRAINED = f"give the old one, and change it once no window is open; or {_ANEW}"


def _nothing_stands(last: Epoch) -> bool:
    """Whether there is only an operator's decision, which does not fix how rows are written."""
    return last.lineage is None and last.adoption is not None and not last.outputs


def _other(pipeline: str, problem: str, cause: str, remedy: str) -> Refusal:
    return Refusal.of("E142", pipeline=pipeline, problem=problem, cause=cause, next=remedy)


def bound(as_of: AsOf, last: Epoch | None, *, begins: bool, previous: PreviousClock | None = None) -> Bound:
    """Return the state that the windows of an epoch continue from.

    With ``begins`` the epoch replaces all earlier rows and their state. ``previous`` is the time before a rerun.
    """
    if last is None or begins:
        return Bound(as_of, previous.clock, previous.complete_until) if previous else Bound(as_of)
    time = last.time.complete_until if last.time else None
    if last.windows is None:
        return Bound(as_of, noted_before=time)
    moment = replace(as_of, series=max(as_of.series, last.windows.since))
    return Bound(moment, last.windows.clock, time, last.windows.open, last.windows.since)


def before(epoch: Epoch, held: tuple[Epoch, ...]) -> Epoch | None:
    """Return the epoch before one, among the newest epochs of the sinks, or ``None`` if no sink is at it."""
    return next((candidate for candidate in held if candidate.chain == epoch.previous_chain), None)


def computable(epoch: Epoch, healing: tuple[str, ...], past: Epoch | None) -> bool:
    """Whether a healed epoch can be computed again, from state as ``past`` left it, if some sink is at that one."""
    if epoch.windows is None:
        return True
    keeps = any(sink in healing for output in epoch.outputs if output.name == STATE for sink in output.sinks)
    return keeps and (past is not None or epoch.replaces is not None or epoch.number == 1)


def too_many(windows: WindowsConfig | None, pipeline: str, number: int, panes: EpochWindows | None) -> Refusal | None:
    """Refuse an epoch that would leave more windows open than allowed."""
    if windows is None or windows.most is None or panes is None or panes.open.rows <= windows.most:
        return None
    details = {"pipeline": pipeline, "epoch": number, "windows": panes.open.rows, "most": windows.most}
    return Refusal.of("E527", **details)


def many(windows: WindowsConfig | None, pipeline: str, last: Epoch | None, epoch: Epoch) -> tuple[Happening, ...]:
    """Warn at the first epoch that has nearly as many open windows as allowed."""
    if windows is None or windows.most is None or epoch.windows is None:
        return ()
    soon, previous_rows = windows.most * _SOON, last.windows.open.rows if last and last.windows else 0
    if not previous_rows < soon <= epoch.windows.open.rows:
        return ()
    details = {"epoch": epoch.number, "windows": epoch.windows.open.rows, "most": windows.most}
    return (Happening(EventKind.WARNED, str(caution("W705", pipeline=pipeline, **details)), epoch.number),)


def dropped(windows: WindowsConfig | None, pipeline: str, epoch: Epoch) -> tuple[Happening, ...]:
    """Note rows of an epoch that are in no window, as a warning if no sink keeps them."""
    panes = epoch.windows
    if windows is None or panes is None or not panes.dropped or epoch.adoption is not None:
        return ()
    rows = _of_rows(panes, overlap=windows.overlap)
    if late_output := next((output for output in epoch.outputs if output.name == LATE), None):
        what = f"{rows} came to windows that were closed, or without a time: in {', '.join(late_output.sinks)}"
        return (Happening(EventKind.BEHIND, what, epoch.number),)
    complete_until = (
        text(epoch.time.complete_until, epoch.time.unit)
        if epoch.time and epoch.time.complete_until is not None
        else "nothing"
    )
    details = {"pipeline": pipeline, "epoch": epoch.number, "rows": rows, "noted": complete_until}
    return (Happening(EventKind.WARNED, caution("W719", **details), epoch.number),)


def _of_rows(panes: EpochWindows, *, overlap: bool) -> str:
    if overlap:
        return f"{panes.dropped} times one of its {panes.rows} rows"
    if panes.dropped == panes.rows:
        return "its only row" if panes.rows == 1 else f"all of its {panes.rows} rows"
    return f"{panes.dropped} of its {panes.rows} rows"


def closed(time: EpochTime | None, windows: WindowsConfig | None) -> EpochTime | None:
    """Set the time before which nothing changes any more, because no window there takes rows."""
    if time is None or windows is None or time.complete_until is None:
        return time
    if time.complete_until == END:  # nothing follows, however late a row may be
        return replace(time, closed_until=END)
    return (
        time
        if windows.lateness == END
        else replace(time, closed_until=max(time.complete_until - windows.lateness, -END - 1))
    )
