"""The checker: judge a recorded history and report findings.

Three steps, all pure: a history is laid out as facts (:mod:`~onceonly_lab.checker.case`); of the commits whose outcome
nobody knows, one reading is chosen that explains what was read (:mod:`~onceonly_lab.checker.reading`); rules
judge that reading. Each rule states what must hold and names its evidence. A wrong row has one anomaly: rules say which
cases they leave to another.

A run is *inconclusive* where nothing is wrong and it proves nothing: a required situation was never reached, or a sink
was never read at the end.

Ideas: Jepsen's checkers (prose first, every verdict with its evidence); Elle's minimal witnesses.
"""

from __future__ import annotations

from onceonly_lab.checker.finding import MOST_WITNESSES, MUST_HOLD, Anomaly, Finding
from onceonly_lab.checker.judgement import SCHEMA_VERSION, Judgement, Verdict, judge

__all__ = ["MOST_WITNESSES", "MUST_HOLD", "SCHEMA_VERSION", "Anomaly", "Finding", "Judgement", "Verdict", "judge"]
