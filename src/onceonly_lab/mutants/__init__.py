"""Sinks, runners, drivers and readers that are broken on purpose, so that the checker is seen to catch each of them.

One small class each, in one place, over the real sinks on real stores; :mod:`~onceonly_lab.mutants.catalogue` says
which schedule kills which. Never use one for anything else.
"""

from onceonly_lab.mutants.catalogue import MUTANTS

__all__ = ["MUTANTS"]
