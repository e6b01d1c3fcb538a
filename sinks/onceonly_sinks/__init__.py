"""The hands: one module or small package per destination, the base of SQL sinks, and the suite that each must pass."""
