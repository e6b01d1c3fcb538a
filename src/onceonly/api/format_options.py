"""Parse and check the options of ``format("onceonly")``.

They are texts, checked before a row is computed. Spark passes keys in lower case, and shows values in plans and in
its UI. So an option must not hold a secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from onceonly.api.arguments import Arguments, Recovery, Storage, check_name, check_sinks
from onceonly.errors import mask, refuse
from onceonly.errors.options import Columns, misused, names_of, read_texts
from onceonly.machine.facts import OnRefresh
from onceonly.protocol import Sink
from onceonly.protocol.registry import keyed, sink_from_address
from onceonly.runtime import sink_refusals
from onceonly_checkpoints.storage import path_next_to

OURS = ("to", "pipeline", "key", "ledger", "staging", "deterministic", "dsn_env", "on_refresh")
"""What a user may give, beside what Spark takes for itself."""

_OF_SPARK = ("queryname", "checkpointlocation")
"""Spark hands these on; others it may add in another release are no mistake of the user, but none is known."""

_SECRET = re.compile(r"(password|secret)[\w.]*\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed options, checked as far as texts allow.

    Attributes:
        to: addresses of the sinks, in commit order.
        checkpoint: as the user spelled it.
        key: columns of the key. Empty for none.
        ledger: where onceonly records epochs. ``None``: sink and checkpoint decide.
        deterministic: whether the user declares a plan with state deterministic.
        dsn_env: name of the environment variable that holds a connection string. ``None`` for none.
    """

    to: tuple[str, ...]
    pipeline: str
    checkpoint: str
    staging: str
    key: Columns = ()
    ledger: str | None = None
    deterministic: bool = False
    dsn_env: str | None = None
    on_refresh: OnRefresh = "stop"

    @classmethod
    def parse(cls, raw_options: Mapping[str, str]) -> Options:
        """Read the options of a data source, whose keys are in lower case.

        Raises E101: no name. E110: an option that is missing, unknown or invalid, or that holds a secret.
        """
        if unknown := next((name for name in sorted(raw_options) if name not in (*OURS, *_OF_SPARK)), None):
            read_texts('format("onceonly")', {unknown: ()}, OURS)
        for name in OURS:
            _check_secret(name, raw_options.get(name, ""))
        checkpoint = raw_options.get("checkpointlocation")
        if not checkpoint:
            raise misused(
                'format("onceonly") does not know the checkpoint.',
                "it was set for the whole session (spark.sql.streaming.checkpointLocation), or not at all",
                'add .option("checkpointLocation", "/a/lasting/path") to the writeStream',
            )
        pipeline = raw_options.get("pipeline", raw_options.get("queryname")) or None
        check_name(pipeline)
        if not pipeline:
            raise refuse("E101")
        texts = {name: [value] for name, value in raw_options.items() if name not in ("to", *_OF_SPARK)}
        if "key" in texts:
            names = raw_options["key"].split(",") if raw_options["key"].strip() else []
            texts["key"] = [name.strip() for name in names]
        values = read_texts('format("onceonly")', texts, OURS, cls)
        values |= {
            "pipeline": pipeline,
            "staging": values.get("staging") or path_next_to(checkpoint, "onceonly.staging"),
        }
        return cls(to=_addresses(raw_options.get("to", "")), checkpoint=checkpoint, **values)

    def arguments(self) -> Arguments:
        """The equivalent arguments of ``exactly_once()``. Makes the sinks, and opens none.

        Raises:
            ConfigurationError: E102 two sinks of one id. E108 a sink's driver is not installed. E110 an invalid
                address, or a variable that is not set. E150 a sink that cannot be written from here.
            IdentityError: E247, a sink cannot replace rows, and ``on_refresh`` asks for it.
        """
        sinks = self._sinks()
        check_sinks(sinks)
        for sink in sinks:
            problem = cause = ""
            if not sink.capabilities.transactional:
                problem = f"{sink.id} takes rows one by one, without a transaction"
                cause = "such a sink must see the plan, whose rows are put again after a crash"
            elif sink.capabilities.order:
                problem, cause = f"{sink.id} has order=", "tasks write their rows as Spark gives them"
            if problem:
                raise refuse("E150", problem=problem, cause=cause, next="use foreachBatch: exactly_once(sink)")
        if self.on_refresh == "replace":
            sink_refusals.demand(sinks, self.pipeline)
        storage = Storage(ledger=self.ledger, staging=self.staging)
        return Arguments(sinks, self.pipeline, recovery=Recovery(on_refresh=self.on_refresh), storage=storage)

    def _sinks(self) -> tuple[Sink, ...]:
        dsn = self._dsn()
        if self.key and len(self.to) > 1:
            columns = ", ".join(names_of(self.key))
            raise misused(
                f'.option("key", {columns!r}) does not say which of {len(self.to)} sinks has that key.',
                "key= is for a single sink",
                "write it into the address of each that has one; addresses are shown by: onceonly status",
            )
        addresses = [keyed(address, names_of(self.key)) if self.key else address for address in self.to]
        return tuple(sink_from_address(_completed(address, dsn), dsn) for address in addresses)

    def _dsn(self) -> str | None:
        if self.dsn_env is None:
            if bare := [address for address in self.to if _lacks_place(address)]:
                raise misused(
                    f"{bare[0]!r} names no place.",
                    "the place was to come from the environment, and dsn_env= was not given",
                    'name the variable that holds it: .option("dsn_env", "ORDERS_DSN")',
                )
            return None
        dsn = os.environ.get(self.dsn_env)
        if not dsn:
            raise misused(
                f"The environment variable {self.dsn_env}, which dsn_env= names, is not set here.",
                "the process that commits has the environment of Spark's driver, on Spark Connect of the server",
                f"set it where that is started: export {self.dsn_env}=postgresql://...",
            )
        return dsn


def _check_secret(name: str, value: str) -> None:
    if mask(value) == value and not _SECRET.search(value):
        return
    ways = {
        "ledger": "leave ledger out: the sink's own database is the ledger; or have the password in PGPASSWORD there",
        "to": "put the whole connection string into an environment variable of the driver and name that: "
        '.option("to", "postgres:#TABLE").option("dsn_env", "ORDERS_DSN")',
    }
    raise misused(
        f"Option {name} holds a secret.",
        "Spark shows the options of a query in plans, logs and its UI",
        ways.get(name, "take it out: no option needs one"),
    )


def _addresses(value: str) -> tuple[str, ...]:
    example = '.option("to", "delta:/lake/orders"), or several as a JSON list of addresses'
    try:
        parsed: object = json.loads(value)
    except ValueError:  # an address by itself
        parsed = value
    addresses = [parsed] if isinstance(parsed, str) else parsed
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        remedy = "give one, or a JSON list of addresses"
        raise misused(f"to is not an address: {value!r}.", 'format("onceonly") takes one address or several', remedy)
    if not addresses or not all(str(address).strip() for address in addresses):
        raise misused('format("onceonly") has no sink.', "option to is missing or empty", f"name one: {example}")
    return tuple(str(address).strip() for address in addresses)


def _lacks_place(address: str) -> bool:
    location, mark, _ = address.partition(":")[2].partition("#")
    return bool(mark) and not location


def _completed(address: str, dsn: str | None) -> str:
    """Insert the connection string from the environment into an address without a place."""
    kind, _, rest = address.partition(":")
    return f"{kind}:{dsn}{rest}" if dsn and _lacks_place(address) else address


def need_xxhash() -> None:
    """Demand the package with which tasks hash rows. Raises E108."""
    if find_spec("xxhash") is None:
        raise refuse("E108", what='format("onceonly")', package="xxhash", extra="spark,delta")
