"""Recovery verbs: adopt, rewind, refresh, drop a sink, resolve, rebuild."""
