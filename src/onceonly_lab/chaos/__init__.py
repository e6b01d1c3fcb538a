"""Users' own jobs under faults: real Spark, drivers that are really SIGKILLed, checkpoints that are damaged."""
