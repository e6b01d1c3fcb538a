"""Chaos tests of users' own Spark jobs.

Drivers are really killed by SIGKILL, and checkpoints are damaged.
"""
