"""Resume point of an older job, by checkpoint and output. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from onceonly.protocol.values import AppTransaction


@dataclass(frozen=True, slots=True)
class LegacyJob:
    """Facts about a job that is to become a pipeline.

    ``problem`` is empty for a sound checkpoint. ``planned`` and ``finished`` are the newest batches, -1 for none.
    ``app`` is the ``txnAppId`` of its writes, empty if none. ``wrote`` has its newest write by sink id, ``None`` if the
    sink keeps no such record.
    """

    checkpoint: str
    problem: str
    planned: int
    finished: int
    app: str = ""
    wrote: tuple[tuple[str, AppTransaction | None], ...] = ()


@dataclass(frozen=True, slots=True)
class UnprovenStart:
    """Why a starting point cannot be proven: the details of E221."""

    reason: str
    cause: str
    next: str


@dataclass(frozen=True, slots=True)
class Start:
    """A proven starting point, after the last batch in the target. ``proof`` is in sentences."""

    batch: int
    proof: tuple[str, ...]


def decide(job: LegacyJob) -> Start | UnprovenStart:
    """Return the starting point of a pipeline that takes a job over."""
    return (
        _unsound(job) or _never_finished(job) or _not_recorded(job) or _elsewhere(job) or _pending(job) or _proven(job)
    )


def _unsound(job: LegacyJob) -> UnprovenStart | None:
    if not job.problem:
        return None
    verify = f"see all that is wrong: onceonly checkpoint {shlex.quote(job.checkpoint)} --verify"
    return UnprovenStart(job.problem, "the checkpoint is damaged, or it is no checkpoint", verify)


def _never_finished(job: LegacyJob) -> UnprovenStart | None:
    if job.finished >= 0:
        return None
    return UnprovenStart(
        "no batch of it was ever finished",
        "the job has not run yet, or the checkpoint is another one",
        "if the target is empty there is nothing to take over: just start the query with exactly_once()",
    )


def _not_recorded(job: LegacyJob) -> UnprovenStart | None:
    if not job.app:
        return None
    for sink, wrote in job.wrote:
        if wrote is None:
            return UnprovenStart(
                f"{sink} keeps no application transactions",
                "--from-delta-txn asks Delta tables, and was given another sink",
                "take over one Delta sink alone; the others join later, with Recovery(adopt=)",
            )
        if wrote.version is None:
            return UnprovenStart(
                f'{sink} holds no transaction of application "{job.app}"',
                "another txnAppId, another table, or the option was never set",
                "look for txnAppId in the old job; without one, leave --from-delta-txn out",
            )
        if disturbed := [event for event in wrote.since if event.fatal]:
            return UnprovenStart(
                f"{sink} was changed since the job wrote its batch {wrote.version}: {disturbed[0].detail}",
                "a RESTORE, overwrite or delete, which leaves the transaction as it was",
                "compare the table with its source; if its rows are as wanted, leave --from-delta-txn out",
            )
    return None


def _elsewhere(job: LegacyJob) -> UnprovenStart | None:
    """Refuse a table that is not at the checkpoint's batch. One batch ahead is the crash window, and not yet wrong."""
    for sink, wrote in job.wrote:
        version = wrote.version if wrote else None
        if version is not None and version not in {job.finished, job.planned}:
            ahead = version > job.finished
            return UnprovenStart(
                f"{sink} was last written as batch {version}, and the checkpoint's last batch is {job.finished}",
                "the checkpoint is not the one that wrote the table, or it was rolled back"
                if ahead
                else "the table is not the one that was written, or the job wrote nothing for some batches",
                "give the checkpoint that belongs to this table"
                if ahead
                else f"if nothing was to be written for the batches after {version}, leave --from-delta-txn out",
            )
    return None


def _pending(job: LegacyJob) -> UnprovenStart | None:
    if job.planned == job.finished or (
        job.wrote and all(wrote.version == job.finished for _, wrote in _sink_transactions(job))
    ):
        return None
    what = "is in the table and not yet marked as finished" if job.wrote else "may have been written in part"
    return UnprovenStart(
        f"batch {job.planned} is planned and not finished: it {what}",
        "the job was stopped, or died, in the middle of a batch",
        f"start the old job once more until it has finished batch {job.planned}, stop it while it is idle, then repeat",
    )


def _sink_transactions(job: LegacyJob) -> list[tuple[str, AppTransaction]]:
    return [(sink, wrote) for sink, wrote in job.wrote if wrote is not None]


def _proven(job: LegacyJob) -> Start:
    proof = [f"the checkpoint is sound, and batch {job.finished} is the last one that was finished"]
    proof += [
        f'{sink}: application "{job.app}" last wrote version {wrote.version}' for sink, wrote in _sink_transactions(job)
    ]
    if job.planned > job.finished:
        proof.append(f"batch {job.planned} was planned and not written: Spark offers it again, and it is epoch 2")
    return Start(job.finished, tuple(proof))
