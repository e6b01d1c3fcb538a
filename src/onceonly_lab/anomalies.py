"""Anomaly pages: symptom, usual cause, and first places to look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onceonly_lab.checker import MUST_HOLD, Anomaly


@dataclass(frozen=True, slots=True)
class Page:
    """The texts of one anomaly; what must hold says :data:`~onceonly_lab.checker.MUST_HOLD`.

    Attributes:
        what: what was seen.
        cause: what usually breaks the promise.
        remedy: where to look first.
    """

    what: str
    cause: str
    remedy: str


PAGES: dict[Anomaly, Page] = {
    Anomaly.LOSS: Page(
        "Rows of the input are missing in a sink at the end.",
        "the marker, or the position in the source, became durable before the rows; a lost request was taken for a "
        "commit; a batch was skipped because of its number alone",
        "find the last commit of the epoch in the history: was its outcome looked up before the batch was reported as "
        "done? If no commit was ever sent, look at why the batch was skipped",
    ),
    Anomaly.DUP: Page(
        "A read shows a row more often than the input has it.",
        "rows and marker are two transactions; a commit whose answer was lost was sent again; two drivers wrote and "
        "the sink did not check the fence inside its transaction",
        "compare the commits that brought the row: the same driver twice means an outcome that was not looked up, two "
        "drivers mean a fence that is not checked where the rows are written",
    ),
    Anomaly.PHANTOM: Page(
        "A read shows a row that no epoch with a marker brought.",
        "the reader sees transactions that are not committed, or that were rolled back; rows of an attempt that failed "
        "stayed behind; rows are visible before their marker",
        "check the isolation of the reader first (Kafka: isolation.level=read_committed), then what the sink does with "
        "the rows of a failed attempt",
    ),
    Anomaly.TORN: Page(
        "A read shows some rows of an epoch and not the others.",
        "the sink writes row by row, or in several transactions; a staged file was cut off and nobody compared its "
        "digest; a late commit of an old producer took part of the next transaction with it",
        "count the rows of the epoch in later reads: if they become whole, rows are visible before the commit; if they "
        "stay part, look at how the commit was built and at the digest of the staged files",
    ),
    Anomaly.CROSS: Page(
        "Two sinks hold different rows for the same epoch.",
        "each sink, or each attempt, computed the batch for itself, and the plan does not give the same rows twice "
        "(rand(), the clock, an order that is not fixed)",
        "compare the digests of the commits in the finding's lines: both sinks must have been given the same staged "
        "files, the ones that the markers name",
    ),
    Anomaly.ORDER: Page(
        "Rows of one key stand in a sink in another order than in the input.",
        "several partitions were written at the same time; the sort was lost in a later step of the plan",
        "look at how many writers the sink used, and at whether its order is promised at all: only order_by= does that",
    ),
    Anomaly.GAP: Page(
        "An epoch does not start where the one before it ended.",
        "the checkpoint was deleted, rolled back or replaced, and the next batch was cut otherwise; the source does "
        "not have the missing part any more",
        "compare the slices of both epochs with the offset log of the checkpoint. Of a real pipeline: "
        "onceonly checkpoint PATH",
    ),
    Anomaly.EARLY: Page(
        "Rows of an epoch were visible before its bytes were staged, or before its commit was sent.",
        "the sink writes where readers look and not where they do not; the commit was sent while files were still "
        "being written",
        "look at the first read in the finding's lines, and at which step of the writing driver stands before it",
    ),
    Anomaly.REGRESS: Page(
        "A reader saw a row or a marker, and later it was gone.",
        "rows were shown that were rolled back afterwards; a retry deleted an epoch to write it again; the target was "
        "restored and the history does not say so",
        "look between the two reads in the finding's lines: a commit there rewrites, a restore there must be recorded",
    ),
    Anomaly.AUDIT: Page(
        "The ledger, or what the engine was told, disagrees with a sink.",
        "an epoch was recorded, or its batch reported as done, before the last sink had committed it; a request that "
        "got lost was taken for a commit",
        "find the record of the epoch and the commits to every sink: none may come after it. Of a real pipeline: "
        "onceonly audit --query NAME",
    ),
    Anomaly.ZOMBIE: Page(
        "A sink took a write under a fence that another fence had already replaced there.",
        "the fence is checked before the transaction and not in it; generations are compared without owners; a version "
        "is read on one handle and committed by another; a lower generation was accepted once the ledger was lost",
        "look at the driver that wrote and at the fence in the finding's lines: the check must be part of the same "
        "transaction as the rows",
    ),
    Anomaly.STUCK: Page(
        "Nothing was broken any more, and yet not all input was taken, or something stayed open.",
        "staged files were removed before every sink had the epoch; a transaction or a lock of a dead driver stayed "
        "open; recovery was interrupted and cannot be repeated",
        "look at what the last driver said before it stopped, then at what the final reads list as left behind. Of a "
        "real pipeline: onceonly status --in-doubt",
    ),
    Anomaly.NONDET: Page(
        "A batch that was computed again gave other rows, though its plan is said to be deterministic.",
        "the plan uses rand(), the clock, an order that is not fixed or sums of floats; the source gave other rows for "
        "the same offsets",
        "compare both computations in the finding's lines, and take the plan apart: what reads time, chance or order?",
    ),
    Anomaly.BALANCE: Page(
        "What the marker of a sink accounts for is not all rows of its epoch: held there, not wanted there, or bad.",
        "rows were left out before they were counted; what an output does not want was derived and not counted; rows "
        "were withheld from one sink only",
        "compare the three numbers of the marker with the rows of the slice in the finding's lines. Of a real "
        "pipeline: onceonly epochs list --query NAME",
    ),
    Anomaly.ASIDE: Page(
        "A bad row is not in the quarantine of its epoch, is there twice, or stands in another sink as well.",
        "bad rows were written when they were found and not with the epoch's marker; a row was withheld only from the "
        "sink that refuses it; whoever healed a sink judged the rows anew",
        "look at the staging that the epoch's commits name: what it calls bad must be in the quarantine alone, in the "
        "same epoch, whoever brought it there",
    ),
    Anomaly.AGAIN: Page(
        "A sink that takes each key once holds two rows of one key.",
        "the catalogue of keys was read before the fence stood; keys entered it in another transaction than the "
        "marker; a key was forgotten while its row still stood",
        "find the epochs of both rows: when the later one was staged, did the catalogue hold all keys of the earlier "
        "one, and under which fence was it read?",
    ),
    Anomaly.TIME: Page(
        "Rows of an epoch are there and nothing is said of their time, or what was said of time is taken back.",
        "time is written in a transaction of its own, beside the marker; what is noted follows what was said last; a "
        "position was put back and began no turn of its own",
        "compare the times of both epochs in the finding's lines: were both in the transaction of their rows, and of "
        "one turn? Of a real pipeline: onceonly time show --history --query NAME",
    ),
    Anomaly.PANE: Page(
        "The windows of an epoch hold other rows than the epochs up to it have brought.",
        "state was read before the fence stood, or under another driver's; state was committed in another transaction "
        "than the rows; an epoch that was computed again found what it had itself left in the state",
        "compare what the marker says of its windows with the rows of the epochs before, in the finding's lines: which "
        "epoch is the first to differ, and when was its state read? Of a real pipeline: onceonly windows show --query "
        "NAME",
    ),
}
"""One page each, in the order of the anomalies."""


def explained() -> Mapping[str, Mapping[str, str]]:
    """What ``onceonly explain`` prints of each; entry point ``lab`` of the group ``onceonly.pages``."""
    return {
        anomaly: {
            "what": page.what,
            "must hold": MUST_HOLD[anomaly],
            "likely cause": page.cause,
            "next": page.remedy,
        }
        for anomaly, page in PAGES.items()
    }
