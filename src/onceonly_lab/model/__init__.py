"""Simulated world of frozen values and pure steps.

The production coordinator runs in it.
"""
