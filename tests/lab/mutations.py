"""Small changes to the history of a right run, each of which breaks one promise and must be called by its name."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from onceonly_lab.history import LEDGER, OUTCOMES, Entry, History, Kind, Mark, Op, Range, Row

Mutation = Callable[["Clean"], History | None]


@dataclass
class Clean:
    """A right run that was settled, and a die."""

    history: History
    random: random.Random

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.history.entries

    def settled(self) -> bool:
        return any(entry.op is Op.SETTLE and entry.kind is Kind.OK for entry in self.entries)

    def with_entries(self, entries: Iterable[Entry]) -> History:
        return History(self.history.header, tuple(entries))

    def changed(self, old: Entry, new: Entry) -> History:
        return self.with_entries(new if entry is old else entry for entry in self.entries)

    def reads(self, sink: str | None = None) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind is Kind.READ and sink in (None, entry.sink)]

    def final(self, sink: str) -> Entry:
        return next(entry for entry in reversed(self.entries) if entry.final and entry.sink == sink)

    def sink(self) -> str:
        return self.random.choice(self.history.header.sinks).sink

    def content(self, sink: str) -> dict[int, tuple[Row, ...]]:
        """Rows of every epoch that landed, by what its commits say of themselves."""
        chunks = [entry.rows or () for entry in self.entries if entry.op is Op.INPUT]
        slices = {
            mark.epoch: entry.slice
            for entry in self.entries
            for mark in self.final(sink).markers or ()
            if entry.op is Op.COMMIT and entry.slice and (entry.sink, entry.epoch) == (sink, mark.epoch)
            if entry.digest == mark.digest
        }
        return {
            epoch: tuple(row for chunk in chunks[part[0].start : part[0].end] for row in chunk)
            for epoch, part in slices.items()
        }

    def epoch(self, sink: str, least: int = 1) -> tuple[int, set[str]] | None:
        """An epoch of at least so many rows, and their identities."""
        found = [(epoch, rows) for epoch, rows in self.content(sink).items() if len(rows) >= least]
        if not found:
            return None
        epoch, rows = self.random.choice(found)
        return epoch, {row.identity for row in rows}

    def lone_commit(self, sink: str) -> Entry | None:
        """The commit of an epoch that was sent to the sink once, and said yes."""
        sent: dict[int | None, list[Entry]] = {}
        for entry in self.entries:
            if entry.op is Op.COMMIT and entry.sink == sink:
                sent.setdefault(entry.epoch, []).append(entry)
        lone = [group[0] for group in sent.values() if [one.kind for one in group] == [Kind.INVOKE, Kind.OK]]
        return self.random.choice(lone) if lone else None

    def dropping(self, sink: str, identities: set[str]) -> History:
        """Every read of the sink without these rows."""
        return self.with_entries(
            replace(entry, rows=tuple(row for row in entry.rows if row.identity not in identities))
            if entry.kind is Kind.READ and entry.sink == sink and entry.rows
            else entry
            for entry in self.entries
        )


def drop_an_epoch(run: Clean) -> History | None:
    commit = run.lone_commit(run.sink())
    rows = commit and commit.sink and run.content(commit.sink)[commit.epoch or 0]
    return run.dropping(commit.sink, {row.identity for row in rows}) if commit and commit.sink and rows else None


def drop_a_row(run: Clean) -> History | None:
    sink = run.sink()
    epoch = run.epoch(sink, least=2)
    return epoch and run.dropping(sink, {sorted(epoch[1])[0]})


def double_a_row(run: Clean) -> History | None:
    read = run.final(run.sink())
    return run.changed(read, replace(read, rows=(*read.rows, read.rows[-1]))) if read.rows else None


def double_everything_for_a_while(run: Clean) -> History | None:
    polls = [read for read in run.reads() if read.rows and not read.final]
    if not polls:
        return None
    read = run.random.choice(polls)
    return run.changed(read, replace(read, rows=(*(read.rows or ()), *(read.rows or ()))))


def swap_two_rows(run: Clean) -> History | None:
    ordered = [promise.sink for promise in run.history.header.sinks if promise.ordered]
    if not ordered:
        return None
    read = run.final(run.random.choice(ordered))
    rows = list(read.rows or ())
    for second in range(1, len(rows)):
        if rows[second].key == rows[second - 1].key:
            rows[second], rows[second - 1] = rows[second - 1], rows[second]
            return run.changed(read, replace(read, rows=tuple(rows)))
    return None


def move_a_row(run: Clean) -> History | None:
    read = run.final(run.sink())
    rows = read.rows or ()
    if not rows or rows[0].epoch is None:
        return None
    moved = replace(rows[0], epoch=rows[0].epoch + 1)
    return run.changed(read, replace(read, rows=(moved, *rows[1:])))


def add_a_stranger(run: Clean) -> History | None:
    read = run.final(run.sink())
    return run.changed(read, replace(read, rows=(*(read.rows or ()), Row("stranger"))))


def uncommit_an_epoch(run: Clean) -> History | None:
    """Its rows stay, its marker goes."""
    sink = run.sink()
    epoch = run.epoch(sink)
    return epoch and run.with_entries(
        replace(entry, markers=tuple(mark for mark in entry.markers if mark.epoch != epoch[0]))
        if entry.kind is Kind.READ and entry.sink == sink and entry.markers
        else entry
        for entry in run.entries
    )


def forget_for_a_while(run: Clean) -> History | None:
    sink = run.sink()
    reads = run.reads(sink)
    seen = [
        number for number in range(1, len(reads) - 1) if reads[number].rows and _alike(*reads[number - 1 : number + 1])
    ]
    if not seen:
        return None
    read = reads[seen[0]]
    return run.changed(read, replace(read, rows=(), markers=None if read.markers is None else ()))


def _alike(one: Entry, other: Entry) -> bool:
    return {row.identity for row in one.rows or ()} == {row.identity for row in other.rows or ()} and (
        one.markers == other.markers
    )


def unrecord_an_epoch(run: Clean) -> History | None:
    read = run.final(LEDGER)
    return run.changed(read, replace(read, markers=(read.markers or ())[:-1])) if read.markers else None


def record_an_epoch_that_is_nowhere(run: Clean) -> History | None:
    read = run.final(LEDGER)
    return run.changed(read, replace(read, markers=(*(read.markers or ()), Mark(99))))


def record_too_soon(run: Clean) -> History | None:
    first = next((entry for entry in run.entries if entry.op is Op.COMMIT and entry.kind is Kind.INVOKE), None)
    if first is None:
        return None
    record = Entry("driver", Kind.OK, Op.RECORD, sink=LEDGER, epoch=first.epoch)
    place = run.entries.index(first)
    return run.with_entries((*run.entries[:place], record, *run.entries[place:]))


def shift_a_slice(run: Clean) -> History | None:
    commit = run.lone_commit(run.sink())
    if commit is None or commit.rows is None or not commit.slice or commit.epoch == 1:
        return None
    part = commit.slice[0]
    return run.changed(commit, replace(commit, slice=(Range(part.partition, part.start + 9, part.end + 9),)))


def stage_too_late(run: Clean) -> History | None:
    landed = [run.lone_commit(promise.sink) for promise in run.history.header.sinks]
    manifests = [commit.manifest for commit in landed if commit and commit.manifest]
    if not manifests:
        return None
    answer = next(entry for entry in run.entries if entry.manifest == manifests[0] and entry.op is Op.STAGE)
    asked = replace(answer, kind=Kind.INVOKE, digest=None, manifest=None)
    return run.with_entries([*(entry for entry in run.entries if entry not in (asked, answer)), asked, answer])


def fence_a_writer(run: Clean) -> History | None:
    """Somebody else's fence is there before a commit that landed."""
    commit = run.lone_commit(run.sink())
    if commit is None or commit.generation is None:
        return None
    fence = Entry("other", Kind.OK, Op.INSTALL, sink=commit.sink, generation=commit.generation + 1, incarnation=1)
    place = run.entries.index(commit)
    return run.with_entries((*run.entries[:place], fence, *run.entries[place:]))


def never_finish(run: Clean) -> History | None:
    done = next(entry for entry in run.entries if entry.op is Op.SETTLE and entry.kind in OUTCOMES)
    return run.changed(done, replace(done, kind=Kind.INFO))


def leave_something_open(run: Clean) -> History | None:
    read = run.final(run.sink())
    return run.changed(read, replace(read, leaks=("transaction 812",)))


def compute_other_rows(run: Clean) -> History | None:
    computed = [entry for entry in run.entries if entry.op in (Op.STAGE, Op.PREPARE) and entry.digest]
    if not run.history.header.deterministic or not computed:
        return None
    again = replace(run.random.choice(computed), digest="other", manifest=None, incarnation=99)
    return run.with_entries((*run.entries, again))


def change_a_value(run: Clean) -> History | None:
    sinks = [promise.sink for promise in run.history.header.sinks]
    for left, right in pairwise(sinks):
        ours, theirs = run.final(left), run.final(right)
        if ours.rows and theirs.rows and ours.rows[0].value and theirs.rows[0].value:
            first, *rest = theirs.rows
            return run.changed(theirs, replace(theirs, rows=(replace(first, value="other"), *rest)))
    return None


def change_a_digest(run: Clean) -> History | None:
    if len(run.history.header.sinks) == 1:
        return None
    read = run.final(run.sink())
    first, *rest = read.markers or ()
    return run.changed(read, replace(read, markers=(replace(first, digest="other"), *rest)))


def change_the_only_digest(run: Clean) -> History | None:
    if len(run.history.header.sinks) > 1:
        return None
    read = run.final(run.sink())
    first, *rest = read.markers or ()
    return run.changed(read, replace(read, markers=(replace(first, digest="other"), *rest)))


MUTATIONS: dict[Mutation, str] = {
    drop_an_epoch: "X-LOSS",
    drop_a_row: "X-TORN",
    double_a_row: "X-DUP",
    double_everything_for_a_while: "X-DUP",
    swap_two_rows: "X-ORDER",
    move_a_row: "X-PHANTOM",
    add_a_stranger: "X-PHANTOM",
    uncommit_an_epoch: "X-PHANTOM",
    forget_for_a_while: "X-REGRESS",
    unrecord_an_epoch: "X-AUDIT",
    record_an_epoch_that_is_nowhere: "X-AUDIT",
    record_too_soon: "X-AUDIT",
    shift_a_slice: "X-GAP",
    stage_too_late: "X-EARLY",
    fence_a_writer: "X-ZOMBIE",
    never_finish: "X-STUCK",
    leave_something_open: "X-STUCK",
    compute_other_rows: "X-NONDET",
    change_a_value: "X-CROSS",
    change_a_digest: "X-CROSS",
    change_the_only_digest: "X-AUDIT",
}
"""What each of them must be called, and nothing else."""


def shuffle_rows(run: Clean) -> History:
    """Where no order is promised there is none."""
    free = {promise.sink for promise in run.history.header.sinks if not promise.ordered}

    def shuffled(entry: Entry) -> Entry:
        if entry.kind is not Kind.READ or entry.sink not in free or not entry.rows:
            return entry
        return replace(entry, rows=tuple(run.random.sample(entry.rows, len(entry.rows))))

    return run.with_entries(shuffled(entry) for entry in run.entries)


def rename_rows(run: Clean) -> History:
    def renamed(entry: Entry) -> Entry:
        rows = entry.rows
        return replace(entry, rows=rows and tuple(replace(row, identity=f"x{row.identity}") for row in rows))

    return run.with_entries(renamed(entry) for entry in run.entries)


def change_clocks(run: Clean) -> History:
    return run.with_entries(replace(entry, time=run.random.uniform(-1e9, 1e9)) for entry in run.entries)


def add_chatter(run: Clean) -> History:
    chatter = Entry("nemesis", Kind.FAULT, fault="sleep", note="a nap")
    return run.with_entries(line for entry in run.entries for line in (chatter, entry))


INVARIANCES = (shuffle_rows, rename_rows, change_clocks, add_chatter)
"""What must not change any verdict."""
