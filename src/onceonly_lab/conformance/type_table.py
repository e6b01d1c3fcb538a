"""Type table: Spark types with extreme values, and each sink's result.

Pure.

Documentation, suite and tests read it; a sink that changes its mind changes it here. Values are given as Arrow hands
them to Python, in the Arrow type in which Spark's rows arrive.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.strenum import StrEnum

if TYPE_CHECKING:
    import pyarrow as pa

SINKS = ("memory", "postgres", "delta", "kafka")
"""Columns of the table. Kafka's is the answer for a column ``value``; other columns of a row go through ``to_json``."""


class TypeResult(StrEnum):
    """What becomes of a value."""

    SAME = "same"
    CONVERTED = "converted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Cell:
    """What one sink makes of a value.

    Attributes:
        answer: see there.
        how: what it becomes, for a reader of the table.
        code: code of the refusal; nothing is written then.
        becomes: the converted value, as the destination's own client reads it; ``...``: it reads as it was.
    """

    answer: TypeResult
    how: str = ""
    code: str = ""
    becomes: Any = ...

    @property
    def text(self) -> str:
        """One cell of the printed table."""
        return f"{self.answer}{f', {self.code}' if self.code else ''}{f': {self.how}' if self.how else ''}"


SAME = Cell(TypeResult.SAME)


def becomes(how: str, value: Any = ...) -> Cell:
    """It is converted."""
    return Cell(TypeResult.CONVERTED, how, becomes=value)


def refused(code: str, how: str = "") -> Cell:
    """It is refused, and nothing of the epoch is written."""
    return Cell(TypeResult.REFUSED, how, code)


@dataclass(frozen=True, slots=True)
class Case:
    """One value of a type.

    Attributes:
        name: ``min``, ``max``, ``empty``, ``nested`` ...
        value: the value.
        but: sinks that make something else of it than of the type's other values.
    """

    name: str
    value: Any
    but: Mapping[str, Cell] = field(default_factory=dict[str, Cell])


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of Spark.

    Attributes:
        spark: its name in Spark's SQL.
        arrow: the Arrow type in which it arrives, in the words of :func:`arrow_type`.
        cells: by sink, what becomes of its values.
        cases: its extremes. Null is a case of every type.
    """

    spark: str
    arrow: str
    cells: Mapping[str, Cell]
    cases: tuple[Case, ...]

    @property
    def all_cases(self) -> tuple[Case, ...]:
        """The extremes, and null."""
        return (*self.cases, Case("null", None))

    def cell(self, sink: str, case: Case) -> Cell:
        """What a sink makes of a value."""
        return case.but.get(sink, self.cells[sink])


def _cells(
    postgres: Cell = SAME, delta: Cell = SAME, kafka: Cell | None = None, memory: Cell = SAME
) -> dict[str, Cell]:
    other = kafka or refused("E506")
    return {"memory": memory, "postgres": postgres, "delta": delta, "kafka": other}


_UTC = dt.timezone.utc
_JSON = becomes("jsonb")
_NUL = {"postgres": refused("E503", "Postgres holds no NUL in a text")}

KINDS: tuple[Kind, ...] = (
    Kind("BOOLEAN", "bool", _cells(), (Case("false", False), Case("true", True))),
    Kind("TINYINT", "int8", _cells(becomes("smallint")), (Case("min", -(2**7)), Case("max", 2**7 - 1))),
    Kind("SMALLINT", "int16", _cells(), (Case("min", -(2**15)), Case("max", 2**15 - 1))),
    Kind("INT", "int32", _cells(), (Case("min", -(2**31)), Case("max", 2**31 - 1))),
    Kind("BIGINT", "int64", _cells(), (Case("min", -(2**63)), Case("max", 2**63 - 1))),
    Kind(
        "FLOAT",
        "float",
        _cells(),
        (
            Case("min", -3.4028234663852886e38),
            Case("smallest", 1.401298464324817e-45),
            Case("nan", math.nan),
            Case("infinity", math.inf),
        ),
    ),
    Kind(
        "DOUBLE",
        "double",
        _cells(),
        (
            Case("min", -1.7976931348623157e308),
            Case("smallest", 5e-324),
            Case("nan", math.nan),
            Case("infinity", -math.inf),
        ),
    ),
    Kind(
        "DECIMAL(38,10)",
        "decimal(38,10)",
        _cells(),
        (
            Case("min", Decimal("-9999999999999999999999999999.9999999999")),
            Case("max", Decimal("9999999999999999999999999999.9999999999")),
            Case("smallest", Decimal("0.0000000001")),
        ),
    ),
    Kind(
        "STRING",
        "string",
        _cells(kafka=SAME),
        (Case("empty", ""), Case("awkward", 'naïve 日本 🧾 \\N "quoted" \t\n'), Case("nul", "a\0b", _NUL)),
    ),
    Kind("BINARY", "binary", _cells(kafka=SAME), (Case("empty", b""), Case("all bytes", bytes(range(256))))),
    Kind("DATE", "date32", _cells(), (Case("min", dt.date(1, 1, 1)), Case("max", dt.date(9999, 12, 31)))),
    Kind(
        "TIMESTAMP",
        "timestamp(UTC)",
        _cells(),
        (
            Case("min", dt.datetime(1, 1, 1, tzinfo=_UTC)),
            Case("max", dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=_UTC)),
        ),
    ),
    Kind(
        "TIMESTAMP_NTZ",
        "timestamp",
        _cells(),
        (Case("min", dt.datetime(1, 1, 1)), Case("max", dt.datetime(9999, 12, 31, 23, 59, 59, 999999))),
    ),
    Kind(
        "TIME",
        "time64",
        _cells(delta=refused("E506", "Delta has no such type")),
        (Case("min", dt.time(0)), Case("max", dt.time(23, 59, 59, 999999))),
    ),
    Kind(
        "INTERVAL DAY TO SECOND",
        "duration",
        _cells(delta=refused("E506", "Delta has no such type")),
        (Case("negative", dt.timedelta(days=-3, microseconds=7)), Case("zero", dt.timedelta(0))),
    ),
    Kind("ARRAY<BIGINT>", "list(int64)", _cells(), (Case("empty", []), Case("nested", [1, None, -(2**63)]))),
    Kind(
        "ARRAY<ARRAY<INT>>",
        "list(list(int32))",
        _cells(_JSON),
        (Case("nested", [[1], [], None]),),
    ),
    Kind(
        "STRUCT<a: BIGINT, b: STRING>",
        "struct",
        _cells(_JSON),
        (Case("nested", {"a": 2**63 - 1, "b": 'x"y'}), Case("empty", {"a": None, "b": None})),
    ),
    Kind(
        "MAP<STRING, INT>",
        "map",
        _cells(_JSON),
        (
            Case("empty", [], {"postgres": becomes("jsonb", {})}),
            Case("nested", [("k", 1), ("l", None)], {"postgres": becomes("jsonb", {"k": 1, "l": None})}),
        ),
    ),
    Kind("VOID", "null", _cells(becomes("text"), refused("E506", "Delta has no such type")), ()),
)
"""Every type that reaches a sink in Arrow form."""


def markdown() -> str:
    """The table as a page shows it: one line per type, exceptions of single values behind it."""
    lines = ["| Spark | " + " | ".join(SINKS) + " |", "|---|" + "---|" * len(SINKS)]
    lines += [f"| `{kind.spark}` | " + " | ".join(_line(kind, sink) for sink in SINKS) + " |" for kind in KINDS]
    return "\n".join(lines) + "\n"


def _line(kind: Kind, sink: str) -> str:
    usual = kind.cells[sink]
    other = [
        f"{case.name} {case.but[sink].text}" for case in kind.cases if case.but.get(sink, usual).text != usual.text
    ]
    return "; ".join([usual.text, *other])


def alike(value: Any, actual: Any, kind: Kind) -> bool:
    """Whether a value was read back as it was; a FLOAT has single precision, and NaN equals itself here."""
    if kind.arrow == "float" and isinstance(value, float) and isinstance(actual, float):
        value, actual = (struct.unpack("f", struct.pack("f", number))[0] for number in (value, actual))
    if isinstance(value, float) and math.isnan(value):
        return isinstance(actual, float) and math.isnan(actual)
    return bool(value == actual)


def arrow_type(kind: Kind) -> pa.DataType:
    """The Arrow type of a kind."""
    import pyarrow as pa

    made: dict[str, pa.DataType] = {
        "bool": pa.bool_(),
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "decimal(38,10)": pa.decimal128(38, 10),
        "string": pa.string(),
        "binary": pa.binary(),
        "date32": pa.date32(),
        "timestamp(UTC)": pa.timestamp("us", "UTC"),
        "timestamp": pa.timestamp("us"),
        "time64": pa.time64("us"),
        "duration": pa.duration("us"),
        "list(int64)": pa.list_(pa.int64()),
        "list(list(int32))": pa.list_(pa.list_(pa.int32())),
        "struct": pa.struct([("a", pa.int64()), ("b", pa.string())]),
        "map": pa.map_(pa.string(), pa.int32()),
        "null": pa.null(),
    }
    return made[kind.arrow]
