"""Operator actions without Spark: resolve, adopt, drop, refresh, reset.

Each decision is an epoch of its own, see ``operator_epoch``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.machine import acceptance, event_time, opening
from onceonly.machine.event_time import PreviousTime
from onceonly.machine.facts import OpeningFacts, Refusal
from onceonly.machine.state import State
from onceonly.protocol import DetectsChanges, ReplacesRows, Sink
from onceonly.runtime import operator_epoch, remedies
from onceonly.runtime import sink_refusals as refresh_rules
from onceonly_checkpoints.epoch import Epoch, Lineage, ResumePoint
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import Event, EventKind, Ledger
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceOffsets


@dataclass(frozen=True, slots=True)
class Resolution:
    """Result of ``recover resolve``, which fences older drivers out: common epoch, or 0, our generation, findings."""

    epoch: int
    generation: int
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch of a job that is taken over."""

    written: Slice
    lineage: Lineage


def resolve(sinks: Sequence[Sink], ledger: Ledger, pipeline: str) -> Resolution:
    """Open a pipeline without a batch: fence older drivers out, settle in-doubt epochs, update the ledger.

    A sink that lacks the newest epoch of the others gets it from the staged files. This includes a sink that held the
    epoch and was restored to an older state.

    Raises:
        OnceOnlyError: as a restart of the query.
    """
    state = operator_epoch.opened(sinks, ledger, pipeline, heals=True)
    number = state.opening.last.number if state.opening.last else 0
    generation = state.opening.fence.generation
    lines = [
        f"every sink holds epoch {number}; generation {generation} is installed, older drivers can write nothing more"
    ]
    intent = ledger.intent(pipeline, number + 1)
    if intent is not None:
        lines.append(
            f"epoch {number + 1} was begun by generation {intent.fence.generation} and left no trace in any sink"
        )
    ledger.note(Event(pipeline, EventKind.RESOLVED, lines[0], number, generation))
    return Resolution(number, generation, tuple(lines))


def adopt(
    sinks: Sequence[Sink], ledger: Ledger, pipeline: str, accepted: Adoption, *, start: SourceOffsets | None = None
) -> Epoch | None:
    """Accept a refusal by an epoch without rows. The position moves only if that is the meaning of the kind.

    ``start`` is the position of the next batch, for the kind ``start``.

    Returns:
        The adoption, or ``None`` if the sinks still hold what was to be given up.

    Raises:
        OnceOnlyError: E110 if ``accepted`` names another stop or another range of the source than the newest refusal,
            or less than is lost by now, or if the position is unknown. E228 if a sink is not proven to hold its rows.
            Also errors of the opening.
    """
    stop = remedies.last(ledger, pipeline)
    state = operator_epoch.opened(sinks, ledger, pipeline, accepted=accepted)
    is_covered = stop is not None and acceptance.covers(accepted, stop)
    if accepted.sinks and not _needed(state, accepted):
        return None
    if accepted.kind is AdoptionKind.SAME_DATA:
        _demand_same_data(sinks, ledger, state, accepted)
    elif not accepted.sinks and accepted.kind is not AdoptionKind.START and not is_covered:
        raise not_applicable(pipeline, accepted.kind)
    base = state.opening.last
    refuse_moving(pipeline, ledger, accepted.kind, base)
    if accepted.sinks and (base is None or base.number < accepted.last):
        base = operator_epoch.recorded(ledger, pipeline, accepted.last)
        if base is None and accepted.last and any(sink.id not in accepted.sinks for sink in sinks):
            raise _gone_elsewhere(pipeline, accepted)
    if accepted.offsets and accepted.offsets != _named(accepted.kind, stop, base):
        raise another_range(pipeline, accepted.kind)
    end = start or target(accepted, base, stop)
    if end is None:
        raise nothing_to_adopt(pipeline)
    epoch = _adopt(state, sinks, ledger, accepted, end=end, base=base)
    if stop and stop.then and stop.then.head == epoch.number and is_covered:
        remedies.remember(ledger, pipeline, state.opening.fence, stop.then)
    return epoch


def _named(kind: AdoptionKind, stop: acceptance.Stop | None, base: Epoch | None) -> Slice | None:
    adoption = acceptance.applicable(kind, stop, base.written.end if base else None)
    return adoption.offsets if adoption else None


def another_range(pipeline: str, kind: AdoptionKind) -> OnceOnlyError:
    """Error if the newest refusal names other offsets than the operator saw."""
    return misused(
        f'--{kind} was decided about another range than the one that stops pipeline "{pipeline}" now.',
        "the query was started again while the plan was read, and was refused at other offsets",
        "stop what starts it again; run the command once more without --yes and read its plan",
    )


def _needed(state: State, accepted: Adoption) -> bool:
    """Return whether the pipeline would be refused without ``accepted``, or passed just now because of it."""
    if accepted.kind is AdoptionKind.ACCEPT_CHANGE and state.opening.healed:
        return True  # what was committed above a change settles it for the sink, and nobody would be told again
    head = state.opening.head.epoch if state.opening.head else None
    facts = OpeningFacts(state.job.pipeline, state.opening.readings, head)
    return state.opening.lost > 0 or isinstance(opening.decide_opening(facts), Refusal)


def _demand_same_data(sinks: Sequence[Sink], ledger: Ledger, state: State, accepted: Adoption) -> None:
    """Check that a sink under a new identity holds the newest epoch, its chain, and the rows of each epoch."""
    for sink in sinks:
        if sink.id in accepted.sinks and (reason := _differs(sink, ledger, state)):
            raise refuse("E228", sink=sink.id, pipeline=state.job.pipeline, reason=reason, ledger=ledger.address)


def _differs(sink: Sink, ledger: Ledger, state: State) -> str:
    (reading,) = (candidate for candidate in state.opening.readings if candidate.sink == sink.id)
    marker, head = reading.position.marker, ledger.head(state.job.pipeline)
    if marker is None or head is None or marker.epoch.chain != head.epoch.chain:
        return "its newest epoch is not the one that the ledger knows"
    counted = sink.recount()
    if counted is None:
        # Markers that came with the rows prove them. Those that stayed prove nothing of rows that belong to no epoch.
        made_anew = "it was made anew beside its markers, and its rows belong to no epoch"
        return "" if opening.is_moved(reading) else made_anew
    removed = sink.tolerated_changes().removed if isinstance(sink, DetectsChanges) else {}
    expired = sink.expired_rows() if isinstance(sink, ReplacesRows) else None
    first = max(dict(head.epoch.sinks).get(sink.id, 1), head.epoch.series)
    for record in ledger.epochs(state.job.pipeline, first):
        number, brought = record.epoch.number, record.epoch.digest_in(sink.id).rows
        gone = expired.gone(record.epoch, brought) if expired else 0
        held_rows = counted.get(number, 0) + removed.get(number, 0) + gone
        if held_rows != brought:
            return f"it holds {held_rows} of the {brought} rows of epoch {record.epoch.number}"
    return ""


def take_over(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, batch: LastBatch, accepted: Adoption) -> Epoch:
    """Begin a pipeline at an older job's checkpoint. Epoch 1, without rows, is that job's last batch.

    Only the checkpoint of ``batch`` may continue from here. ``accepted`` has the kind ``from-checkpoint``. Raises E110
    if the pipeline has epochs already. Also errors of the opening.
    """
    state = operator_epoch.opened(sinks, ledger, pipeline, accepted=accepted)
    if newest := max(reading.position.epoch for reading in state.opening.readings):
        raise begun_already(pipeline, newest)
    begun = operator_epoch.decision(
        state, batch.written, accepted, resume_point=ResumePoint(batch.lineage), lineage=batch.lineage
    )
    return operator_epoch.write(state, sinks, ledger, begun)


def begun_already(pipeline: str, newest: int) -> OnceOnlyError:
    """Error for a new pipeline whose name has epochs."""
    return misused(
        f'Pipeline "{pipeline}" is at epoch {newest} already.',
        "the name is that of a running pipeline, or the takeover was done before",
        f"onceonly epochs list --query {shlex.quote(pipeline)}; a new pipeline needs its own name",
    )


def drop_sink(
    sinks: Sequence[Sink],
    ledger: Ledger,
    pipeline: str,
    accepted: Adoption,
    *,
    going: Sink | None = None,
    shown: int | None = None,
) -> Epoch:
    """Take a sink out of a pipeline by an epoch without rows in all others, and return that epoch.

    ``accepted`` has the kind ``drop-sink``, and names the sink and its epochs that are given up. ``going`` is the sink,
    if it first gets the epoch that it lacks. ``None`` leaves it untouched. ``shown`` is the newest epoch in the plan
    that the operator saw. ``None`` skips this check. Raises E110 if there is no epoch yet, or the pipeline went on.
    E219 if the sink cannot be brought to the epoch. Also errors of the opening.
    """
    if going is not None:
        operator_epoch.opened((*sinks, going), ledger, pipeline, heals=True)
    (sink,) = accepted.sinks
    state = operator_epoch.opened(sinks, ledger, pipeline, dropped=sink)
    if state.opening.last is None:
        raise nothing_to_adopt(pipeline)
    if shown not in (None, state.opening.last.number):
        raise operator_epoch.went_on(pipeline, state.opening.last.number, shown or 0)
    return _adopt(state, sinks, ledger, accepted, end=state.opening.last.written.end, base=state.opening.last)


def refresh(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, accepted: Adoption) -> Epoch:
    """Let the next query that begins anew replace all rows. An epoch without rows permits it once.

    ``accepted`` has the kind ``replace-rows`` and names the epochs whose rows leave. Raises E110 if there is no epoch
    yet, or others than ``accepted`` names. E247 if a sink cannot replace. Also errors of the opening.
    """
    at_stake(sinks, pipeline)
    state = operator_epoch.opened(sinks, ledger, pipeline)
    last = state.opening.last
    if last is None:
        raise nothing_to_adopt(pipeline)
    if accepted.last != last.number:
        raise operator_epoch.went_on(pipeline, last.number, accepted.last)
    return _adopt(state, sinks, ledger, accepted, end=last.written.end, base=last)


def retire(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, accepted: Adoption) -> Epoch:
    """Stop waiting for a writer of a dataset, by an epoch without rows that notes the end of time.

    ``accepted`` has the kind ``retire-writer``. Raises E110 if no epoch notes an event time. E142 if its windows are
    open. Also errors of the opening.
    """
    state = operator_epoch.opened(sinks, ledger, pipeline)
    last = state.opening.last
    time = (
        event_time.retire_writer(PreviousTime(pipeline, last.number + 1, last, cut=state.opening.cut)) if last else None
    )
    if last is None or time is None:
        raise nothing_to_retire(pipeline)
    refuse_open_windows(pipeline, last)
    return _adopt(state, sinks, ledger, accepted, end=last.written.end, base=last, time=time)


def reset_panes(sinks: Sequence[Sink], ledger: Ledger, pipeline: str, accepted: Adoption) -> Epoch:
    """Give up all open windows, by an epoch without rows.

    State rows count no longer. Results that were written stay. ``accepted`` has the kind ``reset-panes``, and its last
    epoch is the one whose windows the operator saw. Raises E110 if no window is open, or the query went on since. Also
    errors of the opening.
    """
    state = operator_epoch.opened(sinks, ledger, pipeline)
    last = state.opening.last
    if last is None or last.windows is None or not last.windows.open.rows:
        raise nothing_to_reset(pipeline)
    if accepted.last != last.number:
        raise operator_epoch.went_on(pipeline, last.number, accepted.last)
    return _adopt(state, sinks, ledger, accepted, end=last.written.end, base=last)


def nothing_to_reset(pipeline: str) -> OnceOnlyError:
    """Error for a pipeline without open windows."""
    return misused(
        f'No window of "{pipeline}" is open, so there is nothing to give up.',
        "the name is another one, its query has no windows=, or they were given up already",
        f"see its newest epoch: onceonly epochs list --query {shlex.quote(pipeline)}",
    )


def refuse_open_windows(pipeline: str, last: Epoch) -> None:
    """Refuse to end a pipeline with open windows (E142): only the query's program can compute their results."""
    if last.windows is None or not last.windows.open.rows:
        return
    details = {"problem": f"retired, it would leave {last.windows.text} for good", "cause": "the pipeline ends early"}
    remedy = (
        "have a last run close them: event_time=EventTime(..., callback=drain), with drain of onceonly.windows; "
        "it ends there"
    )
    raise refuse("E142", pipeline=pipeline, next=remedy, **details)


def refuse_moving(pipeline: str, ledger: Ledger, kind: AdoptionKind, last: Epoch | None) -> None:
    """Refuse to move the position under open windows (E142): they would count rows twice or miss rows."""
    if kind not in operator_epoch.MOVING or last is None or last.windows is None or not last.windows.open.rows:
        return
    where = f"--query {shlex.quote(pipeline)} --ledger {shlex.quote(ledger.address)}"
    problem = f"--{kind} moves the position, and {last.windows.text}"
    cause = "rows that come again would be in these windows twice, and rows that are passed over would be missing"
    remedy = (
        f"give up the open windows: onceonly recover reset-windows {where} --accept-loss; then run this command again. "
        "Or keep these results, and give the query its own name, checkpoint and table: queryName(...)"
    )
    raise refuse("E142", pipeline=pipeline, problem=problem, cause=cause, next=remedy)


def at_stake(sinks: Sequence[Sink], pipeline: str) -> int:
    """Return the newest epoch whose rows a refresh would replace, without fencing anyone out.

    Raises E110 if there is no epoch yet. E247 if a sink cannot replace. Also errors of a sink.
    """
    for sink in sinks:
        sink.open(pipeline)
    newest = max((sink.look().epoch for sink in sinks), default=0)
    if not newest:
        raise nothing_to_adopt(pipeline)
    refresh_rules.demand(sinks, pipeline, (1, newest))
    return newest


def target(accepted: Adoption, last: Epoch | None, stop: acceptance.Stop | None) -> SourceOffsets | None:
    """Return the offsets to which an acceptance moves the position, or ``None`` if epoch and refusal lack them."""
    refused = stop.start if stop else None
    if accepted.kind in {AdoptionKind.ACCEPT_DUPLICATES, AdoptionKind.CONTINUE} or last is None:
        return refused
    skips = accepted.kind is AdoptionKind.ACCEPT_LOSS and stop is not None and stop.code in acceptance.GAPS
    return refused if skips and not accepted.sinks else last.written.end


def not_applicable(pipeline: str, kind: AdoptionKind) -> OnceOnlyError:
    """Error for an acceptance of another refusal than the newest."""
    return misused(
        f'Nothing that --{kind} accepts stops pipeline "{pipeline}".',
        "the query was not restarted since its last epoch, or it was refused for another reason",
        "restart the query; its message prints the command that applies",
    )


def _gone_elsewhere(pipeline: str, accepted: Adoption) -> OnceOnlyError:
    """Error if a sink that the acceptance does not name has lost the epoch too, and the ledger never recorded it."""
    return misused(
        f'Epoch {accepted.last} of pipeline "{pipeline}" is in none of its sinks any more.',
        f"a sink that --{accepted.kind} does not name was restored or replaced after the refusal",
        "restart the query; its message prints the command that applies",
    )


def nothing_to_adopt(pipeline: str) -> OnceOnlyError:
    """Error for a pipeline whose position is unknown."""
    return misused(
        f'Pipeline "{pipeline}" has no epoch yet, so its position is unknown and there is nothing to adopt.',
        "the name or the ledger is another one, or the query was not restarted since",
        "onceonly status; or give its position: --start OFFSETS",
    )


def nothing_to_retire(pipeline: str) -> OnceOnlyError:
    """Error for a pipeline that is no writer of a dataset."""
    return misused(
        f'No epoch of "{pipeline}" records event time, so no reader waits for it.',
        "the name is another one, or its query was given no event_time=",
        "name a writer of the dataset; another writer shows them: onceonly time show NAME",
    )


def _adopt(
    state: State,
    sinks: Sequence[Sink],
    ledger: Ledger,
    accepted: Adoption,
    *,
    end: SourceOffsets,
    base: Epoch | None,
    time: EpochTime | None = None,
) -> Epoch:
    head = ledger.head(state.job.pipeline)
    sources = head.epoch.sources if head else ()
    last = state.opening.last
    begin = last.written.end if last else SourceOffsets(tuple((source, None) for source in end.sources))
    base_sources = base.sources if base else sources
    resume_point = base.resume_point if base else ResumePoint()
    if base and resume_point.offered and end != base.written.end:
        # A checkpoint that is put back goes on behind the gap, too.
        resume_point = replace(resume_point, offered=Slice(end, end))
    moved = operator_epoch.decision(
        state, Slice(begin, end), accepted, sources=base_sources, resume_point=resume_point, base=base, time=time
    )
    return operator_epoch.write(state, sinks, ledger, moved, base)
