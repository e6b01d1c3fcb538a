"""Fuzzer: random schedules in the simulated world.

They are drawn from a seed, played in one thread, and shrunk after a failure.
"""
