"""Remedies: details and commands that a refusal prints."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from onceonly.errors import OnceOnlyError, mask, refuse
from onceonly.errors.codes import Family
from onceonly.machine import acceptance, overlap
from onceonly.machine.acceptance import KINDS, Stop
from onceonly.machine.facts import Offer, Refusal
from onceonly.machine.in_doubt import RECENT, WINDOW, InDoubtEpoch, PipelineSnapshot, begun
from onceonly.machine.rewind import RewindRequest, level
from onceonly.machine.source_order import describe
from onceonly.protocol import ReplacesRows, Sink
from onceonly.protocol.capabilities import implements
from onceonly.runtime import ledger_sync, sink_refusals
from onceonly.runtime.sink_refusals import content, naming
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, receipts_of
from onceonly_checkpoints.ledger import Intent, Ledger, Pipeline
from onceonly_checkpoints.manifest import UnreachableManifest, UnreadableManifest
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceOffsets
from onceonly_checkpoints.spark.offsets import log_offset

# ---- Ways out that messages, audit and documents print: the one that loses nothing first. Pure.
#
# Each is a command that works as printed. Without ``--yes`` it prints its plan and the command that carries it out.


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Names that every printed command needs. ``checkpoint`` is empty if unknown.

    ``ledger`` are options that name the ledger or, if there is none, the sinks, with a leading blank. They name both if
    the ledger has other addresses of the sinks: a command would open the old place of a moved sink.
    """

    pipeline: str
    ledger: str
    checkpoint: str = ""

    @property
    def query(self) -> str:
        """Options that name the pipeline and its ledger."""
        return f"--query {shlex.quote(self.pipeline)}{self.ledger}"

    def adopt(self, accepted: Adoption) -> str:
        """Return the command that accepts a decision."""
        return "onceonly recover adopt " + f"{shlex.quote(self.pipeline)}{self.ledger} {acceptance.option(accepted)}"


def tally(records: Iterable[EpochRecord], first: int, last: int, sinks: Sequence[str] = ()) -> str:
    """Count epochs and rows, of all sinks by default: ``3 epochs, 30 rows``. Rows only if all are on record."""
    return acceptance.amount(last - first + 1, rows_of(records, first, last, sinks))


def rows_of(records: Iterable[EpochRecord], first: int, last: int, sinks: Sequence[str] = ()) -> int | None:
    """Count the rows of a range, or return ``None`` if not all of it is on record."""
    rows_by_epoch = {record.epoch.number: record.epoch.rows_in(sinks) for record in records}
    numbers = range(first, last + 1)
    return (
        sum(rows_by_epoch[number] for number in numbers) if all(number in rows_by_epoch for number in numbers) else None
    )


def set_back(
    where: CommandContext, lost: Adoption, *, level: RewindRequest, staged: bool, amount: str, gone: str = ""
) -> str:
    """Ways out for a sink that lost epochs which it had confirmed.

    ``level`` is the rewind that loses nothing, as far as the rows exist. With ``staged``, the sink lacks one epoch that
    others hold, and its files may exist. ``amount`` is in words. ``gone`` is why those files cannot be read here, or
    empty if no read was tried.
    """
    if staged:
        heals = "onceonly recover resolve " + where.query
        hint = f" (not readable here: {gone}. Run it where it is)" if gone else ""
        remedy = f"its missing rows were staged for all sinks{hint}, so this loses nothing: {heals}"
        # A store that no machine reaches any longer must not be a dead end.
        return f"{remedy}\nor, if they are gone everywhere, give up {amount}: {where.adopt(lost)}" if gone else remedy
    ways = ["a newer backup of the sink loses nothing, if you have one"]
    if gone:
        ways.append(f"(its staged rows cannot be read here: {gone})")
    if level.sinks or level.to:
        rows = "staged, in another sink or in the source" if level.sinks else "still in the source"
        ways.append(f"or, if the rows are {rows}, this loses nothing: {rewound(where, level)}")
    ways.append(f"or give up {amount}: {where.adopt(lost)}")
    return "\n".join(ways)


def put_back(where: CommandContext) -> str:
    """Way out that writes the checkpoint anew, as it was after the newest epoch. Ends with "or" on a new line."""
    path = shlex.quote(where.checkpoint) if where.checkpoint else "PATH"
    return "restore the checkpoint: onceonly recover rebuild-checkpoint " + f"{path} {where.query}\nor "


def filled(where: CommandContext) -> str:
    """Way out that fills the ledger from the sinks and so proves more. Ends with "or" on a new line."""
    return "fill the ledger and restart: onceonly recover rebuild-ledger " + f"{where.query}\nor "


def rewound(where: CommandContext, request: RewindRequest) -> str:
    """Command that cuts a pipeline back to an epoch, or brings sinks level with it."""
    command = "onceonly recover rewind " + f"{shlex.quote(where.pipeline)}{where.ledger} --to {request.to}"
    return command + acceptance.named(request.sinks)


def after_it(where: CommandContext, accepted: Adoption | None, amount: str) -> str:
    """Second decision that the same batch needs, on its own line. Empty if none is known."""
    if accepted is None:
        return ""
    verbs = {AdoptionKind.ACCEPT_DUPLICATES: "accept duplicates of", AdoptionKind.ACCEPT_LOSS: "give up"}
    verb = verbs.get(accepted.kind)
    what = f"{verb} {amount}" if verb else "continue where the batch starts"
    return f"\nand after it: {what}: {where.adopt(accepted)}"


def onward(where: CommandContext, accepted: Adoption | None, epoch: int, amount: str) -> str:
    """Way out for a source that starts at the end of an epoch, on its own line. Empty if ``accepted`` is ``None``.

    ``amount`` are the epochs and rows that repeat if the source starts elsewhere. They are printed if that is not
    known.
    """
    if accepted is None:
        return ""
    doubt = f" (it may repeat {amount})" if accepted.first else ""
    return f"\nor, if the source starts where epoch {epoch} ended{doubt}: {where.adopt(accepted)}"


def refill(where: CommandContext, unable: tuple[Sink, str] | None) -> str:
    """Way out of a full refresh that replaces rows. ``unable``: a sink that cannot, with the reason, or ``None``."""
    if unable:
        sink, reason = unable
        return f"(its rows cannot replace the current ones: {sink.id}: {reason})"
    command = f"onceonly recover refresh {shlex.quote(where.pipeline)}{where.ledger} --how replace"
    always = 'or at every refresh from now on: recovery=Recovery(on_refresh="replace"), or '
    always += '.option("on_refresh", "replace") of format("onceonly")'
    return f"let the new rows replace the old ones: {command}\n{always}"


def moved(where: CommandContext, accepted: Adoption | None) -> str:
    """Way out for a sink that was moved with all its rows, on its own line. Empty if it does not apply."""
    if accepted is None:
        return ""
    return f"\nor, if it is the same data at another place, which is checked: {where.adopt(accepted)}"


def restored(content: object) -> str:
    """Sentence about epochs that another target already holds. Empty if it holds none."""
    if not content:
        return ""
    return f". It holds the rows of {'epoch 1' if content == 1 else f'epochs 1 to {content}'}: restored from a dump"


Contents = Mapping[str, tuple[int, int | None]]
"""By sink the newest epoch of its markers, and the epoch of its rows, ``None`` if it does not know it."""


def undo(where: CommandContext, stop: Stop, contents: Contents) -> str:
    """Rewind of sinks that were restored under their markers or created anew, printed before any other way out.

    Empty if a named sink does not know the epoch of its rows, or no rewind applies.
    """
    changed = stop.code == "E209"  # one that holds its newest epoch was changed otherwise than by going back
    if any(
        holds is None or (changed and holds == marker_epoch)
        for marker_epoch, holds in (contents[sink] for sink in stop.sinks)
    ):
        return ""
    request = level(
        {sink: marker_epoch if holds is None else holds for sink, (marker_epoch, holds) in contents.items()}
    )
    others = request.sinks and not set(stop.sinks) & set(request.sinks)  # it would bring none of these level
    if others or not (request.sinks or request.to):
        return ""
    rows = "staged, in another sink or in the source" if request.sinks else "still in the source"
    rows = "there" if request == RewindRequest(max(marker_epoch for marker_epoch, _ in contents.values())) else rows
    return f"if the rows are {rows}, this loses nothing: {rewound(where, request)}\nor "


def emptied(where: CommandContext, sinks: Sequence[str]) -> str:
    """Way out for targets whose rows cannot be told from others: they are filled from the first epoch on."""
    command = rewound(where, RewindRequest(0, tuple(sinks)))
    return f"if no row in it is worth keeping, drop it (TRUNCATE is enough in SQL) and bring its epochs back: {command}"


# ---- Details of a refusal that only the ledger has, and its record for ``recover adopt``.

REFUSED = 0
"""Epoch number under which the ledger keeps the newest refusal."""

_OVERLAPS = KINDS[AdoptionKind.ACCEPT_DUPLICATES].covers
"""Codes of batches that may offer rows of epochs again."""

_WINDOW = 256
"""How many records are read at a time on the way back to the first epoch that a batch repeats."""


@dataclass(frozen=True, slots=True)
class Context:
    """The opening that is refused.

    ``fence`` has generation 0 if none was installed. ``newest`` is the newest epoch known of any sink or the ledger.
    """

    pipeline: str
    fence: Fence
    newest: Epoch | None
    offer: Offer | None

    @property
    def checkpoint(self) -> str:
        """The query's checkpoint. Empty if unknown."""
        newest = self.newest.resume_point.lineage if self.newest else None
        lineage = self.offer.lineage if self.offer else newest
        return lineage.checkpoint if lineage else ""


def error_of(
    refusal: Refusal, at: Context, ledger: Ledger, sinks: Sequence[Sink], fetch: Callable[[str, None], object]
) -> OnceOnlyError:
    """Build the full error of a refusal, and keep the refusal in the ledger for ``recover adopt``."""
    # The command in the message must work when pasted, so it names the ledger, without its password.
    name = shlex.quote(ledger.address)
    name += _elsewhere(at.pipeline, ledger, sinks) if refusal.code != "E213" else ""  # there the call lacks a sink
    details: dict[str, object] = {"ledger": name, "where": _named(sinks)}
    if Family.of(refusal.code) is Family.IDENTITY:
        refusal = _still_staged(refusal, fetch)
        where = CommandContext(at.pipeline, f" --ledger {name}", at.checkpoint)
        unable = sink_refusals.unable(sinks, (1, at.newest.number)) if refusal.code == "E246" and at.newest else None
        contents = _contents(sinks) if refusal.code in ("E208", "E209") else {}
        resets = {sink.id for sink in sinks if implements(sink, ReplacesRows, "reset_to")}
        explanation = explain_refusal(
            refusal, ledger, where, at.newest, at.offer, unable=unable, contents=contents, resets=resets
        )
        details |= explanation.details
        remember(ledger, at.pipeline, at.fence, explanation.stop)
    return refuse(refusal.code, **{**details, **dict(refusal.details)})


def _contents(sinks: Sequence[Sink]) -> Contents:
    contents: dict[str, tuple[int, int | None]] = {}
    for sink in sinks:
        with naming(sink):
            marker_epoch = sink.look().epoch
            # Without an epoch none of its rows are ours.
            contents[sink.id] = marker_epoch, content(sink) if marker_epoch else 0
    return contents


def _still_staged(refusal: Refusal, fetch: Callable[[str, None], object]) -> Refusal:
    """Drop ``staged`` from a refusal if the staged files are gone: no command could use them."""
    details = dict(refusal.details)
    if details.get("staged"):
        try:
            fetch(str(details["staged"]), None)
        except UnreachableManifest as error:
            return Refusal.of(refusal.code, **{**details, "gone": mask(str(error))})  # another machine may read it
        except UnreadableManifest:
            return Refusal.of(refusal.code, **{**details, "staged": None})
    return refusal


def _named(sinks: Sequence[Sink]) -> str:
    return " ".join(f"--sink {shlex.quote(sink.address)}" for sink in sinks)


def _elsewhere(pipeline: str, ledger: Ledger, sinks: Sequence[Sink]) -> str:
    """Options that name the sinks, if the ledger has others. A refused call may be wrong, so it corrects nothing."""
    recorded_sinks = next((entry.sinks for entry in ledger.pipelines() if entry.name == pipeline), None)
    ours = tuple((sink.id, sink.address) for sink in sinks)
    return f" {_named(sinks)}" if recorded_sinks is not None and dict(recorded_sinks) != dict(ours) else ""


@dataclass(frozen=True, slots=True)
class ExplainedRefusal:
    """A refusal with details of its message, and the stop that ``recover adopt`` needs."""

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
    resets: Collection[str] = frozenset(),
) -> ExplainedRefusal:
    """Add the epochs and rows of a refusal from the ledger. ``contents`` are for E208 and E209, if sinks were read.

    ``resets``: sinks that a rewind fills from the first epoch on, once they are empty.
    """
    head, refusal_details = ledger.head(where.pipeline), dict(refusal.details)
    stop = _stop(refusal, ledger, where.pipeline, newest, offer, head=head.epoch.number if head else 0)
    end = newest.written.end if newest else None
    counted = _counted(ledger, where.pipeline, stop)
    named = acceptance.named(stop.sinks, stop.versions)
    details: dict[str, object] = {"first": stop.first, "last": stop.last, "lost": counted, "named": named}
    details["back"] = filled(where) if refusal_details.get("hole") else ""
    # A checkpoint is written anew from the lists of files, or from complete offsets.
    unlisted = offer is not None and overlap.reads_files(offer.sources) and not _all_listed(ledger, where, newest)
    details["back"] = f"{details['back']}{'' if refusal_details.get('state_lost') or unlisted else put_back(where)}"
    if refusal.code == "E206":
        after, gap = refusal_details.get("after"), ""
        if isinstance(after, Refusal) and newest:
            stop = replace(stop, then=_stop(after, ledger, where.pipeline, newest, offer, head=newest.number + 1))
            gap = str(dict(after.details).get("gap", ""))
        details["then"] = _then(ledger, where, stop.then, end, gap)
    if refusal.code in _OVERLAPS:
        goes_on = acceptance.applicable(AdoptionKind.CONTINUE, stop, end)
        details["onward"] = onward(where, goes_on, newest.number if newest else 0, counted)
        twice = acceptance.applicable(AdoptionKind.ACCEPT_DUPLICATES, stop, end)
        details["again"] = f"\nor accept duplicates of {counted}: {where.adopt(twice)}" if twice else ""
    if refusal.code == "E213":
        receipt = receipts_of(head).get(str(refusal_details["sink"]))
        details |= _left_out(where, refusal, receipt.epoch if receipt else 0)
    if refusal.code == "E207" and (lost := acceptance.applicable(AdoptionKind.ACCEPT_LOSS, stop, end)):
        gone, level = str(refusal_details.get("gone") or ""), refusal_details.get("level")
        staged = refusal_details.get("staged") is not None
        request = level if isinstance(level, RewindRequest) else RewindRequest(0)
        details["ways"] = set_back(where, lost, level=request, staged=staged, amount=counted, gone=gone)
    if refusal.code in ("E208", "E209"):
        details["undo"] = undo(where, stop, contents) if contents else ""
    if refusal.code == "E208":
        same = acceptance.applicable(AdoptionKind.SAME_DATA, stop) if refusal_details.get("holds") else None
        # An epoch that the ledger lacks cannot be brought back.
        recorded = rows_of(ledger.epochs(where.pipeline, stop.first, stop.last), stop.first, stop.last) is not None
        fills = not details["undo"] and set(stop.sinks).issubset(resets) and recorded
        details["copy"] = moved(where, same) + (f"\nor {emptied(where, stop.sinks)}" if fills else "")
        details["dump"] = restored(refusal_details.get("content"))
    if refusal.code == "E246":
        details["replace"] = refill(where, unable)
        details["source"] = _beginnings(ledger, where.pipeline, stop.first, str(refusal_details.get("begins", "")))
    return ExplainedRefusal(details, stop)


def _left_out(where: CommandContext, refusal: Refusal, confirmed: int) -> Mapping[str, str]:
    """For a sink that the call lacks: the way to bring it level, or the range it may lack. Empty if it is level."""
    details = dict(refusal.details)
    if confirmed == (epoch := details.get("epoch", 0)):
        return {"behind": "", "range": ""}
    if not confirmed:
        return {"behind": "", "range": f" {details.get('first', 1)}..{epoch}"}
    remedy = f"bring it to epoch {epoch}, which it has not confirmed: onceonly recover resolve " + where.query
    return {"behind": f"{remedy}\nthen ", "range": ""}


def _beginnings(ledger: Ledger, pipeline: str, first: int, begins: str) -> str:
    """Where the source begins now, and the first slice of the series, as far as known."""
    if not begins:
        return "The start of its source is not known: check that it still holds the rows of your sinks."
    records = ledger.epochs(pipeline, first, first)
    series = ""
    if records:
        written = records[0].epoch.written
        series = f", and your oldest epoch covers {describe(written.start)} to {describe(written.end)}"
    return f"Its source now begins at {begins}{series}."


def _stop(
    refusal: Refusal, ledger: Ledger, pipeline: str, newest: Epoch | None, offer: Offer | None, *, head: int
) -> Stop:
    """Build the stop of a refusal, with its epochs from the ledger."""
    stop = acceptance.stop_of(refusal, offer.range if offer else None, head)
    if refusal.code not in _OVERLAPS or newest is None or offer is None:
        return stop
    first = _first(refusal, ledger, pipeline, newest, offer)
    repeats = _repeats(ledger, pipeline, newest, offer) if refusal.code == "E211" else False
    return replace(stop, first=first, last=newest.number, repeats=repeats is True, doubtful=repeats is None)


_SECOND = (AdoptionKind.ACCEPT_DUPLICATES, AdoptionKind.ACCEPT_LOSS, AdoptionKind.CONTINUE)
"""Decisions that a batch may need beside the loss of its state. The first one that applies is printed."""


def _then(ledger: Ledger, where: CommandContext, stop: Stop | None, end: SourceOffsets | None, gap: str) -> str:
    accepted = next((adoption for kind in _SECOND if (adoption := acceptance.applicable(kind, stop, end))), None)
    if stop is None or accepted is None:
        return ""
    amount = f"{gap}, as epoch {stop.first}" if gap else _counted(ledger, where.pipeline, stop)
    return after_it(where, accepted, amount)


def remember(ledger: Ledger, pipeline: str, fence: Fence, stop: Stop) -> None:
    """Keep a refusal in the ledger for ``recover adopt``."""
    nothing = SourceOffsets(())
    offered = stop.offered or Slice(nothing, nothing)
    ledger.intend(Intent(pipeline, REFUSED, fence, offered, refused=stop.text))


def last(ledger: Ledger, pipeline: str) -> Stop | None:
    """Return the newest refusal, or ``None`` if there was none or the pipeline has gone on since."""
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
        first = acceptance.duplicates_from(offer.start, slices) if slices else begun
        if not records or first > min(slices):
            return first
        upto -= _WINDOW
    return acceptance.duplicates_from(offer.start, slices) if slices else begun


def _repeats(ledger: Ledger, pipeline: str, newest: Epoch, offer: Offer) -> bool | None:
    """Whether a batch repeats a file of an epoch. If so, it does not start at the end of the last one.

    ``None`` if unknown: the files of some epoch are unknown, or the source does not read files.
    """
    upto, is_conclusive = newest.number, True
    while upto >= newest.series:
        first = max(newest.series, upto - _WINDOW + 1)
        records = ledger.epochs(pipeline, first, upto)
        if (repeats := overlap.repeats(records, offer.files)) is True:
            return True
        is_conclusive = is_conclusive and repeats is False and len(records) == upto - first + 1
        upto = first - 1
    return False if is_conclusive else None


def _all_listed(ledger: Ledger, where: CommandContext, newest: Epoch | None) -> bool:
    """Whether the files of every epoch of the newest one's job are known. A checkpoint's log is rebuilt from them."""
    lineage = newest.resume_point.lineage if newest else None
    upto, own = newest.number if newest else 0, list[EpochRecord]()
    while lineage and upto > 0:
        records = ledger.epochs(where.pipeline, max(1, upto - _WINDOW + 1), upto)
        ran = [
            record for record in records if record.epoch.lineage and record.epoch.lineage.query_id == lineage.query_id
        ]
        upto, own = upto - _WINDOW if ran else 0, [*ran, *own]
    log_entries = {(file.source, file.log_offset) for record in ledger_sync.completed(own) for file in record.files}
    ends = newest.reached.entries if newest else ()
    logs = [(source, last) for source, text in ends if (last := log_offset(text)) is not None]
    # Also of epochs that an operator gave up: their records are gone, and the log has their entries.
    return all((source, entry) in log_entries for source, last in logs for entry in range(last + 1))


def _counted(ledger: Ledger, pipeline: str, stop: Stop) -> str:
    if not 0 < stop.first <= stop.last:
        return "nothing"
    wide = stop.last - stop.first >= _MANY
    return tally(() if wide else ledger.epochs(pipeline, stop.first, stop.last), stop.first, stop.last, stop.sinks)


_MANY = 10_000
"""Epochs of which a message does not count the rows."""


# ---- Reads the facts for ``in_doubt.begun`` from a ledger: one pipeline at one moment.


def open_epoch(
    ledger: Ledger, pipeline: Pipeline, now_ms: int, sink_epochs: Mapping[str, int] | None = None
) -> InDoubtEpoch | None:
    """Return the epoch of a pipeline that was begun and is not in every sink.

    Intents are read before the head, so that an epoch that was just recorded is none. ``sink_epochs`` were read before
    this call, or are ``None`` if no sink was read. ``LedgerUnavailable``: it cannot be read.
    """
    newest = max(sink_epochs.values(), default=0) if sink_epochs else pipeline.epoch
    intents = tuple(ledger.intent(pipeline.name, number) for number in (newest, newest + 1))
    head = ledger.head(pipeline.name)
    recorded = head.epoch.number if head else 0
    if not sink_epochs and recorded > newest:
        return None  # recorded while this was read
    entry = next((candidate for candidate in ledger.pipelines() if candidate.name == pipeline.name), pipeline)
    records = ledger.epochs(pipeline.name, max(1, recorded - RECENT + 1)) if recorded else ()
    events = ledger.events(pipeline.name, WINDOW)
    return begun(PipelineSnapshot(entry.generation, newest, intents, events, records, now_ms, sink_epochs or {}))
