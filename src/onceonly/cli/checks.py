"""Checks of versions: what is installed against what this package asks for."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from onceonly.doctor import Check, State

DISTRIBUTION = "onceonly"
EXTRAS = ("spark", "postgres", "delta")
"""Extras whose packages are looked at; the others are of no use to a query."""

_REQUIREMENT = re.compile(r"^(?P<name>[\w.-]+)(?P<options>\[[^\]]*\])?\s*(?P<pins>[^;]*?)\s*(;\s*(?P<marker>.*))?$")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")
_PIN = re.compile(r"(==|>=|<=|<|>)\s*([\d.]+)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of the package's metadata.

    Attributes:
        package: name in the registry.
        pins: such as ``>=3.3,<3.4``; empty: any version.
        extra: which extra asks for it; empty for the base.
    """

    package: str
    pins: str
    extra: str


def requirement_of(line: str) -> Requirement:
    """Parse a ``Requires-Dist`` line as the build backend writes it."""
    match = _REQUIREMENT.match(line)
    if match is None:
        raise ValueError(f"not a requirement: {line!r}")
    extra = _EXTRA.search(match["marker"] or "")
    return Requirement(match["name"].lower(), match["pins"].replace(" ", ""), extra[1] if extra else "")


def fits(found: str, pins: str) -> bool:
    """Whether a version satisfies every pin. Only the release numbers count."""
    release = _release(found)
    return all(_holds(release, operator, _release(wanted)) for operator, wanted in _PIN.findall(pins))


def _release(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _holds(found: Sequence[int], operator: str, wanted: Sequence[int]) -> bool:
    length = max(len(found), len(wanted))
    left = (*found, *[0] * (length - len(found)))
    right = (*wanted, *[0] * (length - len(wanted)))
    verdicts = {"==": left == right, ">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right}
    return verdicts[operator]


def wanted() -> tuple[Requirement, ...]:
    """What the installed distribution asks for: its base and :data:`EXTRAS`, each package once."""
    lines = map(requirement_of, requires(DISTRIBUTION) or ())
    found = {one.package: one for one in lines if one.package != DISTRIBUTION and one.extra in ("", *EXTRAS)}
    return tuple(found.values())


def python_version() -> Check:
    """The interpreter against ``Requires-Python``."""
    here = ".".join(map(str, sys.version_info[:3]))
    pins = metadata(DISTRIBUTION)["Requires-Python"]
    if fits(here, pins):
        return Check("python", State.OK, here)
    return Check("python", State.PROBLEM, f"{here}, wanted {pins}", f"use a Python {pins}")


def packages() -> Iterator[Check]:
    """Every package against its pin."""
    for requirement in wanted():
        yield package(requirement)


def package(requirement: Requirement) -> Check:
    """One package against its pin; a missing one of an extra is only a hint."""
    name, pins, extra = requirement.package, requirement.pins, requirement.extra
    command = f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install '{name}{pins}'"
    try:
        found = version(name)
    except PackageNotFoundError:
        state = State.HINT if extra else State.PROBLEM
        return Check(name, state, f"not installed (wanted {pins or 'any version'})", command)
    if fits(found, pins):
        return Check(name, State.OK, f"{found} ({pins or 'any version'})")
    return Check(name, State.PROBLEM, f"{found}, wanted {pins}", f"pip install '{name}{pins}'")
