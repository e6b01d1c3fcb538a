"""Necessary conditions of exactly-once, shown on small pipelines.

The pipelines crash after every durable step. Each condition is shown to be needed.

One step of a pipeline takes input up to t and O(t) to O(t+1), where O is outputs, operator state and position in the
source: F(E(t), O(t)) = O(t+1). Recovery loads O(t) and runs F again. Each variant makes O(t+1) durable in another way;
those that drop a condition must show what that condition prevents, the others must show nothing.
"""
