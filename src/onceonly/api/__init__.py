"""The public call ``exactly_once``, its arguments and its guarantee."""
