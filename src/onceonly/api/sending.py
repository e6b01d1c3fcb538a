"""Whether a wrapper can be sent to another process, as Spark Connect does with a callback: refused part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.spark.connect import pickling
from onceonly_checkpoints.ledger import Ledger

if TYPE_CHECKING:
    from onceonly.api.arguments import Arguments


def check(given: Arguments) -> None:
    """Refuse what cannot be sent, or could not find its query there.

    Raises:
        ConfigurationError: E106 no checkpoint; E110 a sink or ledger that lives in this process; E151 a sink or
            ``before=`` that cannot be pickled.
    """
    if given.checkpoint is None:
        raise pickling.untold()
    if given.divided:
        what = f"has output {given.outputs[0].name!r}" if given.outputs else "was given quality="
        what = "was given dedupe=" if given.dedupe else "was given panes=" if given.panes else what
        raise refuse(
            "E110",
            problem=f"exactly_once() {what}, and the query runs on Spark Connect.",
            cause="outputs are written, and bad or repeated rows told from good ones, on classic sessions only",
            next="give each sink a query of its own there, with its own name, checkpoint and before=",
        )
    if given.time:
        raise refuse(
            "E110",
            problem="exactly_once() was given note_time=, and the query runs on Spark Connect.",
            cause="what rows say of time is noted on classic sessions only",
            next="leave note_time= out there, or run the query on a classic session",
        )
    if isinstance(given.ledger, Ledger):
        raise refuse(
            "E110",
            problem=f"The ledger {given.ledger!r} lives in this process, and the callback runs in the server's.",
            cause="the query runs on Spark Connect, and ledger= was given a ledger that was made here",
            next='give its address: exactly_once(..., ledger="postgresql://..." or "sqlite:////path/ledger.db")',
        )
    for sink in given.sinks:
        if reason := pickling.unpicklable(sink):
            way = f"have {type(sink).__name__} make it in open(), or leave it out in __reduce__"
            raise refuse("E151", part=sink.id, reason=reason, next=way)
    if reason := pickling.unpicklable(given.before):
        way = "make within the function what it needs, from df.sparkSession where it is the session"
        raise refuse("E151", part="before=", reason=reason, next=way)
