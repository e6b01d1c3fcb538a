"""Commands that need a package: where it is missing they say so, and every other command still runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from onceonly.cli.calm import give_up

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that looks at none of its arguments itself."""


def without(missing: ModuleNotFoundError, what: str, wanted: str) -> Callable[[], NoReturn]:
    """The command in place of one whose import failed.

    Args:
        missing: why.
        what: the first words of the message.
        wanted: what brings the package, as pip takes it, quoted for a shell.

    Raises:
        ModuleNotFoundError: it is a module of ours that is missing.
    """
    if (missing.name or "").startswith("onceonly"):
        raise missing

    def command() -> NoReturn:
        """Not installed; it says how to install it."""
        give_up(f"{what} needs {missing.name}: pip install {wanted}")

    return command
