"""How an error leaves the command line: words on stderr, and where JSON was asked for, a document on stdout, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceonly.cli.output import emit_json, talk
from onceonly.cli.typed import json_wanted
from onceonly.refusals import read


def tell(words: str) -> None:
    """Say why there is no answer."""
    talk(words)
    if json_wanted():
        emit_json({"error": to_json(words)})


def tell_usage(message: str, command: str) -> None:
    """Say as JSON that a command line cannot be understood; the words are the parser's own, and stand on stderr."""
    if json_wanted():
        emit_json({"error": to_json(f"{message}\n  Next: {command} --help")})


def to_json(words: str) -> Mapping[str, Any]:
    """The parts of a message: ``code``, ``message`` (its first line), ``matter``, ``cause`` and ``next``.

    Args:
        words: as they are printed. What is no refusal of ours has no code.
    """
    if found := read(words):
        return {
            "code": found.code,
            "message": found.what,
            "matter": found.matter,
            "cause": found.cause,
            "next": found.next,
        }
    message, _, next_ = words.partition("\n  Next: ")
    return {"code": None, "message": message, "matter": "", "cause": "", "next": next_}
