"""What can be sent to the server of Spark Connect, by the pickler that PySpark sends callbacks with."""

from __future__ import annotations

from onceonly.errors import OnceOnlyError, refuse


def unpicklable(part: object) -> str | None:
    """Why a part of a callback cannot be sent; ``None`` if it can.

    Raises:
        OnceOnlyError: what the part itself says of it.
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
    """The refusal of a callback that was not told its checkpoint."""
    return refuse(
        "E106",
        problem="On Spark Connect the callback is not told its checkpoint.",
        cause="exactly_once() was given to foreachBatch without checkpoint=",
        next='onceonly.start(writer, sink, name="orders", checkpoint="/cp/orders")\n'
        'or, with foreachBatch: exactly_once(sink, name="orders", checkpoint="/cp/orders")',
    )
