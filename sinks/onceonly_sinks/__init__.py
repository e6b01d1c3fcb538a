"""Exactly-once sinks: one module or package per destination.

Also holds the base of SQL sinks.
"""
