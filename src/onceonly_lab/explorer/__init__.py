"""Breadth-first exploration of every world within a bound.

It runs the production coordinator.
"""
