"""Verbs that put a query back to work: adopt, rewind, refresh, drop a sink, resolve, rebuild."""
