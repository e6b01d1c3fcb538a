"""Sinks: one package per destination, and the base of SQL sinks."""
