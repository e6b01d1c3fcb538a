"""The only loop with I/O: carries the machine's commands out on sinks, ledger and staging."""
