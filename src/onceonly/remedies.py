"""The ways out that messages, audit and documents print: the one that loses nothing first. Pure.

Each is a command that works as it stands; without ``--yes`` it prints its plan and the command that carries it out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from onceonly import acceptance
from onceonly_checkpoints.adoption import Adoption
from onceonly_checkpoints.epoch import EpochRecord


@dataclass(frozen=True, slots=True)
class Where:
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


def tally(records: Iterable[EpochRecord], first: int, last: int) -> str:
    """How many epochs and rows a range is: ``3 epochs, 30 rows``; rows only where all of them are on record."""
    known = {record.epoch.number: record.epoch.digest.rows for record in records}
    count = last - first + 1
    epochs = f"{count} epoch{'' if count == 1 else 's'}"
    if any(number not in known for number in range(first, last + 1)):
        return epochs
    rows = sum(known[number] for number in range(first, last + 1))
    return f"{epochs}, {rows} row{'' if rows == 1 else 's'}"


def set_back(where: Where, lost: Adoption, *, behind_others: bool, staged: bool, told: str, gone: str = "") -> str:
    """What can be done for a sink that no longer holds epochs which it once confirmed.

    Args:
        where: what the commands name.
        lost: the acceptance of the loss: sink and epochs.
        behind_others: whether other sinks of the pipeline stand further on.
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
    if behind_others:
        ways.append("(the other sinks stand further on: their rows cannot be brought to this one by a command yet)")
    elif lost.first > 1:
        rebuild = "onceonly ledger rebuild " + where.query
        ways.append(f"or, the source still holding the rows, nothing is lost by: {rebuild}")
        ways.append(f"and after it: {rewind(where, lost.first - 1)}")
    ways.append(f"or give up {told}: {where.adopt(lost)}")
    return "\n".join(ways)


def put_back(where: Where) -> str:
    """The way that writes the checkpoint anew, as it was after the newest epoch; what comes next begins on a line."""
    place = shlex.quote(where.checkpoint) if where.checkpoint else "PATH"
    return "put the checkpoint back:      onceonly checkpoint rebuild " + f"{place} {where.query}\nor "


def filled(where: Where) -> str:
    """The way that proves more by filling the ledger from the sinks; what comes next begins on a line."""
    return "fill the ledger and restart:  onceonly ledger rebuild " + f"{where.query}\nor "


def rewind(where: Where, epoch: int) -> str:
    """The command by which Spark goes on right after an epoch, under its old query id."""
    place = shlex.quote(where.checkpoint) if where.checkpoint else "PATH"
    return "onceonly checkpoint rebuild " + f"{place} {where.query} --at {epoch}"


def again(where: Where, accepted: Adoption | None, told: str) -> str:
    """The way to write rows of epochs again, on a line of its own; empty where it does not apply."""
    return f"\nor write {told} again on purpose: {where.adopt(accepted)}" if accepted else ""


def after_it(where: Where, accepted: Adoption | None, told: str) -> str:
    """The second decision that the same batch needs, on a line of its own; empty where none is known."""
    if accepted is None:
        return ""
    what = f"write {told} again" if accepted.kind == "accept-duplicates" else "go on from where the batch starts"
    what = f"give up {told}" if accepted.kind == "accept-loss" else what
    return f"\nand after it: {what}: {where.adopt(accepted)}"


def onward(where: Where, accepted: Adoption | None, epoch: int) -> str:
    """The way on for a source that starts where an epoch ended, on a line of its own; empty where it does not."""
    return f"\nor, the source starting where epoch {epoch} ended: {where.adopt(accepted)}" if accepted else ""


def moved(where: Where, accepted: Adoption | None) -> str:
    """The way out for a sink that was moved with all it held, on a line of its own; empty where it does not apply."""
    if accepted is None:
        return ""
    return f"\nor, it being the same data at another place, which is checked: {where.adopt(accepted)}"
