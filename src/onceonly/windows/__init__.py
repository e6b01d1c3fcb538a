"""``panes=Panes(...)``: windows with early, on-time and late results, exactly once.

Package ``rules`` has the pure rules. The modules beside it compute with Spark and keep state.
"""

from __future__ import annotations

from onceonly.errors.arguments import checks_arguments
from onceonly.windows.rules.assigners import Fixed, Global, Sessions, Sliding, drain
from onceonly.windows.rules.spec import Panes
from onceonly.windows.rules.triggers import All, Any, AtCount, AtMark, AtPeriod, AtWatermark, OrFinally, Repeat, Seq
from onceonly.windows.rules.values import Aggregate, Count, Last, Max, Mean, Min, Sum

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
