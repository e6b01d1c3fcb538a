"""Refuse wrong arguments of public calls (E110) by their signature."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from onceonly.errors import OnceOnlyError

Call = TypeVar("Call", bound=Callable[..., Any])


def checks_arguments(call: Call) -> Call:
    """Make a public class or function refuse calls that its signature does not accept.

    A class also refuses values that no annotation allows, after its own checks with better messages. A function may
    have acted by the time that it fails, so its values are checked only then. A class that declares ``_arguments``
    gets its arguments by name.
    """
    decorated: Any = call
    if isinstance(call, type):
        decorated.__init__ = _checked(decorated.__init__, decorated.__name__)
    else:
        decorated = _explained(call, decorated.__name__)
    return decorated  # type: ignore[no-any-return]


def _checked(init: Callable[..., None], name: str) -> Callable[..., None]:
    explained = _explained(init, name)

    @wraps(init)
    def initialise(self: Any, *args: Any, **named: Any) -> None:
        from onceonly.errors import options

        explained(self, *args, **named)
        if refusal := options.wrong(init, name, (self, *args), named):
            raise refusal
        if hasattr(type(self), "_arguments"):
            self._arguments = options.by_name(init, (self, *args), named)

    return initialise


def _explained(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def calling(*args: Any, **named: Any) -> Any:
        try:
            return call(*args, **named)
        except OnceOnlyError:
            raise
        except Exception as error:
            from onceonly.errors import options

            if refusal := options.wrong(call, name, args, named):
                raise refusal from error
            raise

    return calling
