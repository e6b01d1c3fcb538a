"""The address of a Kafka sink: brokers, topic, and what differs from the defaults, without secrets."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from onceonly.errors import refuse
from onceonly_sinks.kafka.options import PREFIX, Options

_SCHEME = "kafka:"
_OURS = ("id", "marker_topic")


def default_id(topic: str | None) -> str:
    """Id of a sink that was given none."""
    return f"{_SCHEME}{topic or '*'}"


def address_of(options: Options, topic: str | None, id_: str, marker_topic: str | None) -> str:
    """Spell an address."""
    said = {"id": "" if id_ == default_id(topic) else id_, "marker_topic": marker_topic or "", **options.described}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in said.items() if value)
    return f"{_SCHEME}{options.servers}/{topic or ''}" + (f"?{query}" if query else "")


def read_address(address: str) -> tuple[str, str | None, dict[str, Any]]:
    """Servers, topic and keyword arguments of the sink; the inverse of :func:`address_of`.

    Raises:
        ConfigurationError: E110, not an address of a Kafka sink.
    """
    where, _, query = address.removeprefix(_SCHEME).partition("?")
    servers, slash, topic = where.partition("/")
    pairs = [part.partition("=") for part in query.split("&") if part]
    said = {name: unquote(value) for name, _, value in pairs}
    strange = [name for name in said if name not in _OURS and not name.startswith(PREFIX)]
    if not address.startswith(_SCHEME) or not servers or not slash or strange:
        raise refuse(
            "E110",
            problem=f"{address!r} is not the address of a Kafka sink.",
            cause="it wants kafka:HOST:PORT,HOST:PORT/TOPIC?kafka.OPTION=VALUE",
            next="see the addresses of every pipeline: onceonly queries list",
        )
    options = {name: value for name, value in said.items() if name.startswith(PREFIX)}
    return servers, topic or None, {"options": options, **{name: said.get(name) for name in _OURS}}
