"""Row id for deduplication: sixteen bytes of a hash over its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def id_of(rows: DataFrame, key: Sequence[str]) -> Column:
    """Compute the 16 bytes of a row's id, or null if a part of it is null.

    A cryptographic hash of its text: a producer that chooses ids cannot make two of them collide. The text is that of
    the value and not of its type, so a column may become wider. ``key`` is in Spark SQL.

    Raises:
        NoText: a part is of a type whose values have more than one text.
    """
    from pyspark.sql import functions as f

    parts = rows.select(*[f.expr(said).alias(str(at)) for at, said in enumerate(key)]).schema.fields
    texts = [_text(part.dataType, said) for said, part in zip(key, parts, strict=True)]
    # With its length before it, a part ends in one place only: ("a", "bc") is not ("ab", "c").
    marked = [f.concat(f.octet_length(text).cast("string"), f.lit(":"), text) for text in texts]
    whole = texts[0] if len(texts) == 1 else f.concat(*marked)
    return f.unhex(f.substring(f.sha2(whole, 256), 1, 32))


class NoText(TypeError):
    """A part of an id, in Spark SQL, is of a type whose values have more than one text."""

    def __init__(self, part: str, words: str) -> None:
        super().__init__(words)
        self.part = part


def _text(kind: DataType, said: str) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    column = f.expr(said)
    match kind:
        case t.StringType() | t.IntegralType() | t.DecimalType() | t.BooleanType() | t.TimestampNTZType():
            return column.cast("string")
        case t.BinaryType():
            return f.hex(column)
        case t.DateType():
            return f.unix_date(column).cast("string")
        case t.TimestampType():
            # As a text it would be another one in another time zone of the session.
            return f.unix_micros(column).cast("string")
        case _:
            raise NoText(said, f"it is of type {kind.simpleString()}: make a text or a number of it")
