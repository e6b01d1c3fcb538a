"""Commands that need an extra: where its packages are missing they say so, and every other command still runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import typer

from onceonly.cli.output import talk

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that looks at none of its arguments itself."""


def without(missing: ModuleNotFoundError, what: str, extra: str, code: int) -> Callable[[], NoReturn]:
    """The command in place of one whose import failed.

    Args:
        missing: why.
        what: the first words of the message.
        extra: what brings the package.
        code: the command's exit code for "could not be done".

    Raises:
        ModuleNotFoundError: it is a module of ours that is missing.
    """
    if (missing.name or "").startswith("onceonly"):
        raise missing

    def command() -> NoReturn:
        """Not installed; it says how to install it."""
        talk(f"{what} needs {missing.name}: pip install 'onceonly[{extra}]'")
        raise typer.Exit(code)

    return command
