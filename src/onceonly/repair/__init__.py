"""Recorded epochs run again: compared with what is on record, or written into a target of their own, and published.

Example:
    ``print(repair.recompute("orders", range(1, 1001), job=orders, ledger="/lake/ledger.db", spark=spark).text)``
"""

from onceonly.audit.recompute import Certificate
from onceonly.repair.publishing import publish
from onceonly.repair.recomputing import recompute
from onceonly.repair.rerunning import Rerun, rerun

__all__ = ["Certificate", "Rerun", "publish", "recompute", "rerun"]
