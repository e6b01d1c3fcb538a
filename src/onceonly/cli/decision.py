"""Puts a name and a time to what an operator decides."""

from __future__ import annotations

import getpass
import time
from typing import Any

from onceonly_checkpoints.adoption import Adoption


def decided(kind: str, reason: str, **named: Any) -> Adoption:
    """A decision of whoever runs this command, now.

    Args:
        kind: what is accepted.
        reason: why.
        named: what it names, as fields of ``Adoption``.
    """
    return Adoption(kind, reason=reason, who=_user(), at_ms=time.time_ns() // 1_000_000, **named)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        return ""
