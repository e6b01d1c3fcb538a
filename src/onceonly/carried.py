"""Types that Arrow carries in the form of another type: what a column stands for, where its Arrow type alone lies.

PySpark hands VARIANT, GEOMETRY and GEOGRAPHY over as structs of their bytes, and a user-defined type as what it is
stored in. Whoever took the Arrow type at its word would write those bytes as if they were the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

USER_DEFINED = b"onceonly::type"
"""Metadata of a field whose Spark type has no Arrow type of its own; its value is that type's name."""

_MARKED_BY_SPARK = (b"variant", b"geometry", b"geography")
"""Metadata that PySpark puts on a part of the struct that it carries such a value in."""


def stands_for(field: pa.Field[Any]) -> str | None:
    """The type that a column, or a part of it, stands for; ``None`` where all of it is what its Arrow type says."""
    import pyarrow as pa
    from pyarrow import types

    metadata = field.metadata or {}
    if USER_DEFINED in metadata:
        return metadata[USER_DEFINED].decode()
    kind: Any = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return f"{kind.extension_name} (an Arrow extension)"
    if types.is_struct(kind) and (marked := _marked(kind)):
        return marked
    parts = [kind.field(at) for at in range(kind.num_fields)] if types.is_nested(kind) else []
    return next((found for part in parts if (found := stands_for(part))), None)


def _marked(kind: Any) -> str | None:
    marks = {mark for part in kind for mark in part.metadata or {}}
    return next((mark.decode().upper() for mark in _MARKED_BY_SPARK if mark in marks), None)
