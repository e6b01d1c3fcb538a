"""The lab: real processes and servers to break, for the demo and for tests, ours and our users'."""
