"""The only loop with I/O: runs the machine's commands."""
