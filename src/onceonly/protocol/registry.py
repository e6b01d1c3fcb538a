"""Find sinks by address, through the entry points ``onceonly.sinks``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import cast
from urllib.parse import quote, urlencode

from onceonly.errors import refuse
from onceonly.protocol.capabilities import LogsIn
from onceonly.protocol.sink import UNADDRESSED, Sink

GROUP = "onceonly.sinks"
"""Entry-point group: name = kind of sink, value = its class."""

_EXTRAS = {
    "psycopg": "postgres",
    "pgpq": "postgres",
    "deltalake": "delta",
    "pyarrow": "delta",
    "confluent_kafka": "kafka",
}


def kinds() -> tuple[str, ...]:
    """Kinds of sinks that are installed, by name."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def sink_from_address(address: str, ledger: str | None = None) -> Sink:
    """Find a sink again for reading, or for healing without Spark.

    Args:
        address: ``<kind>:<target>``, as the ledger, the errors and the audit print it.
        ledger: connection string of a ledger: a sink that lies in its very database logs in as it does, because an
            address holds no password.

    Raises:
        ConfigurationError: E110 no such kind, or a sink without an address; E108 its driver is not installed.
        OnceOnlyError: what the sink's own ``from_address`` raises.
    """
    kind, colon, rest = address.partition(":")
    if kind == UNADDRESSED:
        raise refuse(
            "E110",
            problem=f"No address leads to the sink {rest}.",
            cause="its class has no address and no from_address() of its own: only a query that makes it finds it",
            next="implement address and from_address(), then start the query once: the ledger learns the address",
        )
    point = next((found for found in entry_points(group=GROUP) if found.name == kind), None)
    if not colon or not rest or point is None:
        raise refuse(
            "E110",
            problem=f"{address!r} is not the address of a sink.",
            cause=f"an address is <kind>:<target>, with a kind out of: {', '.join(kinds())}",
            next="see the addresses of every pipeline: onceonly queries list; for a sink of your own kind: "
            f'publish its class in your package, [project.entry-points."{GROUP}"] {_word(kind)} = "module:Class"',
        )
    sink = _load(point).from_address(address)
    if ledger and isinstance(sink, LogsIn):
        sink.log_in_like(ledger)
    return sink


def keyed(address: str, key: Sequence[str]) -> str:
    """An address whose sink has a key, for whoever writes addresses by hand.

    Raises:
        ConfigurationError: E110, sinks of this kind say their key in another way, or have none.
    """
    kind = address.partition(":")[0]
    if kind == "postgres":
        said = "key=" + quote(",".join(name.replace("%", "%25").replace(",", "%2C") for name in key), safe=",")
        return f"{address}{'&' if '?' in address.rpartition('#')[2] else '?'}{said}"
    if kind == "delta":
        return f"{address}{'&' if '#' in address else '#'}{urlencode([('key', name) for name in key])}"
    raise refuse(
        "E110",
        problem=f"A {kind} sink takes no key.",
        cause="its rows are only added",
        next="leave key out, or write it into the address as the sink itself spells it",
    )


def _word(kind: str) -> str:
    return kind if kind.isidentifier() and kind not in kinds() else "kind"


def is_ours(missing: ModuleNotFoundError) -> bool:
    """Whether the module that is missing is one of our packages: then it is our mistake, and no extra brings it."""
    return (missing.name or "").partition(".")[0] in _PACKAGES


_PACKAGES = frozenset({"onceonly_checkpoints", "onceonly", "onceonly_sinks", "onceonly_lab"})


def _load(point: EntryPoint) -> type[Sink]:
    try:
        return cast("type[Sink]", point.load())
    except ModuleNotFoundError as missing:
        if is_ours(missing):
            raise
        package = (missing.name or "").partition(".")[0]
        extra = _EXTRAS.get(package, point.name)
        raise refuse(
            "E108", what=f"A {point.name} sink", package=package, distribution="onceonly", extra=extra
        ) from missing


def sink_class(kind: str) -> type[Sink]:
    """The class of a kind of sink.

    Raises:
        ConfigurationError: E108, it or its driver is not installed.
    """
    (point,) = entry_points(group=GROUP, name=kind)
    return _load(point)
