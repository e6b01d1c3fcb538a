"""What ``ledger prune`` is about to do, and what is lost with it."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly.audit.line import ranges
from onceonly.cli.output import plural
from onceonly.cli.places import Place
from onceonly.errors import OnceOnlyError, refuse
from onceonly.overlap import compares_all
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger import Event, EventKind


@dataclass(frozen=True, slots=True)
class Plan:
    """A shortening before it happens.

    Attributes:
        before: epochs below this one are forgotten; 0 where there is nothing to forget.
        pairs: the plan in words.
    """

    before: int
    pairs: tuple[tuple[str, object], ...]


def plan(place: Place, keep: int) -> Plan:
    """Read ledger and sinks. Writes nothing.

    Raises:
        ConfigurationError: E110, the file lists of all epochs are still needed.
    """
    numbers = tuple(record.epoch.number for record in place.certain_ledger.epochs(place.pipeline))
    going = numbers[:-keep]
    if not going:
        return Plan(0, (("ledger", place.certain_ledger.address), ("holds", plural(len(numbers), "epoch")), _NOTHING))
    newest = place.certain_ledger.head(place.pipeline)
    if newest and compares_all(newest.epoch):
        raise _still_compared(place.pipeline, newest.epoch.number)
    before = going[-1] + 1
    pairs: list[tuple[str, object]] = [
        ("ledger", place.certain_ledger.address),
        ("forgets", f"epochs {ranges(going)}: phase times, input files, receipts"),
        ("keeps", f"epochs {ranges(numbers[len(going) :])}"),
    ]
    for sink in place.sinks:
        oldest = _oldest(sink, place.pipeline)
        unproven = tuple(number for number in going if number < oldest)
        if unproven:
            pairs.append(
                (sink.id, f"its markers begin at epoch {oldest}: nothing will prove epochs {ranges(unproven)}")
            )
    if any(record.files for record in place.certain_ledger.epochs(place.pipeline, going[0], going[0])):
        pairs.append(("file source", 'a batch that overlaps can no longer be trimmed (overlap="trim"), but is refused'))
    return Plan(before, tuple(pairs))


def _still_compared(pipeline: str, newest: int) -> OnceOnlyError:
    return refuse(
        "E110",
        problem=f'The query of "{pipeline}" still compares its batches with the files of all epochs.',
        cause=f"epoch {newest} is of a checkpoint that began with files which epochs before it hold",
        next='restart the query with overlap="trim" once its checkpoint has handed out all of them, then prune',
    )


_NOTHING = ("forgets", "nothing")


def _oldest(sink: Sink, pipeline: str) -> int:
    sink.open(pipeline)
    return next((marker.epoch.number for marker, _ in sink.history()), 0)


def carry_out(place: Place, plan: Plan) -> None:
    """Forget, and note that it was done."""
    place.certain_ledger.prune(place.pipeline, plan.before)
    generation = place.entry.generation if place.entry else 0
    reason = f"epochs below {plan.before} were forgotten to save room"
    place.certain_ledger.note(Event(place.pipeline, EventKind.PRUNED, reason, plan.before, generation))
