"""Resolve unknown commits of a history into one reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from onceonly_lab.checker.case import Call, Case, Commit, Read
from onceonly_lab.checker.shares import for_sink
from onceonly_lab.history import Kind, Mark, Row

# ---- One reading of a history: which of the commits with an unknown outcome landed. Pure.
#
# An unknown commit may have landed or not, and a run is wrong only if *no* choice explains what was read. What one
# sink shows of one epoch depends on the commits of that epoch to that sink alone, so the choice is made for each of
# these places by itself, over all of its unknown commits: where a read shows the epoch and no certain commit accounts
# for it, or no read can tell, the one that fits best is taken to have landed. Fitting is, in this order: being shown
# at all, the generation that the marker names, the rows that are there, as many as can be, no fence that had replaced
# its own, bytes that were staged before, and having been sent first. Rules then judge this one reading: if even the
# best choice does not fit, they say so.

Place = tuple[str, int]
"""A sink and an epoch."""

Shown = Mapping[int | None, Counter[str]]
"""What a read shows, by epoch: how often each identity is there. ``None``: rows of which no epoch is known."""


@dataclass(frozen=True)
class Reading:
    """A case, and what is taken to have happened.

    Attributes:
        case: the facts.
        landed: by sink and epoch, the commits that landed; the first one explains what is there.
    """

    case: Case
    landed: Mapping[Place, tuple[Commit, ...]]

    def landings(self, sink: str, epoch: int) -> tuple[Commit, ...]:
        """The commits that brought an epoch to a sink; more than one is one too many."""
        return self.landed.get((sink, epoch), ())

    def explains(self, sink: str, epoch: int) -> Commit | None:
        """The commit that brought an epoch to a sink."""
        return next(iter(self.landings(sink, epoch)), None)

    def epochs(self, sink: str) -> list[int]:
        """Epochs that landed in a sink, in order."""
        return sorted(epoch for where, epoch in self.landed if where == sink)

    def home(self, sink: str, identity: str) -> int | None:
        """The epoch that brought a row, by what commits to this sink, or else to any, say of themselves."""
        return self._homes.get((sink, identity), self._homes.get(("", identity)))

    @cached_property
    def _homes(self) -> dict[tuple[str, str], int]:
        homes: dict[tuple[str, str], int] = {}
        landed = [commit for group in self.landed.values() for commit in group]
        sent = [commit for group in self.case.commits.values() for commit in group]
        for commit in (*landed, *sent):
            for identity in commit.epochs_rows:
                homes.setdefault((commit.sink, identity), commit.epoch)
                homes.setdefault(("", identity), commit.epoch)
        return homes

    def shown(self, read: Read) -> Shown:
        """The rows of a read by their epoch: the one that brought them, else the one they name themselves."""
        if read.at not in self._shown:
            rows_by_epoch: dict[int | None, Counter[str]] = {}
            for row in read.rows or ():
                home = self.home(read.sink, row.identity)
                rows_by_epoch.setdefault(row.epoch if home is None else home, Counter())[row.identity] += 1
            self._shown[read.at] = rows_by_epoch
        return self._shown[read.at]

    def part(self, read: Read, epoch: int | None) -> Counter[str]:
        """The rows of one epoch in a read."""
        return self.shown(read).get(epoch, Counter())

    @cached_property
    def _shown(self) -> dict[int, Shown]:
        return {}


def interpret(case: Case) -> Reading:
    """Choose the reading that explains most."""
    chosen = {sink_epoch: _landed(case, sink_epoch) for sink_epoch in case.commits}
    return Reading(case, {sink_epoch: commits for sink_epoch, commits in chosen.items() if commits})


def shows(read: Read, commit: Commit) -> bool:
    """Whether a read shows anything of a commit's epoch: its marker, a row that names it, or a row it brings."""
    return _marked(read, commit) or _filled(read, commit)


def _marked(read: Read, commit: Commit) -> bool:
    return read.markers is not None and commit.epoch in read.markers


def _filled(read: Read, commit: Commit) -> bool:
    brought = commit.rows or frozenset[str]()
    return any(row.epoch == commit.epoch or (row.epoch is None and row.identity in brought) for row in read.rows or ())


def witnesses(case: Case, commit: Commit) -> list[Read]:
    """The reads that can tell whether a commit landed: after it was sent, before the sink was restored."""
    reads = case.seen(commit.sink)
    return [read for read in reads if read.at > commit.at and case.last_restore(commit.sink, read.at) < commit.at]


def not_before(case: Case, commit: Commit) -> int:
    """The line after which a commit landed, if it did: it was sent, and reads that began later did not show it yet.

    Rows are compared with rows and markers with markers. Rows of an empty epoch are never missed, and a read that may
    show a part of an epoch may show nothing of it.
    """
    reads = witnesses(case, commit) if commit.sink in case.whole else []
    marked = [(read, _marked(read, commit)) for read in reads if read.markers is not None]
    filled = [(read, _filled(read, commit)) for read in reads if read.rows is not None and commit.rows]
    latest = max((commit.at, *_blank(marked), *_blank(filled)))
    # A sink may show an epoch some time after its yes: then the yes is when it landed.
    return (
        latest if commit.known is None or commit.outcome is not Kind.OK else max(commit.at, min(latest, commit.known))
    )


def _blank(reads: list[tuple[Read, bool]]) -> list[int]:
    """Where those reads began that came before the first one that shows it; none if no read ever does."""
    first = next((number for number, (_, showed) in enumerate(reads) if showed), 0)
    return [read.began for read, _ in reads[:first] if read.began is not None]


def replaced_by(case: Case, commit: Commit) -> Call | None:
    """The fence that had replaced a commit's own in the sink before it landed; ``None`` if none had."""
    landed = not_before(case, commit)
    since = case.last_restore(commit.sink, landed)
    installs = [
        call
        for call in case.fences(commit.sink)
        if call.outcome is Kind.OK and since < (call.answered or call.at) < landed
    ]
    own = max((call.at for call in installs if call.who == commit.call.who and call.at < commit.at), default=0)
    return next((call for call in installs if call.who != commit.call.who and _beats(call, commit, own)), None)


def _beats(install: Call, commit: Commit, own: int) -> bool:
    """An equal generation belongs to whoever installed it last."""
    theirs, ours = install.said.generation, commit.generation
    if theirs is None or ours is None:
        return install.at > own > 0
    return theirs > ours or (theirs == ours and install.at > own)


def staged_too_late(case: Case, commit: Commit) -> bool:
    """Whether a commit names bytes of which no staging had begun when it was sent."""
    manifest = commit.call.said.manifest
    if manifest is None:
        return False
    stage = case.stages.get(manifest)
    if stage is None:
        return True
    return commit.at < (stage.answered or stage.at)


def _landed(case: Case, sink_epoch: Place) -> tuple[Commit, ...]:
    sent = case.commits[sink_epoch]
    certain = tuple(commit for commit in sent if commit.outcome is Kind.OK)
    unknown = [commit for commit in sent if commit.outcome is Kind.INFO]
    if certain or not unknown:
        return certain
    best = min(unknown, key=lambda commit: _misfits(case, commit))
    if any(shows(read, commit) for commit in unknown for read in witnesses(case, commit)):
        return (best,)
    denied = any(read.final and (best.rows or read.markers is not None) for read in witnesses(case, best))
    return () if denied or replaced_by(case, best) or staged_too_late(case, best) else (best,)


def _misfits(case: Case, commit: Commit) -> tuple[bool, bool, bool, int, bool, bool, int]:
    reads = [read for read in witnesses(case, commit) if shows(read, commit)]
    marks = [read.markers[commit.epoch] for read in reads if read.markers and commit.epoch in read.markers]
    # A sink that shows epochs whole never showed a part of what landed; another one may, until its last read.
    decisive_reads = reads if commit.sink in case.whole else reads[-1:]
    return (
        not reads and commit.rows is not None,  # who does not say what it brings is shown by what another one brings
        not _named_by(marks[-1] if marks else None, commit),
        not all(_fits(read, commit) for read in decisive_reads),
        -len(commit.rows or ()),  # of what fits, the one that explains most
        replaced_by(case, commit) is not None,
        staged_too_late(case, commit),
        commit.at,
    )


def _named_by(mark: Mark | None, commit: Commit) -> bool:
    return mark is None or None in (mark.generation, commit.generation) or mark.generation == commit.generation


def _fits(read: Read, commit: Commit) -> bool:
    if read.rows is None or commit.rows is None:
        return True
    there = {row.identity for row in read.rows if row.epoch in (None, commit.epoch)}
    tagged = {row.identity for row in read.rows if row.epoch == commit.epoch}
    return commit.rows <= there and tagged <= commit.rows


# ---- What ought to be in a sink: the oracles of golden run and row identity. Pure.
#
# A golden run says what is right for any plan, rows counted and with their values; where rows are replaced, values
# are those of the end, for nobody knows in which others a reader may find them before. Without one, rows of the input
# are expected as they are, once each: right for plans that keep every row and its identity. The user's own assertions
# are the third oracle; they are judged where they were answered.


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sink ought to hold.

    Attributes:
        due: how often each identity must be there at the end.
        known: how often each identity may be there; ``None`` where nothing is known of the input.
        values: golden values, by identity.
        keeps: a row that is there once has its last value.
    """

    due: Counter[str]
    known: Counter[str] | None
    values: dict[str, frozenset[str | None]]
    keeps: bool = True

    def times(self, identity: str) -> int:
        """How often a row may be there."""
        return max(1, self.known[identity]) if self.known else 1

    def allows(self, row: Row, *, final: bool) -> bool:
        """Whether the row is one that somebody could have written; ``final``: in the last read of a sink."""
        if row.identity in self.values and row.value is not None and (final or self.keeps):
            return row.value in self.values[row.identity]
        return self.known is None or row.identity in self.known


def expected(reading: Reading, sink: str) -> Expected:
    """What a sink ought to hold at the end, and what it may hold at any time."""
    case = reading.case
    if sink in case.golden:
        keeps = all(promise.keeps for promise in case.header.sinks if promise.sink == sink)
        return _golden(case.golden[sink], case.settled, keeps=keeps)
    due = Counter(dict.fromkeys(_due(reading, sink), 1))
    sent = {identity for group in case.commits.values() for commit in group for identity in commit.epochs_rows}
    earlier_ids = {row.identity for entry in case.former for row in entry.rows or ()}
    allowed = Counter(dict.fromkeys({*case.ranks, *earlier_ids} if case.inputs else sent, 1))
    return Expected(due, allowed if case.inputs or sent else None, {})


def _replaced_by(commit: Commit) -> range:
    first, last = commit.call.said.replaces or (1, 0)
    return range(first, last + 1)


def excused(case: Case, sink: str) -> bool:
    """Whether a sink was restored and the pipeline stopped because of it: what is missing then is not its doing."""
    stopped = case.settle is not None and case.settle.outcome is Kind.FAIL
    return stopped and any(case.restores.values()) and sink in case.sinks


def _golden(rows: tuple[Row, ...], settled: bool, *, keeps: bool) -> Expected:
    counts = Counter(row.identity for row in rows)
    values: dict[str, set[str | None]] = {}
    for row in rows:
        if row.value is not None:
            values.setdefault(row.identity, set()).add(row.value)
    frozen = {identity: frozenset(row_values) for identity, row_values in values.items()}
    # A pipeline that stopped for a reason holds rows that were to be replaced.
    return Expected(counts if settled else Counter(), counts, frozen if settled or keeps else {}, keeps)


def _due(reading: Reading, sink: str) -> Iterator[str]:
    """All input once it was taken; before, what the sink, the ledger or the engine's callback said yes to."""
    case = reading.case
    if case.settled and case.ranks:
        yield from case.ranks.keys() - rows_for_others(reading, sink)
        return
    reported_epochs = {call.said.epoch for call in case.told if call.said.epoch is not None}
    gone = {epoch for commits in reading.landed.values() for commit in commits for epoch in _replaced_by(commit)}
    for epoch in {*reported_epochs, *reading.epochs(sink)} - gone:
        commits = (reading.explains(candidate, epoch) for candidate in (sink, *case.sinks))
        told_of = (for_sink(case, commit, sink) for commit in commits if commit)
        yield from next((commit.rows for commit in told_of if commit.rows is not None), ())


def rows_for_others(reading: Reading, sink: str) -> set[str]:
    """Rows of epochs that the sink holds and that are not for it."""
    held = [commit for epoch in reading.epochs(sink) if (commit := reading.explains(sink, epoch))]
    return {identity for commit in held for identity in commit.bad | commit.unwanted}
