"""Pure decisions, facts in and commands out: no Spark, clock, I/O."""
