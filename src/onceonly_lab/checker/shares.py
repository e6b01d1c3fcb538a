"""Compute each sink's share of an epoch.

Which rows are bad, and which an output wants, may change from call to call, and is decided for an epoch by the staging
that its commit names. A commit tells all rows of its epoch; here it is left those that are for its sink, so that every
other rule judges a share as it judges a whole epoch.
"""

from __future__ import annotations

from dataclasses import replace

from onceonly_lab.checker.case import Call, Case, Commit, grouped_as
from onceonly_lab.history import BAD, Kind, Op


def shared_out(case: Case) -> Case:
    """The same case, each commit with the rows that are for its sink; as it is where all sinks get all rows."""
    if not any(call.said.outputs for call in case.computed):
        return case
    return replace(case, commits=grouped_as(case.commits, lambda commit: for_sink(case, commit, commit.sink)))


def for_sink(case: Case, commit: Commit, sink: str) -> Commit:
    """A commit as it would bring its epoch to a sink."""
    stage = _staging(case, commit)
    if commit.rows is None or stage is None or not stage.said.outputs:
        return commit
    rows, parts = commit.epochs_rows, {part.output: frozenset(part.rows) for part in stage.said.outputs}
    bad = rows & parts.get(BAD, frozenset[str]())
    if output_of(case, sink) == BAD:
        return replace(commit, rows=bad, bad=frozenset(), unwanted=rows - bad, divided=True)
    output_rows = (rows - bad) & parts.get(output_of(case, sink), rows)
    return replace(commit, rows=output_rows, bad=bad, unwanted=rows - bad - output_rows, divided=True)


def output_of(case: Case, sink: str) -> str:
    """The output that a sink gets; empty: all good rows."""
    return next((promise.output for promise in case.header.sinks if promise.sink == sink), "")


def _staging(case: Case, commit: Commit) -> Call | None:
    """The staging that a commit names; of rows that lie in a driver's memory the driver's last one before."""
    if (manifest := commit.call.said.manifest) is not None:
        return case.stages.get(manifest)
    ours = (
        call
        for call in reversed(case.computed)
        if call.said.op is Op.STAGE and call.outcome is not Kind.FAIL and call.who == commit.call.who
    )
    return next((call for call in ours if call.said.epoch == commit.epoch and call.at < commit.at), None)
