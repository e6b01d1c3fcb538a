"""The decisions: facts in, commands out. Pure: no Spark, no driver, no clock, no randomness, no file."""
