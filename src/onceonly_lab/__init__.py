"""The fault lab: real processes to kill, real servers to break.

``pipeline`` declares a job of yours for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceonly_lab.chaos.pipeline import Pipeline, pipeline

__all__ = ["Pipeline", "pipeline"]


def __getattr__(name: str) -> Any:
    """Load only what is asked for: a test runner with our plugin must not pay for it where nobody uses it."""
    if name in __all__:
        from onceonly_lab.chaos import pipeline as declared

        return getattr(declared, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
