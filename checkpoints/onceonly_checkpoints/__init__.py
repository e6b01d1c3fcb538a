"""Checkpoint, ledger and marker formats of Spark and onceonly.

A leaf that imports nothing else of ours.
"""
