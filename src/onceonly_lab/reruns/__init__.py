"""Random publications of a rerun over its pipeline.

Broken designs violate the publication's rules.
"""
