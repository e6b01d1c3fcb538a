"""Enough of SQL's surface to tell the statements of one text apart and to see what each begins with."""

from __future__ import annotations

import re

_QUOTED = re.compile(
    r"""
      '(?:[^']|'')*'                       # literal; one with backslashes before quotes is not told apart
    | "(?:[^"]|"")*"                       # identifier
    | (?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag)    # body of a function
    | --[^\n]*
    | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)


def statements(text: str) -> list[str]:
    """The statements of one text, without comments, literals emptied, each word one blank from the next."""
    bare = _QUOTED.sub(lambda found: _emptied(found.group()), text)
    parts = (" ".join(part.split()) for part in bare.split(";"))
    return [part for part in parts if part]


def _emptied(quoted: str) -> str:
    if quoted.startswith('"'):
        return quoted.replace(";", " ")
    return "''" if quoted.startswith(("'", "$")) else " "
