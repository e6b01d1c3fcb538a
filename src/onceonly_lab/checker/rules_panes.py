"""Checker rules for window state in markers."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly_lab.checker.case import Commit, Read
from onceonly_lab.checker.finding import Anomaly, Finding, counted, found
from onceonly_lab.checker.reading import Reading
from onceonly_lab.checker.shares import output_of
from onceonly_lab.history import BAD


def misfilled(reading: Reading) -> Iterator[Finding]:
    """Windows that never close hold each good row of their series once, and none of a later epoch.

    Two numbers are compared that nobody who writes could have from the other: what a marker says of the state behind
    it, and the rows of the input in the slices of the epochs up to it.
    """
    for sink in reading.case.sinks:
        for read in reading.case.seen(sink):
            yield from _in_one(reading, read)


def _in_one(reading: Reading, read: Read) -> Iterator[Finding]:
    brought = 0
    for at, (epoch, mark) in enumerate(sorted((read.markers or {}).items()), start=1):
        commit = reading.explains(read.sink, epoch)
        if commit is None or epoch != at:
            return  # of an epoch that is not there, or that nobody is known to have sent, no one knows the rows
        brought = len(commit.epochs_rows - _set_aside(reading, commit)) + (0 if commit.call.said.replaces else brought)
        if mark.windows is not None and mark.windows != brought:
            what = f"its windows hold {counted(mark.windows, 'row')}, and {counted(brought, 'row')} came"
            yield found(Anomaly.PANE, read.sink, epoch, what, lines=(*commit.call.lines, read.at))


def _set_aside(reading: Reading, commit: Commit) -> frozenset[str]:
    """Bad rows of the epoch: in a quarantine its own."""
    return (commit.rows or frozenset()) if output_of(reading.case, commit.sink) == BAD else commit.bad
