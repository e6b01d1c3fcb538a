"""Level L2: schedules on a real Postgres, a real Delta log and a real broker, by the production runner, without Spark.

Drivers are threads that take turns, so a schedule decides who is where when. A driver that is killed here ends by an
exception that nothing on its way out takes for an answer, and leaves in the stores what a dead process leaves there.
Wire faults are real: the proxies before the servers lose, hold and cut real messages.
"""
