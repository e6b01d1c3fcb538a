"""Play schedules: drivers around the production runner in one loop.

They run in a simulated world or on real stores.
"""
