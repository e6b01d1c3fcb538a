"""Windows with early, on-time and late results, each exactly once.

The decisions are in ``rules``. The modules beside it compute with Spark and keep state.
"""

from __future__ import annotations

from onceonly.errors.options import checks_arguments
from onceonly.windows.rules.assigners import Custom, Global, Sessions, Sliding, Tumbling, drain
from onceonly.windows.rules.spec import Windows
from onceonly.windows.rules.triggers import All, Any, AtCount, AtMark, AtPeriod, AtWatermark, OrFinally, Repeat, Seq
from onceonly.windows.rules.values import (
    Aggregate,
    ApproxCountDistinct,
    Count,
    CountDistinct,
    Last,
    Max,
    Mean,
    Min,
    Sum,
)

__all__ = [
    "Aggregate",
    "All",
    "Any",
    "ApproxCountDistinct",
    "AtCount",
    "AtMark",
    "AtPeriod",
    "AtWatermark",
    "Count",
    "CountDistinct",
    "Custom",
    "Global",
    "Last",
    "Max",
    "Mean",
    "Min",
    "OrFinally",
    "Repeat",
    "Seq",
    "Sessions",
    "Sliding",
    "Sum",
    "Tumbling",
    "Windows",
    "drain",
]

for _name in __all__:
    if _name not in ("Aggregate", "drain"):  # your class, and a function that takes anything
        checks_arguments(globals()[_name])
