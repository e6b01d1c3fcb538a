"""Mutants: components broken on purpose, to test the checker.

They are sinks, runners, drivers and readers. The checker must catch each.

One small class each, in one place, over the real sinks on real stores; :mod:`~onceonly_lab.mutants.catalogue` says
which schedule kills which. Never use one for anything else.
"""

from onceonly_lab.mutants.catalogue import MUTANTS

__all__ = ["MUTANTS"]
