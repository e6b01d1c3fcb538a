"""Doctor: judge ledger, checkpoint and servers by pure rules."""

from __future__ import annotations

from onceonly.protocol.health import PAGES, UNOBSERVED, Check, Observed, State, spot

__all__ = ["PAGES", "UNOBSERVED", "Check", "Observed", "State", "spot"]
