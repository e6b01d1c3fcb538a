"""The process that runs a callback on Spark Connect: one for each run of a query, a child of the server's JVM.

It ends with the query, in an orderly way or by a signal. Where its server dies while the callback is inside of Python
code it lives on; what such a worker sends to a sink is stopped by the fence. The watch here only shortens its life.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_WATCH_S = 0.2
_ORPHANED = 70

_ended = threading.Event()
_session: Any = None
_parent = 0


def arrived() -> None:
    """Keep the session that is active where a callback is unpickled: the one that the query was started in.

    A batch may come with a clone of it, which knows of no query (PySpark 4.3). Does nothing outside of Connect.
    """
    global _session, _parent
    loaded = sys.modules.get("pyspark.sql.connect.session")
    if loaded is not None:
        # The class of Connect, by its own module: ``pyspark.sql.SparkSession`` may be that of a classic session.
        _session, _parent = loaded.SparkSession.getActiveSession(), os.getppid()


def session_of(df: DataFrame) -> Any:
    """The session that the query of a batch was started in."""
    return _session or df.sparkSession


def watch() -> None:
    """Have this process end soon after the server that started it. May repeat."""
    if _parent and "onceonly-parent" not in {thread.name for thread in threading.enumerate()}:
        threading.Thread(target=_watch, name="onceonly-parent", daemon=True).start()


def _watch() -> None:
    while os.getppid() == _parent:
        time.sleep(_WATCH_S)
    log.warning("the Spark Connect server is gone: this process ends")
    # Nothing is left to be said to anybody, and a callback that waits for the dead server would try for minutes.
    os._exit(_ORPHANED)


def await_end() -> None:
    """Block until this process ends by itself."""
    _ended.wait()


# Called before what was registered earlier, so those who wait for the end of a run can still close what they hold.
atexit.register(_ended.set)
