"""Columns of each type that the driver can hash by itself, with values at the edges of its forms."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from math import inf, nan

import pyarrow as pa

DECIMALS = [(sign, bits, more) for sign in (1, -1) for bits in (0, 7, 8, 63, 64, 119, 126) for more in (-1, 0, 1)]
"""Sign, power of two and what is added, around which the number of bytes changes."""


PLAIN = {
    "yes": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-(2**7), 2**7 - 1]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1]),
    "number": (pa.int32(), [0, -1, -(2**31), 2**31 - 1]),
    "Größe": (pa.int64(), [0, -1, -(2**63), 2**63 - 1]),
    "single": (pa.float32(), [0.0, -0.0, nan, -inf, inf, 1.5, 1e-40]),
    "a.b": (pa.float64(), [0.0, -0.0, nan, -inf, inf, 0.1, 5e-324]),
    "text": (pa.string(), ["", "a", "ü€𝄞", "seven77", "eight888", "x" * 31, "x" * 32, "y" * 133, "nul\0"]),
    "raw": (pa.binary(), [b"", b"\xff\x00", bytes(range(256))]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "seen": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "clock": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29)]),
    "price": (pa.decimal128(18, 2), [Decimal("-0.01"), Decimal(0), Decimal("9999999999999999.99")]),
    "exact": (pa.decimal128(38, 0), [Decimal(sign * 2**bits + more) for sign, bits, more in DECIMALS]),
}


def plain_table() -> pa.Table:
    """Every value beside every other column's, and nulls."""
    columns = {}
    for at, (name, (kind, values)) in enumerate(PLAIN.items()):
        each = [*values, None]
        columns[name] = pa.array([each[(row * (at + 1) + row // 7) % len(each)] for row in range(400)], kind)
    return pa.table(columns)
