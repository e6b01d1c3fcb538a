"""Says a line of a history in words. Pure."""

from __future__ import annotations

from onceonly_lab.history import Entry, Kind, Op, Range

_ANSWERS = {Kind.OK: "yes", Kind.FAIL: "no", Kind.INFO: "nobody can say", Kind.READ: "answered"}
_LONGEST = 240


def answer(outcome: Kind, *, answered: bool = True) -> str:
    """An outcome in words."""
    return _ANSWERS.get(outcome, str(outcome)) if answered else "never answered"


def actor(entry: Entry) -> str:
    """Who, with the number of the start where there are several."""
    return f"{entry.actor} {entry.incarnation}" if entry.incarnation else entry.actor


def call(entry: Entry) -> str:
    """What was called, on what."""
    op = Op.READ if entry.kind is Kind.READ else entry.op
    words = [str(op or entry.kind).replace("_", " ")]
    words += [f"epoch {entry.epoch}"] if entry.epoch is not None else []
    words += [entry.sink] if entry.sink else []
    words += [f"generation {entry.generation}"] if entry.generation is not None else []
    words += [taken(entry.slice)] if entry.slice else []
    return " ".join(words)


def taken(slice_: tuple[Range, ...]) -> str:
    """A slice: partitions with their ends."""
    return ", ".join(f"{one.partition}: {one.start} to {one.end}" for one in slice_)


def line(entry: Entry) -> str:
    """A whole line, as far as it fits."""
    words = [actor(entry)]
    if entry.kind is Kind.FAULT:
        words += ["breaks", entry.fault or "something", *([f"in {entry.sink}"] if entry.sink else [])]
    elif entry.op is None and entry.kind is not Kind.READ:
        words += [str(entry.kind)]
    else:
        words += [call(entry), *([] if entry.kind is Kind.INVOKE else [f"= {answer(entry.kind)}"])]
    words += [f"{len(entry.rows)} rows"] if entry.rows is not None else []
    words += [f"markers {', '.join(str(mark.epoch) for mark in entry.markers)}"] if entry.markers else []
    words += ["at the end"] if entry.final else []
    words += [f"left behind {', '.join(entry.leaks)}"] if entry.leaks else []
    words += [entry.code] if entry.code else []
    words += [entry.note] if entry.note else []
    said = " ".join(words)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
