"""``StrEnum`` as in Python 3.11.

The library has its own, since the checker shares no code with the product that it judges.
"""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """An enumeration of texts. ``str()`` and ``format()`` of a member are its value."""

    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, format_spec: str) -> str:
        return str.__format__(self, format_spec)
