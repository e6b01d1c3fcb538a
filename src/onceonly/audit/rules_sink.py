"""Rules over one sink: markers, chain, slices and counted rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from onceonly.audit.rules_division import bad_rows, results_stand, state_stands
from onceonly.audit.rules_time import times_match
from onceonly.audit.rules_total import files_there, ids_known, rows_in_all, rows_uncounted
from onceonly.audit.sink_history import Evidence, SinkHistory, ranges
from onceonly.machine.source_order import Order, describe, order
from onceonly.protocol.values import ExpiredRows, PrunedEpochs
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import SEEN_IDS
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.model import AdoptionKind

SinkRule = Callable[[SinkHistory], Iterator[Evidence]]


def history_starts_late(line: SinkHistory) -> Iterator[Evidence]:
    """A103, A104: the oldest marker is younger than the sink's first epoch."""
    if line.oldest <= line.first:
        return
    proven = {epoch.number for epoch in line.proven}
    early = range(line.first, line.oldest)
    proven_numbers = tuple(number for number in early if number in proven)
    unknown = tuple(number for number in early if number not in proven)
    oldest = f"the oldest marker is that of epoch {line.oldest}"
    if unknown:
        yield Evidence("A104", unknown[0], f"{oldest}; nothing proves epochs {ranges(unknown)}", last=unknown[-1])
    if proven_numbers:
        counted = sum(1 for number in proven_numbers if line.sink.rows and number in line.sink.rows)
        proof = f"epochs {ranges(proven_numbers)} are proven by the ledger, rows of {counted} of them are still counted"
        yield Evidence("A103", proven_numbers[0], f"{oldest}; {proof}", last=proven_numbers[-1])


def markers_pruned(line: SinkHistory) -> Iterator[Evidence]:
    """A112, A121, A122, A166: the markers below a milestone are gone, so their rows are compared in sum.

    Rows that an operator accepted as they were are not compared, as in :func:`rows_match`.
    """
    gone = line.sink.milestone
    if gone is None:
        return
    following = next((epoch for epoch in line.held if epoch.number == gone.epoch + 1), None)
    if following is not None and following.previous_chain != gone.chain:
        names = f"epoch {following.number} follows chain {following.previous_chain[:12]}"
        evidence = f"{names}, but the milestone of epoch {gone.epoch} has {gone.chain[:12]}"
        yield Evidence("A112", following.number, evidence)
    start = f"from {gone.accepted + 1} on, after what was accepted," if gone.accepted else ""
    upto = f"epochs {f'{start} ' if start else ''}up to {gone.epoch} brought {gone.rows} rows"
    if line.sink.rows is None:
        yield Evidence("A166", gone.epoch, upto)
        return
    counted = sum(count for number, count in line.sink.rows.items() if gone.accepted < number <= gone.epoch)
    replaced = line.series > gone.epoch
    expected = 0 if replaced else gone.rows
    upto = f"{upto}, which epoch {line.series} has replaced," if replaced else upto
    expired = None if replaced else line.sink.expired
    if expired is not None:
        expected = _left(gone, expired, counted)
        upto = f"{upto}, of which {expired.total} were removed after their time"
    # What was accepted in a later epoch covers all of these.
    same = counted == expected or line.accepted > gone.epoch
    code = "A166" if same else "A121" if counted < expected else "A122"
    yield Evidence(code, gone.epoch, f"{upto} in all, {counted} are there")


def _left(gone: PrunedEpochs, expired: ExpiredRows, counted: int) -> int:
    """Compute the rows that expiry has left of the epochs below a milestone."""
    if expired.epoch > gone.epoch:
        return 0
    least = gone.rows - expired.total
    # Of those that were removed some may be of epochs that an operator took as they were, which are not summed up.
    return min(max(counted, least), gone.rows) if gone.accepted else least


def marker_missing(line: SinkHistory) -> Iterator[Evidence]:
    """A111: a hole between two markers."""
    proven = {epoch.number for epoch in line.proven}
    for number in line.lost:
        if number > line.oldest:
            also = "the ledger's record of it fits in" if number in proven else "no record fits in its place"
            yield Evidence(
                "A111", number, f"epochs {number - 1} and {number + 1} or later stand, {number} does not; {also}"
            )


def marker_twice(line: SinkHistory) -> Iterator[Evidence]:
    """A117: one number in two markers of one sink."""
    locations: dict[int, str] = {}
    for marker, receipt in line.sink.history:
        where = ", ".join(f"{name} {value}" for name, value in receipt.position) or "no position"
        number = marker.epoch.number
        if number in locations:
            yield Evidence("A117", number, f"epoch {number} at {locations[number]} and again at {where}")
        locations.setdefault(number, where)


def marker_unsound(line: SinkHistory) -> Iterator[Evidence]:
    """A110: the chain of a marker is not the hash of its content."""
    for epoch in line.held:
        if not chain.sound(epoch):
            yield Evidence(
                "A110", epoch.number, f"chain {epoch.chain[:12]} does not match the slice, digest and schema beside it"
            )


def chain_broken(line: SinkHistory) -> Iterator[Evidence]:
    """A112: an epoch names another predecessor than the sink's own."""
    if line.held and line.held[0].number == 1 and line.held[0].previous_chain != chain.GENESIS:
        yield Evidence("A112", 1, f"epoch 1 names a predecessor, chain {line.held[0].previous_chain[:12]}")
    for before, after in _neighbours(line):
        if after.previous_chain != before.chain:
            chains = f"chain {after.previous_chain[:12]}, but epoch {before.number} has {before.chain[:12]}"
            yield Evidence("A112", after.number, f"epoch {after.number} follows {chains}")


def slices_contiguous(line: SinkHistory) -> Iterator[Evidence]:
    """A113, A114, A115: an epoch starts elsewhere than the one before it ended, and begins no series."""
    codes = {Order.AFTER: "A113", Order.BEFORE: "A114", Order.UNCLEAR: "A115"}
    for before, after in _neighbours(line):
        if after.replaces:
            continue
        ordering = order(after.written.start, before.written.end)
        if ordering in codes:
            end, start = describe(before.written.end), describe(after.written.start)
            evidence = f"epoch {before.number} ends at {end}, epoch {after.number} starts at {start}"
            yield Evidence(codes[ordering], after.number, evidence)


def adoptions(line: SinkHistory) -> Iterator[Evidence]:
    """A116, A198: an operator moved positions, possibly without knowing which epochs that repeats."""
    for epoch in line.epochs:
        if epoch.adoption is not None:
            moved = f"from {describe(epoch.written.start)} to {describe(epoch.written.end)}"
            yield Evidence("A116", epoch.number, f"{epoch.adoption.words}: {moved}")
            if epoch.adoption.kind is AdoptionKind.CONTINUE and epoch.adoption.first:
                evidence = f"{epoch.adoption.words}, by epoch {epoch.number}: where the batch began was not to be seen"
                yield Evidence("A198", epoch.adoption.first, evidence, last=epoch.adoption.last)


def fences_ascend(line: SinkHistory) -> Iterator[Evidence]:
    """A118: generations never fall along the history, and one generation has one owner."""
    for (before, _), (after, _) in pairwise(line.sink.history):
        old, new = before.fence, after.fence
        if new.generation < old.generation or (new.generation == old.generation and new.owner != old.owner):
            evidence = (
                f"epoch {before.epoch.number} by generation {old.generation} ({old.owner[:8]}), "
                f"then epoch {after.epoch.number} by generation {new.generation} ({new.owner[:8]})"
            )
            yield Evidence("A118", after.epoch.number, evidence)


def rows_match(line: SinkHistory) -> Iterator[Evidence]:
    """A121, A122, A125: counted rows against the digest of each epoch, none where a full refresh replaced them."""
    rows = line.sink.rows
    if rows is None or line.kind == SEEN_IDS:
        return  # of ids those that are known are told, by A190
    for epoch in line.epochs:
        # A fence can repeat a marker whose own commit has aged out: the oldest one may be uncounted, too.
        aged = line.first < line.oldest >= epoch.number and epoch.number not in rows
        if aged or epoch.number > line.sink.counted:
            continue
        replaced = epoch.number < line.series
        held = epoch.digest_in(line.sink.id).rows
        counted, expected = rows.get(epoch.number, 0), 0 if replaced else held
        removed = 0 if replaced else line.sink.allowed.removed.get(epoch.number, 0)
        expired = 0 if replaced else line.sink.gone(epoch)
        if counted + removed + expired != expected:
            short = expected - counted - removed - expired
            code, difference = ("A121", f"{short} missing") if short > 0 else ("A122", f"{-short} too many")
            there = f"{counted} are there{f' and {removed} were removed by others, allowed' if removed else ''}"
            there += f" and {expired} were removed after their time" if expired else ""
            brought = f"{held} rows were committed and left with epoch {line.series}"
            evidence = f"{brought if replaced else f'{expected} rows were committed'}, {there}: {difference}"
            accepted = epoch.number < line.accepted
            yield Evidence("A125" if accepted else code, epoch.number, evidence)


def rows_in_sum(line: SinkHistory) -> Iterator[Evidence]:
    """A154, A155: rows of the whole target, where others removed some and their epochs are unknown."""
    sums = line.sink.allowed.sums
    if sums is None or line.sink.rows is not None:
        return
    committed = sum(epoch.digest_in(line.sink.id).rows for epoch in line.epochs if epoch.number >= line.series)
    short = committed + sums.added - sums.removed - sums.accepted - sums.current_rows
    if short:
        accepted = f"{sums.accepted} gone with changes that were accepted, " if sums.accepted else ""
        evidence = (
            f"{committed} rows were committed and {sums.added} added by others, {sums.removed} removed by others, "
            f"{accepted}{sums.current_rows} stand: {f'{short} missing' if short > 0 else f'{-short} too many'}"
        )
        yield Evidence("A154" if short > 0 else "A155", None, evidence)


def changed_by_others(line: SinkHistory) -> Iterator[Evidence]:
    """A164, A109: changes by others that ``external_changes=`` permits."""
    changes = line.sink.allowed.changes
    for event in changes:
        yield Evidence("A164", None, event.detail)
    if any(event.kind == "overwritten" for event in changes):
        yield Evidence("A109", None, "others changed rows, which they may: see A164")


def rows_unnamed(line: SinkHistory) -> Iterator[Evidence]:
    """A123: rows of epochs that neither a marker nor a proven record names."""
    named = {epoch.number for epoch in line.epochs}
    forgotten = range(line.first, line.oldest)
    pruned = line.sink.milestone.epoch if line.sink.milestone else 0
    for number, count in sorted((line.sink.rows or {}).items()):
        if count and number > pruned and number not in named and number not in forgotten:
            yield Evidence(
                "A123", number, f"{count} rows carry epoch {number}; the newest marker is that of epoch {line.newest}"
            )


def rows_of_others(line: SinkHistory) -> Iterator[Evidence]:
    """A128: rows of no epoch, or of another pipeline."""
    count = (line.sink.rows or {}).get(0)
    evidence = [f"{count} rows besides those of the epochs"] if count else []
    evidence += [f'pipeline "{name}" writes to this very target' for name in line.sink.others]
    if evidence:
        yield Evidence("A128", None, "; ".join(evidence))


def receipts_match_digests(line: SinkHistory) -> Iterator[Evidence]:
    """A124: rows in the sink's receipt against rows in the digest."""
    for marker, receipt in line.sink.history:
        epoch, digest = marker.epoch, marker.epoch.digest_in(line.sink.id)
        if receipt.rows != digest.rows:
            yield Evidence("A124", epoch.number, f"receipt: {receipt.rows} rows, digest: {digest.rows}")


def content_matches(line: SinkHistory) -> Iterator[Evidence]:
    """A109, A129: hashes of each epoch's current rows against the committed digest."""
    content, state = line.sink.content, line.sink.state
    if content is None or any(event.kind == "overwritten" for event in line.sink.allowed.changes):
        return
    if state and state.digest:  # state has no rows of epochs: all that stands was hashed, see A176
        return
    unknown = tuple(epoch.number for epoch in line.unaltered if epoch.number not in content.digests)
    if unknown:
        evidence = f"epochs {ranges(unknown)}: {content.why}"
        yield Evidence("A109", unknown[0], evidence, last=unknown[-1])
    for epoch in line.unaltered:
        committed = epoch.digest_in(line.sink.id)
        current = content.digests.get(epoch.number, committed)
        if committed != current and not line.miscounted(epoch):
            evidence = f"committed {committed.text}, the current rows give {current.text} (rows, and their hash)"
            yield Evidence("A129", epoch.number, evidence)


def identity_changed(line: SinkHistory) -> Iterator[Evidence]:
    """A134: the target became another one between two epochs, without an adoption."""
    for (_, before), (marker, after) in pairwise(line.sink.history):
        # An epoch without rows may stand before the target does: it has no identity then.
        has_identities = before.identity and after.identity
        if has_identities and before.identity != after.identity and marker.epoch.adoption is None:
            evidence = f"epoch {before.epoch} is confirmed by {before.identity}, {after.epoch} by {after.identity}"
            yield Evidence("A134", after.epoch, evidence)


def target_disturbed(line: SinkHistory) -> Iterator[Evidence]:
    """A126, A127: changes by others to the target since the newest epoch."""
    for event in line.sink.disturbances:
        if event.allowed:
            continue  # A164 tells it
        evidence = f"{event.kind} since epoch {line.newest}: {event.detail}"
        yield Evidence("A126" if event.fatal else "A127", None, evidence)


def _neighbours(line: SinkHistory) -> Iterator[tuple[Epoch, Epoch]]:
    for before, after in pairwise(line.epochs):
        if after.number == before.number + 1:
            yield before, after


SINK_RULES: tuple[SinkRule, ...] = (
    history_starts_late,
    markers_pruned,
    marker_missing,
    marker_twice,
    marker_unsound,
    chain_broken,
    slices_contiguous,
    adoptions,
    fences_ascend,
    rows_uncounted,
    rows_match,
    rows_in_sum,
    rows_in_all,
    ids_known,
    files_there,
    rows_unnamed,
    rows_of_others,
    receipts_match_digests,
    content_matches,
    times_match,
    state_stands,
    results_stand,
    identity_changed,
    target_disturbed,
    changed_by_others,
    bad_rows,
)
"""Every rule over one sink."""
