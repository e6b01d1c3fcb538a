"""Verbs that run epochs again, and publish what a rerun wrote."""
