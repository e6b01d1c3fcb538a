"""Recorded epochs run again: whether a query still gives the rows that its epochs recorded.

Example:
    ``print(repair.recompute("orders", range(1, 1001), job=orders, ledger="/lake/ledger.db", spark=spark).text)``
"""

from onceonly.audit.recompute import Certificate
from onceonly.repair.recomputing import recompute

__all__ = ["Certificate", "recompute"]
