"""History of a run: one JSON line per action or observation.

The first line is the :class:`Header`: what was run and what is promised about it. Every further line is an
:class:`Entry`. Line order is the only clock that is trusted: an actor hands an entry in *before* the effect it
announces and *after* the effect it reports, and goes on once it is written (see :mod:`onceonly_lab.history.recorder`).

Who writes what:

    source    ok input        these rows exist in this slice of the source, in this order
    engine    invoke offer    a batch goes into the callback; ok: it returned (Spark may log the batch), fail: it raised
    driver    start, kill     an incarnation begins, or is ended from outside
              invoke/ok/...   install, stage, prepare, execute, commit, look_up, record; the first entry of a commit
                              names all that is written: sink, epoch, generation, slice, rows or count, manifest,
                              digest; ok of a staging, what some sinks get instead, as the user's program says it
    reader    invoke read     a read begins; ``read`` is its answer: rows, markers, leaks; ``fail``: there was none
    nemesis   fault           something was broken; ``restore``: the sink or the ledger was set back or lost by it
    judge     ok golden       what a run without faults left in a sink
              ok assertion    a query of the user holds; fail: it does not, ``rows`` are its counterexamples
              invoke settle   from here on nothing is broken any more; ok: all input was taken, fail: the pipeline
                              refused with ``code``, info: it was given up

Outcomes are three: ``ok`` it happened, ``fail`` it did not and cannot any more, ``info`` nobody can say. An ``invoke``
without an answer is ``info``. An actor does one thing at a time: an answer belongs to the newest open ``invoke`` of the
same actor, incarnation, ``op`` and ``sink``. Of a ``look_up``, ``ok`` means that the epoch is there and ``fail`` that
it is not. Being superseded is ``fail`` for a commit and ``info`` for a look-up: an earlier answer stays lost.

Ideas: Jepsen's histories and their three-way outcomes; etcd's saved reports, which newer checkers can judge again.
"""

from __future__ import annotations

from onceonly_lab.history.entry import BAD, LEDGER, OUTCOMES, RESTORE, Entry, Kind, Mark, MarkTime, Op, Part, Range, Row
from onceonly_lab.history.file import FORMAT, Header, History, Promise, Situation, UnreadableHistory, load, parse

__all__ = [
    "BAD",
    "FORMAT",
    "LEDGER",
    "OUTCOMES",
    "RESTORE",
    "Entry",
    "Header",
    "History",
    "Kind",
    "Mark",
    "MarkTime",
    "Op",
    "Part",
    "Promise",
    "Range",
    "Row",
    "Situation",
    "UnreadableHistory",
    "load",
    "parse",
]
