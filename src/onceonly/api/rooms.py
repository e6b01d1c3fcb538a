"""Load a capability when ``exactly_once()`` asks for it.

The core imports no room anywhere else, so that a query carries what it uses. ``tests/test_house.py`` holds that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceonly.event_time.event_time_argument import EventTimeArgument
    from onceonly.protocol import Sink
    from onceonly.quality.division import Division
    from onceonly.quality.outputs import Output, Route
    from onceonly.quality.quality import Dedupe, Quality
    from onceonly.spark.row_times import RowLimit
    from onceonly.windows.windows_argument import WindowsArgument


def divide(
    sinks: Sequence[Sink | Output | Route],
    quality: Quality | None,
    dedupe: Dedupe | None,
    check_sinks: Callable[[tuple[Sink, ...]], None],
    row_limit: RowLimit | None,
) -> tuple[tuple[Sink, ...], Division]:
    """The sinks of a call and how its rows are divided (E110, E120, E122). See ``quality.division.divide``."""
    from onceonly.quality import division

    return division.divide(sinks, quality, dedupe, check_sinks, row_limit)


def event_time(event_time: object) -> EventTimeArgument:
    """Check ``event_time=``.

    Raises:
        ConfigurationError: E110, an unknown form.
    """
    from onceonly.event_time import event_time_argument

    return event_time_argument.check_event_time(event_time)


def windows(windows: object, sinks: Sequence[Sink], time: EventTimeArgument | None, divided_by: str) -> WindowsArgument:
    """Check ``windows=``. ``divided_by`` names another argument that divides rows, or is empty.

    Raises:
        ConfigurationError: E140, E143.
    """
    from onceonly.windows import windows_argument

    return windows_argument.check_windows(windows, sinks, time, divided_by)
