"""Who opens a pipeline: a random token that nobody else has, and words by which people find the process."""

from __future__ import annotations

import getpass
import os
import secrets
import socket


def owner(application: str = "") -> str:
    """A fresh owner of a fence, ``<token> user@host:pid application``.

    Args:
        application: Spark's application id, or the command; empty for none.
    """
    return " ".join(part for part in (secrets.token_hex(8), _process(), application) if part)


def _process() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under an id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
