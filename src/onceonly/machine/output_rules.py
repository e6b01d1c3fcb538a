"""Check that outputs cover all rows, and bound bad ones. Pure.

A row is good and in each output once or not at all, or it is bad and in output ``bad`` alone, or its id had been seen
before and it is nowhere. All of it is counted in the action that stages the rows, each number by itself, so that a row
which is withheld from some sinks only is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceonly_checkpoints.digests import BAD, SEEN, Digest, OutputDigest, bad_in, repeated_in

ALWAYS = 100
"""Rows that a share lets through, however few rows there are: two bad ones of ten are no other source."""

MaxBad = int | float | None
"""How many rows of an epoch may be bad: a number, a share of them up to 1.0, or ``None`` for any number."""


def rows_in(digest: Digest, outputs: Sequence[OutputDigest]) -> int:
    """Rows of a batch that are staged, good and bad; not those whose id had been seen before."""
    bad = bad_in(tuple(outputs))
    return digest.rows + (bad.digest.rows if bad else 0)


def unbalanced(digest: Digest, outputs: Sequence[OutputDigest]) -> tuple[str, int, int] | None:
    """The first output that does not add up: its name, the rows that it says there are, and those that there are."""
    for output in outputs:
        told = output.filtered if output.name == BAD else output.digest.rows + output.filtered
        if told != digest.rows:
            return output.name, told, digest.rows
    return _lost(digest, outputs)


def _lost(digest: Digest, outputs: Sequence[OutputDigest]) -> tuple[str, int, int] | None:
    """Where rows may be dropped, whether all others are there."""
    offered = next((output.offered for output in outputs if output.name == SEEN), None)
    repeated = repeated_in(tuple(outputs))
    there = rows_in(digest, outputs) + (repeated.rows if repeated else 0)
    return None if offered in (None, there) else (SEEN, there, offered)


def allowed(max_bad: MaxBad, rows: int) -> int:
    """How many of so many rows may be bad."""
    if max_bad is None:
        return rows
    if isinstance(max_bad, int):
        return max_bad
    return max(ALWAYS, int(max_bad * rows)) if max_bad else 0
