"""Rules for a pipeline's windows: continuation and open limits. Pure.

What a window is and when its pane is due is decided in :mod:`onceonly.windows`; here only what epochs say of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onceonly.errors import caution
from onceonly.machine.event_time import text
from onceonly.machine.facts import Happening, PreviousClock, Refusal
from onceonly.protocol.batch import AsOf, Bound
from onceonly_checkpoints.digests import LATE, STATE
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import END, EpochTime
from onceonly_checkpoints.epoch_windows import EpochWindows
from onceonly_checkpoints.ledger import EventKind

_SOON = 0.8
"""Share of the most windows from which on it is said that they get many."""


@dataclass(frozen=True, slots=True)
class WindowsConfig:
    """How a pipeline defines its windows: ``panes=``, as the machine takes it.

    Attributes:
        definition: fingerprint of all that was said.
        meaning: fingerprint of what may not change while the pipeline goes on.
        lateness: how long after its end a window takes rows, in the unit of time; ``END``: until nothing follows.
        most: windows that may be open behind an epoch; ``None`` for any number.
        overlap: whether a row can be in several windows, and so be counted as dropped several times.
        closing: ``definition``, had late rows been said to wait until their window closes; empty where all was said.
    """

    definition: str
    meaning: str
    lateness: int = 0
    most: int | None = None
    overlap: bool = False
    closing: str = ""


def refused(windows: WindowsConfig | None, pipeline: str, last: Epoch | None, *, begins: bool) -> Refusal | None:
    """Why the pipeline cannot go on so.

    Args:
        windows: what is asked for; ``None`` for rows as they come.
        pipeline: its name.
        last: its newest epoch; ``None`` before the first.
        begins: whether all rows of before leave with the epoch at hand.
    """
    if last is None or begins or (last.panes is None and (windows is None or _nothing_stands(last))):
        return None
    if windows is None or last.panes is None:
        return _other(pipeline, *_appeared(last))
    if windows.meaning != last.panes.meaning:
        said = f"key, values, time, window, accumulation or the form of rows is another one than in epoch {last.number}"
        return _other(pipeline, said, "the definition was changed under a running name", _ANEW)
    if windows.definition != last.panes.definition and last.panes.open.rows:
        said = f"trigger or lateness is another one, and {last.panes.text} behind epoch {last.number}"
        if windows.closing == last.panes.definition:
            return _other(pipeline, said, _UNSAID, _AS_BEFORE)
        return _other(pipeline, said, "the definition was changed while windows were open", _DRAINED)
    return None


def _appeared(last: Epoch) -> tuple[str, str, str]:
    """What is wrong where only one of the call and what stands has windows: the problem, its cause and the way on."""
    if last.panes is None:
        said = f"its rows up to epoch {last.number} were written as they came"
        return said, "panes= was added to a query that had written rows", _ANEW
    said = f"epoch {last.number} wrote panes, and panes= is missing"
    return said, "panes= was taken out of the call", "give the panes that it was started with"


_ANEW = "give the query a name, a checkpoint and a table of its own: queryName(...)"
_UNSAID = "late= is not said: these windows keep late rows until they close, and the default fires for each of them"
_AS_BEFORE = 'say it: trigger=AtWatermark(late="closing"), beside early= if it was given; the default once none is open'
_DRAINED = f"give what it was before, and change it once no window is open; or {_ANEW}"


def _nothing_stands(last: Epoch) -> bool:
    """Whether an operator's decision is all that there is: it says nothing of how rows are written."""
    return last.lineage is None and last.adoption is not None and not last.outputs


def _other(pipeline: str, problem: str, cause: str, way: str) -> Refusal:
    return Refusal.of("E142", pipeline=pipeline, problem=problem, cause=cause, next=way)


def bound(as_of: AsOf, last: Epoch | None, *, begins: bool, stood: PreviousClock | None = None) -> Bound:
    """What the windows of an epoch go on from.

    Args:
        as_of: the epoch.
        last: the one before it; ``None`` for the first.
        begins: whether all rows of before leave with it, state as well.
        stood: when a recorded epoch was whose successor begins windows here; ``None`` where none was.
    """
    if last is None or begins:
        return Bound(as_of, stood.clock, stood.noted) if stood else Bound(as_of)
    time = last.time.noted if last.time else None
    if last.panes is None:
        return Bound(as_of, noted_before=time)
    known = replace(as_of, series=max(as_of.series, last.panes.since))
    return Bound(known, last.panes.clock, time, last.panes.open, last.panes.since)


def before(epoch: Epoch, held: tuple[Epoch, ...]) -> Epoch | None:
    """The epoch before one, among those that sinks stand at; ``None`` where nobody stands at it.

    Args:
        epoch: that other sinks hold.
        held: newest epochs of the sinks.
    """
    return next((one for one in held if one.chain == epoch.previous_chain), None)


def computable(epoch: Epoch, healing: tuple[str, ...], past: Epoch | None) -> bool:
    """Whether an epoch that sinks are brought to can be computed again: from state that is as the epoch before left it.

    Args:
        epoch: that other sinks hold.
        healing: the sinks that lack it.
        past: the epoch before it, if some sink stands there.
    """
    if epoch.panes is None:
        return True
    keeps = any(sink in healing for output in epoch.outputs if output.name == STATE for sink in output.sinks)
    return keeps and (past is not None or epoch.replaces is not None or epoch.number == 1)


def too_many(windows: WindowsConfig | None, pipeline: str, number: int, panes: EpochWindows | None) -> Refusal | None:
    """Why an epoch must not be written for the windows that it would leave open."""
    if windows is None or windows.most is None or panes is None or panes.open.rows <= windows.most:
        return None
    said = {"pipeline": pipeline, "epoch": number, "windows": panes.open.rows, "most": windows.most}
    return Refusal.of("E527", **said)


def many(windows: WindowsConfig | None, pipeline: str, last: Epoch | None, epoch: Epoch) -> tuple[Happening, ...]:
    """That windows get many, said by the epoch that is the first to have so many."""
    if windows is None or windows.most is None or epoch.panes is None:
        return ()
    soon, stood = windows.most * _SOON, last.panes.open.rows if last and last.panes else 0
    if not stood < soon <= epoch.panes.open.rows:
        return ()
    said = {"epoch": epoch.number, "windows": epoch.panes.open.rows, "most": windows.most}
    return (Happening(EventKind.WARNED, str(caution("W705", pipeline=pipeline, **said)), epoch.number),)


def dropped(windows: WindowsConfig | None, pipeline: str, epoch: Epoch) -> tuple[Happening, ...]:
    """That rows of an epoch are in no window: a warning where nobody else keeps them."""
    panes = epoch.panes
    if windows is None or panes is None or not panes.dropped or epoch.adoption is not None:
        return ()
    rows = _of_rows(panes, overlap=windows.overlap)
    if kept := next((output for output in epoch.outputs if output.name == LATE), None):
        what = f"{rows} came to windows that were closed, or without a time: in {', '.join(kept.sinks)}"
        return (Happening(EventKind.BEHIND, what, epoch.number),)
    noted = text(epoch.time.noted, epoch.time.unit) if epoch.time and epoch.time.noted is not None else "nothing"
    said = {"pipeline": pipeline, "epoch": epoch.number, "rows": rows, "noted": noted}
    return (Happening(EventKind.WARNED, caution("W719", **said), epoch.number),)


def _of_rows(panes: EpochWindows, *, overlap: bool) -> str:
    if overlap:
        return f"{panes.dropped} times one of its {panes.rows} rows"
    if panes.dropped == panes.rows:
        return "its only row" if panes.rows == 1 else f"all of its {panes.rows} rows"
    return f"{panes.dropped} of its {panes.rows} rows"


def closed(time: EpochTime | None, windows: WindowsConfig | None) -> EpochTime | None:
    """The time of an epoch with windows, behind which nothing changes any more: no window there takes rows."""
    if time is None or windows is None or time.noted is None:
        return time
    if time.noted == END:  # nothing follows, however late a row may be
        return replace(time, closed=END)
    return time if windows.lateness == END else replace(time, closed=max(time.noted - windows.lateness, -END - 1))
