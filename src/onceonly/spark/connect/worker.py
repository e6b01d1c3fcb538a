"""Spark Connect worker process: session, watchdog and end of a callback.

Each run of a query has one, a child of the server's JVM. It ends with the query, in an orderly way or by a signal. If
its server dies while the callback is inside of Python code, it lives on. The fence stops the writes of such a worker.
The watchdog here only shortens its life.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_WATCH_S = 0.2
_ORPHANED = 70

_ended = threading.Event()
_session: Any = None
_parent = 0


def arrived() -> None:
    """Keep the active session at unpickling of a callback, in which the query was started.

    A batch may come with a clone of it, which knows no query (PySpark 4.3). Does nothing outside of Connect.
    """
    global _session, _parent
    loaded = sys.modules.get("pyspark.sql.connect.session")
    if loaded is not None:
        # The class of Connect, by its own module: ``pyspark.sql.SparkSession`` may be that of a classic session.
        _session, _parent = loaded.SparkSession.getActiveSession(), os.getppid()


def session_of(df: DataFrame) -> Any:
    """Return the session in which the query of a batch was started."""
    return _session or df.sparkSession


def watch() -> None:
    """End this process soon after the server that started it. May repeat."""
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


# ---- Whether a callback can be sent to that process.


def unpicklable(part: object) -> str | None:
    """Return why a part of a callback cannot be pickled, or ``None``. A part's own ``OnceOnlyError`` passes."""
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(part)
    except OnceOnlyError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever its own code or its parts' raise
        return f"{type(error).__name__}: {error}"
    return None


def untold() -> OnceOnlyError:
    """Make the error for a callback without its checkpoint."""
    return refuse(
        "E106",
        problem="On Spark Connect the callback does not know its checkpoint.",
        cause="exactly_once() was given to foreachBatch without checkpoint=",
        next='onceonly.start(writer, exactly_once(sink, name="orders", checkpoint="/cp/orders"))\n'
        'or, with foreachBatch: exactly_once(sink, name="orders", checkpoint="/cp/orders")',
    )
