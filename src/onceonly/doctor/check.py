"""One check of the doctor: what was looked at, what was seen, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from onceonly.errors import fill, mask


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    HINT = "hint"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at and what was seen.

    Attributes:
        name: what was looked at.
        state: only a problem changes the exit code.
        said: what was seen.
        remedy: what to do; empty if nothing.
        code: stable code, ``D101``, whose page ``onceonly explain`` prints; empty where there is none.
    """

    name: str
    state: State
    said: str
    remedy: str = ""
    code: str = ""


def spot(code: str, name: str, state: State = State.PROBLEM, **details: object) -> Check:
    """Make the check of a code that was found.

    Args:
        code: of the catalogue.
        name: what was looked at.
        state: how bad it is here.
        details: what the code's texts need.

    Raises:
        KeyError: no such code, or a detail is missing.
    """
    from onceonly.doctor.catalogue import PAGES

    page = PAGES[code]
    return Check(name, state, mask(fill(page.what, details)), mask(fill(page.remedy, details)), code)
