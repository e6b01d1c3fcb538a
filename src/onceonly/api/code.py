"""Which code a run is: what its user calls it, and the fingerprint of what it computes. Found once per run."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from onceonly.api import arguments
from onceonly.api.arguments import Arguments
from onceonly.spark import fingerprint
from onceonly.spark.determinism import Determinism
from onceonly_checkpoints.code_version import Code

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunCode:
    """The code of a run.

    Attributes:
        code: as each of its epochs notes it.
        text: what its fingerprint is of, a line each; empty where there is none.
    """

    code: Code
    text: str = ""


def of_run(given: Arguments, found: Determinism) -> RunCode:
    """The code that runs.

    Args:
        given: what the user chose.
        found: what is known of the written rows.
    """
    version = given.version or arguments.version(None)
    if not found.text:
        return RunCode(Code(version))
    functions = ""
    try:
        functions = fingerprint.describe(given.before) if given.before else ""
    except RecursionError:
        log.info("before= holds values that are nested too deeply to be told apart")
    text = "\n".join(part for part in (found.text, functions) if part)
    return RunCode(Code(version, fingerprint.fingerprint(found.text, functions)), text)
