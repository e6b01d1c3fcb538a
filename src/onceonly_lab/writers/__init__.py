"""Several writers of one dataset: random runs that judge what is said of time, and designs that break it on purpose."""
