"""Values at the edges of what destinations demand of them, and drawn ones: no demand is met by all of a sample."""

from __future__ import annotations

import datetime as dt
import decimal as decimals
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from onceonly.protocol.row_rules import (
    AfterEpoch,
    Between,
    Bytes,
    Characters,
    Demand,
    Digits,
    Named,
    NotNull,
    OneOf,
    PlainText,
    Rule,
    Ticks,
    Uuid,
)

VALUES = 400

_WIDE = decimals.Context(prec=80)
"""Python's own context rounds to 28 digits."""


@dataclass(frozen=True)
class Sample:
    """A demand, and values of a type: some at its edges, many drawn."""

    demand: Demand
    kind: pa.DataType
    edges: tuple[Any, ...]
    draw: Callable[[random.Random], Any]

    def values(self, seed: int) -> list[Any]:
        drawn = random.Random(seed)
        return [None, *self.edges, *(self.draw(drawn) for _ in range(VALUES))]


def texts(draw: random.Random) -> str:
    return "".join(draw.choice("aé日🧾\0 -") for _ in range(draw.randrange(8)))


def uuids(draw: random.Random) -> str:
    made = f"{draw.getrandbits(128):032x}"
    at = draw.randrange(33)
    return draw.choice([made, f"{made[:at]}-{made[at:]}", made[:at], made.upper(), made + draw.choice("g\n- ")])


def digits(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    def drawn(draw: random.Random) -> Decimal:
        number = draw.randrange(10 ** draw.randint(0, precision))
        kept = number - number % 10 ** draw.randint(0, precision)
        return _WIDE.scaleb(Decimal(draw.choice([1, -1]) * draw.choice([number, kept])), -scale)

    return drawn


def moments(draw: random.Random) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(
        microseconds=draw.choice([1, 999, 10**6]) * draw.randint(-(10**4), 10**4)
    )


def nines(precision: int, scale: int) -> Decimal:
    return _WIDE.scaleb(Decimal(10**precision - 1), -scale)


def fitting(demand: Digits, precision: int, scale: int) -> Sample:
    wide, most, step = nines(precision, scale), nines(demand.precision, demand.scale), _WIDE.scaleb(Decimal(1), -scale)
    beyond = [_WIDE.add(most, more) for more in (Decimal(0), step)]
    edges = [_WIDE.multiply(Decimal(sign), one) for sign in (1, -1) for one in (wide, step, Decimal(0), *beyond)]
    there = tuple(edge for edge in edges if -wide <= edge <= wide and Rule("", Digits(precision, scale)).met(edge))
    return Sample(demand, pa.decimal128(precision, scale), there, digits(precision, scale))


EDGE_TEXTS = ("", "\0", "a\0b", "日本", "🧾" * 4, "e\u0301")
SAMPLES = {
    "not null": Sample(NotNull(), pa.int64(), (0,), lambda draw: draw.choice([None, 1])),
    "int2": Sample(
        Between(-(2**15), 2**15 - 1),
        pa.int64(),
        (-(2**15) - 1, -(2**15), 2**15 - 1, 2**15, -(2**63), 2**63 - 1),
        lambda draw: draw.randint(-(2**17), 2**17),
    ),
    "characters": Sample(Characters(4), pa.string(), EDGE_TEXTS, texts),
    "plain": Sample(PlainText(), pa.string(), EDGE_TEXTS, texts),
    "uuid": Sample(
        Uuid(),
        pa.string(),
        ("", "-", "0" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n", "\n" + "0" * 32, "\uff10" * 32, "-" * 40 + "0" * 32),
        uuids,
    ),
    "one of": Sample(OneOf(("a", "é", "")), pa.string(), ("", "A", "é", "e\u0301", "a "), texts),
    "bytes": Sample(
        Bytes(16),
        pa.binary(),
        (b"", bytes(16), bytes(15), bytes(17)),
        lambda draw: draw.randbytes(draw.randint(14, 18)),
    ),
    "ticks": Sample(
        Ticks(1000), pa.timestamp("us"), (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)), moments
    ),
    "seconds": Sample(Ticks(10**6), pa.timestamp("us", "UTC"), (dt.datetime(1969, 12, 31, 23, 59, 59, 1),), moments),
    "after 1970": Sample(
        AfterEpoch(),
        pa.timestamp("us", "UTC"),
        tuple(dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=one) for one in (-1000, -1, 0, 1, 999, 1000, 1001)),
        moments,
    ),
    "digits": fitting(Digits(10, 2), 20, 4),
    "no room": fitting(Digits(5, 5), 38, 0),
    "more scale": fitting(Digits(20, 18), 38, 0),
    "less scale": fitting(Digits(38, 0), 38, 10),
    "widest": fitting(Digits(38, 38), 38, 37),
    "named": Sample(
        Named("key"),
        pa.struct([("key", pa.string()), ("value", pa.binary())]),
        ({"key": "", "value": None},),
        lambda draw: {"key": draw.choice([None, "k"]), "value": b""},
    ),
}


def aware(kind: pa.DataType, value: Any) -> Any:
    return value.replace(tzinfo=dt.timezone.utc) if value and str(kind) == "timestamp[us, tz=UTC]" else value
