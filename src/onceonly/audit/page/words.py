"""Finds the commands in a remedy, so that each gets a copy button. Pure."""

from __future__ import annotations

import re

_QUOTED = r"'[^']*'|\"[^\"]*\""
_COMMAND = re.compile(rf"\bonceonly (?=[a-z])(?:{_QUOTED}|[^;'\"\n])*")


def commands_in(remedy: str) -> tuple[str, ...]:
    """The commands that a remedy names, as they can be pasted into a shell.

    A command ends with the text or at a semicolon outside of quotes.
    """
    return tuple(found[0].rstrip(" .,") for found in _COMMAND.finditer(remedy))
