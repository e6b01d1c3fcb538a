"""A pipeline and a rerun of it that is published over it: random runs, and designs that break the publication."""
