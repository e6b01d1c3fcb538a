"""Windows over streams whose results come early, on time and late, each exactly once: ``panes=Panes(...)``.

    spec      what the user says, and what it means for rows of known columns
    windows   which stretches of time a row belongs to
    triggers  when a result is written
    values    what is computed
    step      one epoch: state, rows and time in; rows and state out
    here      partial results of few rows, in this process
    rows      pane rows and state as rows of Arrow
    kinds     values as JSON

All of it is pure: no Spark, no driver, no clock.
"""

from __future__ import annotations

from onceonly.errors.arguments import checks_arguments
from onceonly.windows.assigners import Fixed, Global, Sessions, Sliding, drain
from onceonly.windows.spec import Panes
from onceonly.windows.triggers import All, Any, AtCount, AtMark, AtPeriod, AtWatermark, OrFinally, Repeat, Seq
from onceonly.windows.values import Aggregate, Count, Last, Max, Mean, Min, Sum

__all__ = [
    "Aggregate",
    "All",
    "Any",
    "AtCount",
    "AtMark",
    "AtPeriod",
    "AtWatermark",
    "Count",
    "Fixed",
    "Global",
    "Last",
    "Max",
    "Mean",
    "Min",
    "OrFinally",
    "Panes",
    "Repeat",
    "Seq",
    "Sessions",
    "Sliding",
    "Sum",
    "drain",
]

_TRIGGERS: tuple[type, ...] = (All, Any, AtCount, AtMark, AtPeriod, AtWatermark, OrFinally, Repeat, Seq)
_VALUES: tuple[type, ...] = (Count, Last, Max, Mean, Min, Sum)
_WINDOWS: tuple[type, ...] = (Fixed, Global, Sessions, Sliding)
for _public in (Panes, *_TRIGGERS, *_VALUES, *_WINDOWS):
    checks_arguments(_public)
