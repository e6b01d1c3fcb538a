"""The invariants over worlds of numbers: each is asked only where what it looks at is new."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from onceonly_lab.explorer.table import Codes, Table
from onceonly_lab.model import invariants
from onceonly_lab.model.invariants import Check, Violation
from onceonly_lab.model.world import Bound, Part


class Judge:
    """What is broken in a world.

    Args:
        parts: the numbers of parts.
        bound: the layout.
    """

    def __init__(self, parts: Table[Part], bound: Bound) -> None:
        self._values = parts.values
        self._checks = [self._asked_once(check) for check in invariants.checks(bound)]

    def __call__(self, codes: Codes) -> Violation | None:
        """The first invariant that does not hold; only what drivers share is looked at."""
        for check in self._checks:
            if (found := check(codes)) is not None:
                return found
        return None

    def _asked_once(self, check: Check) -> Callable[[Codes], Violation | None]:
        look, known, values = itemgetter(*check.places), dict[object, Violation | None](), self._values

        def ask(codes: Codes) -> Violation | None:
            seen = look(codes)
            if seen not in known:
                known[seen] = check.judge(tuple(values[codes[place]] for place in check.places))
            return known[seen]

        return ask
