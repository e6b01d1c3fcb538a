"""The command line that is running, as it was typed."""

from __future__ import annotations

import os
from contextvars import ContextVar

from onceonly.cli.output import Output

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())
"""Its arguments."""


def json_wanted() -> bool:
    """Whether it asks for JSON; known even where it cannot be understood otherwise."""
    words = TYPED.get()
    said = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, mark, value = word.partition("=")
        if name == "--output":
            said = value if mark else following
        elif word.startswith("-o"):
            said = word[2:] or following
    return (said or os.environ.get("ONCEONLY_OUTPUT", "")).lower() == Output.JSON
