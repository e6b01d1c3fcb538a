"""The doctor: facts of ledger, checkpoint and servers, judged by pure rules before a query suffers from them."""

from __future__ import annotations

from onceonly.protocol.health import PAGES, UNOBSERVED, Check, Observed, State, spot

__all__ = ["PAGES", "UNOBSERVED", "Check", "Observed", "State", "spot"]
