"""Replay recorded epochs: recompute, rerun and publish.

Example:
    ``print(replay.recompute("orders", range(1, 1001), job=orders, ledger="/lake/ledger.db", spark=spark).text)``
"""

from onceonly.audit.certificate import Certificate
from onceonly.replay.publication import publish
from onceonly.replay.recompute import recompute
from onceonly.replay.rerun import Rerun, rerun

__all__ = ["Certificate", "Rerun", "publish", "recompute", "rerun"]
