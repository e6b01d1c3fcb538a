"""The doctor: facts of ledger, checkpoint and servers, judged by pure rules before a query suffers from them."""

from __future__ import annotations

from onceonly.doctor.catalogue import PAGES
from onceonly.doctor.check import Check, State, spot
from onceonly.doctor.observed import UNOBSERVED, Observed

__all__ = ["PAGES", "UNOBSERVED", "Check", "Observed", "State", "spot"]
