"""Check that a callback can be pickled for Spark Connect."""

from __future__ import annotations

from onceonly.errors import OnceOnlyError, refuse


def unpicklable(part: object) -> str | None:
    """Return why a part of a callback cannot be pickled, or ``None`` if it can.

    Raises:
        OnceOnlyError: the part itself refuses.
    """
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
        problem="On Spark Connect the callback is not told its checkpoint.",
        cause="exactly_once() was given to foreachBatch without checkpoint=",
        next='onceonly.start(writer, sink, name="orders", checkpoint="/cp/orders")\n'
        'or, with foreachBatch: exactly_once(sink, name="orders", checkpoint="/cp/orders")',
    )
