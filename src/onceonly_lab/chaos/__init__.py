"""Users' own jobs under faults: real Spark, drivers that are really SIGKILLed, checkpoints that are damaged.

pipeline      the declaration of a job             env         what its function is given
running       what fixture and command line call   campaign    which schedules, until when
draw          the schedules of a seed (pure)       coverage    points and actions that were reached
play          one schedule, from input to history  played      what it left behind
crew          drivers, hired ahead                 attendance  watches one to its end
destinations  sinks that the lab can read          surgery     damage to checkpoint and ledger
program       the driver that is killed            points      where it is struck
result        the verdict in words and values      samples     jobs of our own
"""
