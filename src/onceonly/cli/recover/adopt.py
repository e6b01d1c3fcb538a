"""``onceonly recover adopt``: accept what stops a pipeline."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer

from onceonly.cli import records
from onceonly.cli.change import Change, because, carry_out, decided, plan_decision
from onceonly.cli.connect import Connection, connect, ids_and_addresses
from onceonly.cli.options import LedgerOption, NameArgument, NamedSinkOption, ReasonOption, SinkOption, YesOption
from onceonly.cli.output import say, talk
from onceonly.cli.recover import migrate
from onceonly.errors import OnceOnlyError
from onceonly.errors.options import misused
from onceonly.machine import acceptance, precheck
from onceonly.machine.acceptance import KINDS, Stop
from onceonly.machine.source_order import describe
from onceonly.protocol import DetectsChanges, Sink
from onceonly.runtime import operator, remedies
from onceonly.runtime.operator import adopt, another_range, not_applicable, nothing_to_adopt, refuse_moving, target
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints.epoch import Receipt, receipts_of
from onceonly_checkpoints.model import Adoption, AdoptionKind, SourceOffsets, canonical, parse_offset

_AFTER = {
    AdoptionKind.KEEP_RECOMPUTED_STATE: "rows of committed epochs stay as they were written. Spark's windows and seen "
    "keys come from the replay: later results build on rows that the sinks never got, and may not agree with the rows "
    "that they hold. This covers replays until the next new epoch"
}
"""What is true afterwards, where the name of the option does not say it all."""

_RANGE = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed.

    Attributes:
        value: what stands behind its option; empty for none.
        named: values of ``--sink``: ids, with ``@VERSION`` where a version is meant.
        may_repeat: epochs of which it is not known whether they come again; empty for none.
    """

    kind: AdoptionKind
    value: str
    named: tuple[str, ...]
    reason: str
    may_repeat: str = ""


def only_kind(chosen: Sequence[AdoptionKind]) -> AdoptionKind:
    """The one thing that is accepted (E110: none or several were given)."""
    if len(chosen) == 1:
        return chosen[0]
    raise misused(
        "recover adopt takes exactly one thing to accept"
        + (f", not {len(chosen)}: {', '.join(chosen)}." if chosen else "."),
        "each adoption is one decision, by name",
        "give one of --accept-loss A..B, --accept-duplicates A..B, --accept-state-loss, --continue, "
        "--accept-change --sink ID@VERSION, --same-data --sink ID, --keep-recomputed-state N, --start OFFSETS, "
        "--from-checkpoint PATH",
    )


def _change(connection: Connection, typed: Typed) -> Change:
    ledger = connection.certain_ledger
    stop = remedies.last(ledger, connection.pipeline)
    last = records.newest_epoch(connection)
    if last is None and (stop is None or stop.start is None):
        raise nothing_to_adopt(connection.pipeline)
    stop = stop or _find_opening_stop(connection)
    refuse_moving(connection.pipeline, ledger, typed.kind, last)
    position = last.written.end if last else None
    sources = last.written.end.sources if last else stop.start.sources if stop and stop.start else ()
    start = parse_start(typed.value, sources) if typed.kind is AdoptionKind.START else None
    accepted = decided(typed.kind, typed.reason) if start else _named(connection, typed, stop, position)
    if accepted.kind is AdoptionKind.ACCEPT_LOSS and accepted.last:
        spoken_of = records.read(connection, accepted.first, accepted.last)
        rows = remedies.rows_of(spoken_of, accepted.first, accepted.last, accepted.sinks)
        accepted = replace(accepted, rows=rows or 0)
    moves = start or target(accepted, last, stop)
    pairs = (
        ("pipeline", connection.pipeline),
        ("accepts", f"{accepted.words}; {KINDS[typed.kind].words}"),
        ("sinks", connection.sinks_in_words),
        ("ledger", ledger.address),
        ("is at", f"epoch {last.number}, at {describe(last.written.end)}" if last else "at an unknown position"),
        ("moves to", _spelled(moves, position, explicit=start is not None)),
        ("does", "writes an epoch without rows into every sink; every running driver of the pipeline is fenced out"),
        ("not known", _doubt(connection, accepted)),
        ("after", _AFTER.get(typed.kind)),
    )
    return Change(pairs, partial(_adopt, connection, accepted, start), _bound(accepted))


def _bound(accepted: Adoption) -> Mapping[str, str]:
    """What the command that carries the plan out says in place of ``--continue`` alone."""
    goes_on = accepted.offsets if accepted.kind is AdoptionKind.CONTINUE else None
    if goes_on is None:
        return {}
    ends = {source: _typed(text) for source, text in goes_on.start.entries}
    return {"--continue": f"--continue={canonical(ends)}"}


def _adopt(connection: Connection, accepted: Adoption, start: SourceOffsets | None) -> None:
    epoch = adopt(connection.sinks, connection.certain_ledger, connection.pipeline, accepted, start=start)
    if epoch is None:
        say("nothing to accept: every sink holds its epochs")
    else:
        say(f"epoch {epoch.number} adopted: {describe(epoch.written.start)} to {describe(epoch.written.end)}")
    talk("Now restart the query.")


def _doubt(connection: Connection, accepted: Adoption) -> str | None:
    if accepted.kind is not AdoptionKind.CONTINUE or not accepted.first:
        return None
    first, last = accepted.first, accepted.last
    tally = remedies.tally(connection.certain_ledger.epochs(connection.pipeline, first, last), first, last)
    return f"whether the batch repeats epochs {first} to {last} ({tally}): if it does, you have their rows twice"


def _spelled(moves: SourceOffsets | None, end: SourceOffsets | None, *, explicit: bool) -> str:
    if moves is None or moves == end:
        return f"{describe(moves) if moves else 'nowhere'} (it stays there)"
    return describe(moves) if explicit else f"{describe(moves)} (where the batch starts that was refused last)"


def _named(connection: Connection, typed: Typed, stop: Stop | None, end: SourceOffsets | None) -> Adoption:
    """What was typed, if it names exactly what stops the pipeline."""
    expected = acceptance.applicable(typed.kind, stop, end)
    if expected is None:
        raise not_applicable(connection.pipeline, typed.kind)
    adoption = _parse_adoption(typed)
    if len(connection.sinks) == 1 and not adoption.sinks and not expected.versions:
        adoption = replace(adoption, sinks=expected.sinks)
    if not acceptance.same(adoption, expected):
        raise _incomplete(connection, typed, expected)
    if typed.kind is AdoptionKind.CONTINUE and typed.value and expected.offsets:
        shown = expected.offsets.start
        if parse_start(typed.value, shown.sources, "--continue") != shown:
            raise another_range(connection.pipeline, typed.kind)
    return acceptance.complete(adoption, expected)


def _parse_adoption(typed: Typed) -> Adoption:
    pairs = [(name, "", "") for name in typed.named]
    if KINDS[typed.kind].version:
        pairs = [name.rpartition("@") if "@" in name else (name, "", "") for name in typed.named]
    sinks, versions = tuple(name for name, _, _ in pairs), tuple(version for _, _, version in pairs)
    # Behind --continue stand offsets, which may be digits.
    epochs = typed.value if KINDS[typed.kind].epochs else typed.may_repeat
    range_ = _RANGE.fullmatch(epochs)
    number = epochs if epochs.isdigit() else "0"
    first, last = (int(range_[1]), int(range_[2])) if range_ else (int(number), int(number))
    return decided(
        typed.kind, typed.reason, sinks=sinks, first=first, last=last, versions=versions if any(versions) else ()
    )


def _incomplete(connection: Connection, typed: Typed, expected: Adoption) -> OnceOnlyError:
    where = CommandContext(connection.pipeline, f" --ledger {shlex.quote(connection.certain_ledger.address)}")
    what = "must name what it accepts" if not typed.value and not typed.named else "names something else"
    return misused(
        f"--{typed.kind} {what}: {expected.words} stops the pipeline.",
        "an acceptance covers only what it names",
        where.adopt(expected),
    )


def _find_opening_stop(connection: Connection) -> Stop | None:
    """Where nothing was refused since the last epoch: what would be, by the rules of an opening."""
    head = connection.certain_ledger.head(connection.pipeline)
    receipts = receipts_of(head)
    peeked_sinks = [_peek_history(sink, connection.pipeline, receipts.get(sink.id)) for sink in connection.sinks]
    refusal = precheck.opening_refusal(connection.pipeline, peeked_sinks, head)
    return refusal.stop if refusal else None


def _peek_history(sink: Sink, pipeline: str, receipt: Receipt | None) -> precheck.PeekedSink:
    history = tuple(records.history(sink, pipeline))
    since = receipt or (history[-1][1] if history else None)
    events = tuple(sink.external_changes(since)) if since and isinstance(sink, DetectsChanges) else ()
    return precheck.PeekedSink(sink.id, history, events)


def parse_start(text: str, sources: tuple[str, ...], option: str = "--start") -> SourceOffsets:
    """Understand what stands behind an option: one offset for a pipeline with one source, else ``{source id: offset}``.

    Raises E110: not JSON, or other sources than ``sources``.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _not_offsets(text, sources, option) from error
    if isinstance(value, dict) and set(value) == set(sources):
        return SourceOffsets.of({source: _offset(value[source]) for source in sources})
    if len(sources) == 1 and isinstance(value, dict | int):
        return SourceOffsets.of({sources[0]: _offset(value)})
    raise _not_offsets(text, sources, option)


def _typed(text: str | None) -> Any:
    """An offset as :func:`parse_start` reads it back: JSON that is a text itself stays as it is spelled."""
    value = parse_offset(text)
    return text if isinstance(value, str) else value


def _offset(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _not_offsets(text: str, sources: tuple[str, ...], option: str) -> Exception:
    return misused(
        f"{option} {text!r} is not the offsets of this pipeline.",
        f"its sources are: {', '.join(sources)}",
        "give JSON as printed by: onceonly epochs show --offsets --query NAME",
    )


# ---- The command.

AcceptLossOption = Annotated[
    str | None, typer.Option("--accept-loss", metavar="A..B", help="Give up the rows of these epochs in --sink ID.")
]
AcceptDuplicatesOption = Annotated[
    str | None,
    typer.Option("--accept-duplicates", metavar="A..B", help="Let the query write the rows of these epochs again."),
]
AcceptStateLossOption = Annotated[
    bool,
    typer.Option(
        "--accept-state-loss",
        help="Go on without the query's state (windows, seen keys), or with the state that is there.",
    ),
]
ContinueOption = Annotated[
    str | None,
    typer.Option(
        "--continue",
        metavar="[=JSON]",
        help="Accept a new source that starts exactly where the last epoch ended; with offsets, if it starts there.",
    ),
]
MayRepeatOption = Annotated[
    str, typer.Option("--may-repeat", metavar="A..B", help="With --continue: epochs that may come again.")
]
AcceptChangeOption = Annotated[
    bool,
    typer.Option(
        "--accept-change", help="Accept the external change (restore, overwrite, delete) to --sink ID@VERSION."
    ),
]
SameDataOption = Annotated[
    bool, typer.Option("--same-data", help="Accept that --sink ID was moved, if its rows are proven to be the same.")
]
KeepStateOption = Annotated[
    str | None,
    typer.Option(
        "--keep-recomputed-state",
        metavar="N",
        help="Keep the state that epoch N's batch made when it ran again with other rows.",
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="JSON",
        help="Start the next batch at these offsets, written as epochs show --offsets prints them.",
    ),
]
FromCheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--from-checkpoint",
        metavar="PATH",
        help="Begin the pipeline at the position of an older job's checkpoint. Name its --sink.",
    ),
]
FromDeltaTxnOption = Annotated[
    str | None,
    typer.Option(
        "--from-delta-txn",
        metavar="APP_ID",
        help="The older job's txnAppId: its checkpoint must agree with the Delta table.",
    ),
]


def command(
    name: NameArgument,
    *,
    accept_loss: AcceptLossOption = None,
    accept_duplicates: AcceptDuplicatesOption = None,
    accept_state_loss: AcceptStateLossOption = False,
    go_on: ContinueOption = None,
    may_repeat: MayRepeatOption = "",
    accept_change: AcceptChangeOption = False,
    same_data: SameDataOption = False,
    keep_recomputed_state: KeepStateOption = None,
    start: StartOption = None,
    from_checkpoint: FromCheckpointOption = None,
    from_delta_txn: FromDeltaTxnOption = None,
    reason: ReasonOption = "",
    sink: NamedSinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Accept a loss, duplicates or a change, or begin a pipeline where an older job ended.

    Writes an epoch without rows into every sink and stops every driver that is running. Give exactly one option that
    accepts something. It covers only what it names. Without its range, the command prints the one that applies.
    """
    chosen: dict[AdoptionKind, str | None] = {
        AdoptionKind.ACCEPT_LOSS: accept_loss,
        AdoptionKind.ACCEPT_DUPLICATES: accept_duplicates,
        AdoptionKind.ACCEPT_STATE_LOSS: "" if accept_state_loss else None,
        AdoptionKind.CONTINUE: go_on,
        AdoptionKind.ACCEPT_CHANGE: "" if accept_change else None,
        AdoptionKind.SAME_DATA: "" if same_data else None,
        AdoptionKind.KEEP_RECOMPUTED_STATE: keep_recomputed_state,
        AdoptionKind.START: start,
        AdoptionKind.FROM_CHECKPOINT: from_delta_txn if from_checkpoint is None else from_checkpoint,
    }
    kind = only_kind([kind for kind, value in chosen.items() if value is not None])
    if kind is AdoptionKind.FROM_CHECKPOINT:
        old = migrate.MigrationArguments(from_checkpoint, from_delta_txn, reason)
        carry_out(migrate.change(name, old, sink, ledger), yes=yes)
        return
    named, addresses = ids_and_addresses(name, sink or (), ledger)
    with connect(ledger, name, addresses) as connection:
        carry_out(_change(connection, Typed(kind, chosen[kind] or "", named, reason, may_repeat)), yes=yes)


# ---- ``onceonly recover refresh``: let the next new query replace all rows.

_AFTER_REFRESH = (
    "the next query with a new checkpoint replaces all rows, from the beginning of its source: check that it still "
    "holds them. A query that continues with the old checkpoint uses this up, and replaces nothing"
)


def refresh(
    name: NameArgument,
    *,
    how: Annotated[str, typer.Option("--how", metavar="replace", help="The new rows replace the current ones.")],
    reason: ReasonOption = "",
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    yes: YesOption = False,
) -> None:
    """Let the next query with a new checkpoint replace all rows of the pipeline.

    For a full refresh that no old checkpoint proves. Writes an epoch without rows into every sink and
    stops every driver that is running; the next epoch uses it up.
    """
    with connect(ledger, name, sink) as connection:
        carry_out(_replace(connection, how, reason), yes=yes)


def _replace(connection: Connection, how: str, reason: str) -> Change:
    if how != "replace":
        raise misused(
            f"recover refresh has no --how {how!r}.",
            "a full refresh can only replace the current rows",
            "give --how replace; to keep the current rows: a new pipeline name on a new table",
        )
    newest = operator.at_stake(connection.sinks, connection.pipeline)
    ledger = connection.certain_ledger
    head = ledger.head(connection.pipeline)
    first = head.epoch.series if head else 1
    counted = remedies.tally(ledger.epochs(connection.pipeline, first, newest), first, newest)
    accepted = decided(AdoptionKind.REPLACE_ROWS, reason, first=first, last=newest)

    def run() -> None:
        epoch = operator.refresh(connection.sinks, ledger, connection.pipeline, accepted)
        gone = f"epochs {first}..{newest}"
        say(f"epoch {epoch.number} adopted: the next query with a new checkpoint replaces the rows of {gone}")
        talk("Now start the query with its new checkpoint.")

    leaving = f"the rows of epochs {first}..{newest} ({counted}) leave with the first new ones{because(reason)}"
    return Change(plan_decision(connection, ("accepts", leaving), after=_AFTER_REFRESH), run)
