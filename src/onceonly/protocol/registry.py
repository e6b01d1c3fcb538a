"""Find sinks by address through the entry-point group ``onceonly.sinks``.

onceonly imports none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import cast
from urllib.parse import quote, urlencode

from onceonly.errors import refuse
from onceonly.errors.options import misused
from onceonly.protocol import Inspectable
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
    """Names of the installed kinds of sinks."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def sink_from_address(address: str, ledger: str | None = None) -> Sink:
    """Find a sink again for reading, or for healing without Spark.

    Args:
        address: ``<kind>:<target>``, as the ledger, the errors and the audit print it.
        ledger: connection string of a ledger. A sink in the same database logs in with it, because an address holds no
            password.

    Raises:
        ConfigurationError: E110 no such kind, or a sink without an address. E108 its driver is not installed.
        OnceOnlyError: an error of the sink's own ``from_address``.
    """
    kind, colon, rest = address.partition(":")
    if kind == UNADDRESSED:
        raise misused(
            f"No address leads to the sink {rest}.",
            "its class has no address and no from_address() of its own: only a query that makes it finds it",
            "implement address and from_address(), then start the query once: the ledger learns the address",
        )
    point = next((entry_point for entry_point in entry_points(group=GROUP) if entry_point.name == kind), None)
    if not colon or not rest or point is None:
        raise misused(
            f"{address!r} is not the address of a sink.",
            f"an address is <kind>:<target>, with a kind out of: {', '.join(kinds())}",
            "see the addresses of every pipeline: onceonly status; for a sink of your own kind: "
            f'publish its class in your package, [project.entry-points."{GROUP}"] {_word(kind)} = "module:Class"',
        )
    sink = _load(point).from_address(address)
    if ledger and isinstance(sink, Inspectable):
        sink.use_ledger_login(ledger)
    return sink


def keyed(address: str, key: Sequence[str]) -> str:
    """Add a key to an address, for addresses written by hand.

    Raises:
        ConfigurationError: E110, sinks of this kind spell their key in another way, or have none.
    """
    kind = address.partition(":")[0]
    if kind == "postgres":
        parameter = "key=" + ",".join(quote(name, safe="") for name in key)
        return f"{address}{'&' if '?' in address.rpartition('#')[2] else '?'}{parameter}"
    if kind == "delta":
        return f"{address}{'&' if '#' in address else '#'}{urlencode([('key', name) for name in key])}"
    raise misused(
        f"A {kind} sink takes no key.",
        "its rows are only added",
        "leave key out, or write it into the address as the sink itself spells it",
    )


def _word(kind: str) -> str:
    return kind if kind.isidentifier() and kind not in kinds() else "kind"


def is_ours(missing: ModuleNotFoundError) -> bool:
    """Whether the missing module is one of our packages. Then it is our mistake, and no extra installs it."""
    return (missing.name or "").partition(".")[0] in _PACKAGES


def needs_extra(missing: ModuleNotFoundError, what: str, kind: str) -> Exception:
    """E108: ``what`` needs a module that an extra installs, by default that of the kind of sink."""
    package = (missing.name or "").partition(".")[0]
    return refuse("E108", what=what, package=package, extra=_EXTRAS.get(package, kind))


_PACKAGES = frozenset({"onceonly_checkpoints", "onceonly", "onceonly_sinks", "onceonly_lab"})


def _load(point: EntryPoint) -> type[Sink]:
    try:
        return cast("type[Sink]", point.load())
    except ModuleNotFoundError as missing:
        if is_ours(missing):
            raise
        raise needs_extra(missing, f"A {point.name} sink", point.name) from missing


def sink_class(kind: str) -> type[Sink]:
    """The class of a kind of sink.

    Raises:
        ConfigurationError: E108, it or its driver is not installed.
    """
    (point,) = entry_points(group=GROUP, name=kind)
    return _load(point)
