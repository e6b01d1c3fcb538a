"""Level L2: schedules on real Postgres, Delta and Kafka, without Spark.

The production runner plays them.

Drivers are threads that take turns, so a schedule decides who is where when. A driver that is killed here ends by an
exception that nothing on its way out takes for an answer, and leaves in the stores what a dead process leaves there.
Wire faults are real: the proxies before the servers lose, hold and cut real messages.
"""
