"""Remedies: details and commands that a refusal prints."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from onceonly.errors import OnceOnlyError, mask, refuse
from onceonly.errors.codes import Family
from onceonly.machine import acceptance, overlap
from onceonly.machine.acceptance import KINDS, Stop
from onceonly.machine.facts import Offer, Refusal
from onceonly.machine.in_doubt import RECENT, WINDOW, InDoubtEpoch, PipelineSnapshot, begun
from onceonly.machine.rewind import RewindRequest, level
from onceonly.machine.source_order import describe
from onceonly.protocol import Settable, Sink
from onceonly.runtime import file_lists, refresh
from onceonly.runtime.unreadable_markers import naming
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, receipts_of
from onceonly_checkpoints.ledger import Intent, Ledger, Pipeline
from onceonly_checkpoints.manifest import UnreachableManifest, UnreadableManifest
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceOffsets
from onceonly_checkpoints.spark.offsets import log_offset

# ---- The ways out that messages, audit and documents print: the one that loses nothing first. Pure.
#
# Each is a command that works as it stands; without ``--yes`` it prints its plan and the command that carries it out.


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What every command has to name.

    Attributes:
        pipeline: its name.
        ledger: options that name the ledger or, where there is none, the sinks; with a leading blank. Where the ledger
            knows other addresses of the sinks they name both: a command would ask the place from which one was moved.
        checkpoint: the query's; empty where it is not known.
    """

    pipeline: str
    ledger: str
    checkpoint: str = ""

    @property
    def query(self) -> str:
        """The pipeline and its ledger as options."""
        return f"--query {shlex.quote(self.pipeline)}{self.ledger}"

    def adopt(self, accepted: Adoption) -> str:
        """The command that accepts something."""
        return "onceonly queries adopt " + f"{shlex.quote(self.pipeline)}{self.ledger} {acceptance.option(accepted)}"


def tally(records: Iterable[EpochRecord], first: int, last: int, sinks: Sequence[str] = ()) -> str:
    """How many epochs and rows a range is: ``3 epochs, 30 rows``. Rows only where all of them are on record.

    Args:
        records: of the ledger.
        first: the first epoch.
        last: the last one.
        sinks: those whose rows are counted; none: rows of all sinks.
    """
    return acceptance.amount(last - first + 1, rows_of(records, first, last, sinks))


def rows_of(records: Iterable[EpochRecord], first: int, last: int, sinks: Sequence[str] = ()) -> int | None:
    """How many rows a range is; ``None`` where not all of it is on record. Arguments as of :func:`tally`."""
    known = {record.epoch.number: record.epoch.rows_in(sinks) for record in records}
    wanted = range(first, last + 1)
    return sum(known[number] for number in wanted) if all(number in known for number in wanted) else None


def set_back(
    where: CommandContext, lost: Adoption, *, level: RewindRequest, staged: bool, told: str, gone: str = ""
) -> str:
    """What can be done for a sink that no longer holds epochs which it once confirmed.

    Args:
        where: what the commands name.
        lost: the acceptance of the loss: sinks and epochs.
        level: the rewind that loses nothing, as far as rows are to be had.
        staged: whether it lacks one epoch, which others hold and whose bytes were staged for all of them, and may
            still be there.
        told: how many epochs and rows are gone.
        gone: why what was staged cannot be read here; empty where nobody tried.
    """
    if staged:
        heals = "onceonly txn resolve " + where.query
        place = f" (not readable here: {gone}; run it where it is)" if gone else ""
        way = f"the rows that it lacks were staged for all sinks{place}, so nothing is lost by: {heals}"
        # A store that answers nobody any more must not be a dead end.
        return f"{way}\nor, if they are nowhere any more, give up {told}: {where.adopt(lost)}" if gone else way
    ways = ["a newer backup of the sink loses nothing, if there is one"]
    if gone:
        ways.append(f"(what was staged for it cannot be read here: {gone})")
    if level.sinks or level.to:
        rows = "being staged, in another sink or in the source" if level.sinks else "still in the source"
        ways.append(f"or, the rows {rows}, nothing is lost by: {rewound(where, level)}")
    ways.append(f"or give up {told}: {where.adopt(lost)}")
    return "\n".join(ways)


def put_back(where: CommandContext) -> str:
    """The way that writes the checkpoint anew, as it was after the newest epoch. What comes next begins on a line."""
    place = shlex.quote(where.checkpoint) if where.checkpoint else "PATH"
    return "put the checkpoint back:      onceonly checkpoint rebuild " + f"{place} {where.query}\nor "


def filled(where: CommandContext) -> str:
    """The way that proves more by filling the ledger from the sinks. What comes next begins on a line."""
    return "fill the ledger and restart:  onceonly ledger rebuild " + f"{where.query}\nor "


def rewound(where: CommandContext, asked: RewindRequest) -> str:
    """The command that cuts a pipeline back to an epoch, or brings sinks level that stand there."""
    command = "onceonly queries rewind " + f"{shlex.quote(where.pipeline)}{where.ledger} --to {asked.to}"
    return command + acceptance.named(asked.sinks)


def again(where: CommandContext, accepted: Adoption | None, told: str) -> str:
    """The way to write rows of epochs again, on a line of its own. Empty where it does not apply."""
    return f"\nor write {told} again on purpose: {where.adopt(accepted)}" if accepted else ""


def after_it(where: CommandContext, accepted: Adoption | None, told: str) -> str:
    """The second decision that the same batch needs, on a line of its own; empty where none is known."""
    if accepted is None:
        return ""
    what = (
        f"write {told} again"
        if accepted.kind is AdoptionKind.ACCEPT_DUPLICATES
        else "go on from where the batch starts"
    )
    what = f"give up {told}" if accepted.kind is AdoptionKind.ACCEPT_LOSS else what
    return f"\nand after it: {what}: {where.adopt(accepted)}"


def onward(where: CommandContext, accepted: Adoption | None, epoch: int, told: str) -> str:
    """The way on for a source that starts where an epoch ended, on a line of its own; empty where it does not.

    Args:
        where: what the command names.
        accepted: the decision; ``None`` where it does not apply.
        epoch: the newest one.
        told: how many epochs and rows come again if it does not start there; said where that is not known.
    """
    if accepted is None:
        return ""
    doubt = f" (it is not known whether it repeats {told})" if accepted.first else ""
    return f"\nor, the source starting where epoch {epoch} ended{doubt}: {where.adopt(accepted)}"


def refill(where: CommandContext, unable: tuple[Sink, str] | None) -> str:
    """The way out of a full refresh by which its rows take the place of those that stand.

    Args:
        where: what the command names.
        unable: a sink that cannot replace, and why; ``None`` if all can.
    """
    if unable:
        sink, reason = unable
        return f"(its rows cannot take the place of those that stand: {sink.id}: {reason})"
    command = f"onceonly queries refresh {shlex.quote(where.pipeline)}{where.ledger} --how replace"
    always = 'or at every refresh from now on: on_refresh="replace" in exactly_once() or format("onceonly")'
    return f"have the new rows take the place of the old ones: {command}\n{always}"


def moved(where: CommandContext, accepted: Adoption | None) -> str:
    """The way out for a sink that was moved with all it held, on a line of its own; empty where it does not apply."""
    if accepted is None:
        return ""
    return f"\nor, it being the same data at another place, which is checked: {where.adopt(accepted)}"


def restored(content: object) -> str:
    """What another target brought along, as a sentence that ends another one; empty where it brought nothing."""
    if not content:
        return ""
    return f". It holds the rows of {'epoch 1' if content == 1 else f'epochs 1 to {content}'}: restored from a dump"


Contents = Mapping[str, tuple[int, int | None]]
"""Of each sink the newest epoch that it tells of, and the one whose rows it holds, ``None`` where it does not say."""


def undo(where: CommandContext, stop: Stop, contents: Contents) -> str:
    """The rewind of sinks that were set back under their markers, or made anew, before any other way.

    Returns:
        Words that others follow; empty where a sink that is named holds rows of no epoch, or none is to be had.
    """
    changed = stop.code == "E209"  # one that holds its newest epoch was changed otherwise than by going back
    if any(holds is None or (changed and holds == told) for told, holds in (contents[sink] for sink in stop.sinks)):
        return ""
    asked = level({sink: told if holds is None else holds for sink, (told, holds) in contents.items()})
    others = asked.sinks and not set(stop.sinks) & set(asked.sinks)  # it would bring none of these level
    if others or not (asked.sinks or asked.to):
        return ""
    rows = "being staged, in another sink or in the source" if asked.sinks else "still in the source"
    rows = "being there" if asked == RewindRequest(max(told for told, _ in contents.values())) else rows
    return f"the rows {rows}, nothing is lost by: {rewound(where, asked)}\nor "


# ---- What a refusal leaves behind: details that only the ledger can tell, and what ``queries adopt`` needs.

REFUSED = 0
"""Epoch number under which the ledger keeps what was refused last."""

_OVERLAPS = KINDS[AdoptionKind.ACCEPT_DUPLICATES].covers
"""Codes of batches that may offer rows of epochs again."""

_WINDOW = 256
"""How many records are read at a time on the way back to the first epoch that a batch repeats."""


@dataclass(frozen=True, slots=True)
class Context:
    """The opening that is refused.

    Attributes:
        pipeline: its name.
        fence: ours; generation 0 where none was installed.
        newest: the newest epoch that sinks or ledger are known to hold; ``None`` for none.
        offer: the batch; ``None`` where there is none.
    """

    pipeline: str
    fence: Fence
    newest: Epoch | None
    offer: Offer | None

    @property
    def checkpoint(self) -> str:
        """The query's; empty where it is not known."""
        newest = self.newest.standing.lineage if self.newest else None
        lineage = self.offer.lineage if self.offer else newest
        return lineage.checkpoint if lineage else ""


def error_of(
    refusal: Refusal, at: Context, ledger: Ledger, sinks: Sequence[Sink], fetch: Callable[[str, None], object]
) -> OnceOnlyError:
    """The error of a refusal, in full; what it names is kept for the operator's answer.

    Args:
        refusal: what the rules said.
        at: what was refused.
        ledger: of the pipeline.
        sinks: of the call.
        fetch: reads staged bytes back by the reference in a marker.
    """
    # The message must stand alone: the command it prints names the ledger, without its password.
    name = shlex.quote(ledger.address)
    name += _elsewhere(at.pipeline, ledger, sinks) if refusal.code != "E213" else ""  # there the call lacks a sink
    details: dict[str, object] = {"ledger": name, "where": _named(sinks)}
    if Family.of(refusal.code) is Family.IDENTITY:
        refusal = _still_staged(refusal, fetch)
        where = CommandContext(at.pipeline, f" --ledger {name}", at.checkpoint)
        unable = refresh.unable(sinks, (1, at.newest.number)) if refusal.code == "E246" and at.newest else None
        contents = _contents(sinks) if refusal.code in ("E208", "E209") else {}
        told = explain_refusal(refusal, ledger, where, at.newest, at.offer, unable=unable, contents=contents)
        details |= told.details
        remember(ledger, at.pipeline, at.fence, told.stop)
    return refuse(refusal.code, **{**details, **dict(refusal.details)})


def content(sink: Sink) -> int | None:
    """The epoch whose rows a sink holds; ``None`` where it does not say."""
    if not isinstance(sink, Settable):
        return None
    with naming(sink):
        return sink.content()


def _contents(sinks: Sequence[Sink]) -> Contents:
    found: dict[str, tuple[int, int | None]] = {}
    for sink in sinks:
        with naming(sink):
            told = sink.look().epoch
            # Without an epoch it holds nothing of ours, whatever is there.
            found[sink.id] = told, content(sink) if told else 0
    return found


def _still_staged(refusal: Refusal, fetch: Callable[[str, None], object]) -> Refusal:
    """A refusal that counts on staged bytes, without them where they are gone: then no command brings them."""
    said = dict(refusal.details)
    if said.get("staged"):
        try:
            fetch(str(said["staged"]), None)
        except UnreachableManifest as error:
            return Refusal.of(refusal.code, **{**said, "gone": mask(str(error))})  # another machine may read it
        except UnreadableManifest:
            return Refusal.of(refusal.code, **{**said, "staged": None})
    return refusal


def _named(sinks: Sequence[Sink]) -> str:
    return " ".join(f"--sink {shlex.quote(sink.address)}" for sink in sinks)


def _elsewhere(pipeline: str, ledger: Ledger, sinks: Sequence[Sink]) -> str:
    """Commands find sinks by the ledger. A refused call does not correct it: the call may be what is wrong."""
    known = next((entry.sinks for entry in ledger.pipelines() if entry.name == pipeline), None)
    ours = tuple((sink.id, sink.address) for sink in sinks)
    return f" {_named(sinks)}" if known is not None and dict(known) != dict(ours) else ""


@dataclass(frozen=True, slots=True)
class ExplainedRefusal:
    """A refusal in full.

    Attributes:
        details: what its message needs beside what the rules know.
        stop: what it names, for the operator's answer.
    """

    details: Mapping[str, object]
    stop: Stop


def explain_refusal(
    refusal: Refusal,
    ledger: Ledger,
    where: CommandContext,
    newest: Epoch | None,
    offer: Offer | None,
    *,
    unable: tuple[Sink, str] | None = None,
    contents: Contents | None = None,
) -> ExplainedRefusal:
    """Ask the ledger how much a refusal is about.

    Args:
        refusal: what the rules said.
        ledger: of the pipeline.
        where: what printed commands name.
        newest: the newest epoch of the sinks; ``None`` for none.
        offer: the batch; ``None`` where there is none.
        unable: a sink that cannot replace rows, and why; ``None`` if all can, or that is not asked.
        contents: for E208 and E209; ``None``: no sink was asked.
    """
    head, said = ledger.head(where.pipeline), dict(refusal.details)
    stop = _stop(refusal, ledger, where.pipeline, newest, offer, head=head.epoch.number if head else 0)
    end = newest.written.end if newest else None
    counted = _counted(ledger, where.pipeline, stop)
    named = acceptance.named(stop.sinks, stop.versions)
    details: dict[str, object] = {"first": stop.first, "last": stop.last, "lost": counted, "named": named}
    details["back"] = filled(where) if said.get("hole") else ""
    # A checkpoint is written anew from the lists of files, or from offsets that say it all.
    unlisted = offer is not None and overlap.reads_files(offer.sources) and not _all_listed(ledger, where, newest)
    details["back"] = f"{details['back']}{'' if said.get('state_lost') or unlisted else put_back(where)}"
    if refusal.code == "E206":
        after, gap = said.get("after"), ""
        if isinstance(after, Refusal) and newest:
            stop = replace(stop, then=_stop(after, ledger, where.pipeline, newest, offer, head=newest.number + 1))
            gap = str(dict(after.details).get("gap", ""))
        details["then"] = _then(ledger, where, stop.then, end, gap)
    if refusal.code in _OVERLAPS:
        goes_on = acceptance.applicable(AdoptionKind.CONTINUE, stop, end)
        details["onward"] = onward(where, goes_on, newest.number if newest else 0, counted)
        details["again"] = again(where, acceptance.applicable(AdoptionKind.ACCEPT_DUPLICATES, stop, end), counted)
    if refusal.code == "E213":
        told = receipts_of(head).get(str(said["sink"]))
        details |= _left_out(where, refusal, told.epoch if told else 0)
    if refusal.code == "E207" and (lost := acceptance.applicable(AdoptionKind.ACCEPT_LOSS, stop, end)):
        gone, staged, level = str(said.get("gone") or ""), said.get("staged") is not None, said.get("level")
        asked = level if isinstance(level, RewindRequest) else RewindRequest(0)
        details["ways"] = set_back(where, lost, level=asked, staged=staged, told=counted, gone=gone)
    if refusal.code == "E208":
        same = acceptance.applicable(AdoptionKind.SAME_DATA, stop) if said.get("holds") else None
        details["copy"] = moved(where, same)
        details["undo"] = undo(where, stop, contents) if contents else ""
        details["dump"] = restored(said.get("content"))
    if refusal.code == "E209":
        details["undo"] = undo(where, stop, contents) if contents else ""
    if refusal.code == "E246":
        details["replace"] = refill(where, unable)
        details["source"] = _beginnings(ledger, where.pipeline, stop.first, str(said.get("begins", "")))
    return ExplainedRefusal(details, stop)


def _left_out(where: CommandContext, refusal: Refusal, confirmed: int) -> Mapping[str, str]:
    """Of a sink that the call lacks: the way that brings it level, and what it may lack where nobody knows."""
    said = dict(refusal.details)
    if confirmed == (epoch := said.get("epoch", 0)):
        return {"behind": "", "range": ""}
    if not confirmed:
        return {"behind": "", "range": f" {said.get('first', 1)}..{epoch}"}
    way = f"bring it to epoch {epoch}, which it has not confirmed: onceonly txn resolve " + where.query
    return {"behind": f"{way}\nthen ", "range": ""}


def _beginnings(ledger: Ledger, pipeline: str, first: int, begins: str) -> str:
    """Where the source begins now beside the first slice of the series, as far as each is known."""
    if not begins:
        return "Where its source begins now is not known: see that it still holds what the sinks do."
    records = ledger.epochs(pipeline, first, first)
    series = f"; the series began with {_spelled(records[0].epoch.written)}" if records else ""
    return f"Its source begins at {begins} now{series}."


def _spelled(slice_: Slice) -> str:
    return f"{describe(slice_.start)} to {describe(slice_.end)}"


def _stop(
    refusal: Refusal, ledger: Ledger, pipeline: str, newest: Epoch | None, offer: Offer | None, *, head: int
) -> Stop:
    """What a refusal names, with the epochs that only the ledger can tell."""
    stop = acceptance.stop_of(refusal, offer.range if offer else None, head)
    if refusal.code not in _OVERLAPS or newest is None or offer is None:
        return stop
    first = _first(refusal, ledger, pipeline, newest, offer)
    again = _repeats(ledger, pipeline, newest, offer) if refusal.code == "E211" else False
    return replace(stop, first=first, last=newest.number, repeats=again is True, doubtful=again is None)


_SECOND = (AdoptionKind.ACCEPT_DUPLICATES, AdoptionKind.ACCEPT_LOSS, AdoptionKind.CONTINUE)
"""What a batch may need beside the loss of its state; the first one that applies is printed."""


def _then(ledger: Ledger, where: CommandContext, stop: Stop | None, end: SourceOffsets | None, gap: str) -> str:
    accepted = next((one for kind in _SECOND if (one := acceptance.applicable(kind, stop, end))), None)
    if stop is None or accepted is None:
        return ""
    told = f"{gap}, as epoch {stop.first}" if gap else _counted(ledger, where.pipeline, stop)
    return after_it(where, accepted, told)


def remember(ledger: Ledger, pipeline: str, fence: Fence, stop: Stop) -> None:
    """Keep what was refused, with all that it names, so that ``queries adopt`` can ask for it by name."""
    nothing = SourceOffsets(())
    offered = stop.offered or Slice(nothing, nothing)
    ledger.intend(Intent(pipeline, REFUSED, fence, offered, refused=stop.text))


def last(ledger: Ledger, pipeline: str) -> Stop | None:
    """The newest refusal; ``None`` if there was none, or the pipeline has gone on since."""
    intent, head = ledger.intent(pipeline, REFUSED), ledger.head(pipeline)
    stop = Stop.parse(intent.refused) if intent and intent.refused else None
    return stop if stop and stop.head == (head.epoch.number if head else 0) else None


def _first(refusal: Refusal, ledger: Ledger, pipeline: str, newest: Epoch, offer: Offer) -> int:
    begun = newest.series  # rows of epochs before it stand nowhere any more
    if refusal.code == "E211" or offer.start.unset:
        return begun
    upto, slices = newest.number, dict[int, Slice]()
    while upto >= begun:
        records = ledger.epochs(pipeline, max(begun, upto - _WINDOW + 1), upto)
        slices |= {record.epoch.number: record.epoch.written for record in records}
        found = acceptance.duplicates_from(offer.start, slices) if slices else begun
        if not records or found > min(slices):
            return found
        upto -= _WINDOW
    return acceptance.duplicates_from(offer.start, slices) if slices else begun


def _repeats(ledger: Ledger, pipeline: str, newest: Epoch, offer: Offer) -> bool | None:
    """Whether a batch of files comes with one that an epoch holds: then it does not start where the last one ended.

    ``None``: it is not known, as the files of some epoch are not, or the source is none of files.
    """
    upto, known = newest.number, True
    while upto >= newest.series:
        first = max(newest.series, upto - _WINDOW + 1)
        records = ledger.epochs(pipeline, first, upto)
        if (found := overlap.repeats(records, offer.files)) is True:
            return True
        known = known and found is False and len(records) == upto - first + 1
        upto = first - 1
    return False if known else None


def _all_listed(ledger: Ledger, where: CommandContext, newest: Epoch | None) -> bool:
    """Whether the files of every epoch of the newest one's job are known: of these the log in a checkpoint is made."""
    lineage = newest.standing.lineage if newest else None
    upto, own = newest.number if newest else 0, list[EpochRecord]()
    while lineage and upto > 0:
        records = ledger.epochs(where.pipeline, max(1, upto - _WINDOW + 1), upto)
        ran = [
            record for record in records if record.epoch.lineage and record.epoch.lineage.query_id == lineage.query_id
        ]
        upto, own = upto - _WINDOW if ran else 0, [*ran, *own]
    known = {(file.source, file.log_offset) for one in file_lists.completed(own) for file in one.files}
    ends = newest.reached.entries if newest else ()
    logs = [(source, last) for source, text in ends if (last := log_offset(text)) is not None]
    # Also of epochs that an operator gave up: their records are gone, and the log has their entries.
    return all((source, entry) in known for source, last in logs for entry in range(last + 1))


def _counted(ledger: Ledger, pipeline: str, stop: Stop) -> str:
    if not 0 < stop.first <= stop.last:
        return "nothing"
    wide = stop.last - stop.first >= _MANY
    return tally(() if wide else ledger.epochs(pipeline, stop.first, stop.last), stop.first, stop.last, stop.sinks)


_MANY = 10_000
"""Epochs of which a message does not count the rows."""


# ---- Reads from a ledger what ``endings.begun`` judges: one pipeline at one moment.


def open_epoch(
    ledger: Ledger,
    pipeline: Pipeline,
    now_ms: int,
    stands: Mapping[str, int] | None = None,
) -> InDoubtEpoch | None:
    """The epoch of a pipeline that was begun and is not everywhere.

    Intents are read before the head, so that an epoch that was just recorded is none.

    Args:
        ledger: its ledger.
        pipeline: its row there.
        now_ms: the moment, milliseconds since 1970.
        stands: number of the newest epoch by sink, read before this; ``None``: no sink was asked.

    Raises:
        LedgerUnavailable: it cannot be read.
    """
    newest = max(stands.values(), default=0) if stands else pipeline.epoch
    intents = tuple(ledger.intent(pipeline.name, number) for number in (newest, newest + 1))
    head = ledger.head(pipeline.name)
    recorded = head.epoch.number if head else 0
    if not stands and recorded > newest:
        return None  # recorded while this was read
    entry = next((one for one in ledger.pipelines() if one.name == pipeline.name), pipeline)
    records = ledger.epochs(pipeline.name, max(1, recorded - RECENT + 1)) if recorded else ()
    events = ledger.events(pipeline.name, WINDOW)
    return begun(PipelineSnapshot(entry.generation, newest, intents, events, records, now_ms, stands or {}))
