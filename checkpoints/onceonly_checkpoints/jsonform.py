"""The one durable form: JSON objects whose absent members are left out, and which nobody reads who does not know all.

A design that comes later adds members. An object without them keeps its text, and with it every hash over it; a reader
that meets a member it does not know stops, since what it leaves aside might be what matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class UnreadableMarker(ValueError):
    """A stored marker, receipt or record cannot be understood by this version."""


def present(**members: object) -> dict[str, Any]:
    """The members of an object that are there: ``None``, empty texts and empty lists are absent."""
    return {name: value for name, value in members.items() if value not in (None, "", [])}


def known(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The object, if all of its members have a name in ``names``.

    Raises:
        UnreadableMarker: it has others.
    """
    if strange := sorted(set(value) - set(names)):
        raise UnreadableMarker(f"unknown member {', '.join(strange)}: a newer version wrote it")
    return value
