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

from onceonly.api.arguments import ON_REFRESH, Arguments, Staging, check_name, check_sinks
from onceonly.api.run_state import beside
from onceonly.errors import OnceOnlyError, mask, nearest, refuse
from onceonly.machine.facts import OnRefresh
from onceonly.protocol import Sink
from onceonly.protocol.registry import keyed, sink_from_address
from onceonly.runtime import refresh

OURS = ("to", "pipeline", "key", "ledger", "staging", "deterministic", "dsn_env", "on_refresh")
"""What a user may give, beside what Spark takes for itself."""

_OF_SPARK = ("queryname", "checkpointlocation")
"""Spark hands these on; others it may add in another release are no mistake of the user, but none is known."""

_SECRET = re.compile(r"(password|secret)[\w.]*\s*=", re.IGNORECASE)

_TRUTH = {"true": True, "false": False}


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
    key: tuple[str, ...]
    ledger: str | None
    staging: str
    deterministic: bool
    dsn_env: str | None
    on_refresh: OnRefresh

    @classmethod
    def parse(cls, said: Mapping[str, str]) -> Options:
        """Read the options of a data source, whose keys are in lower case.

        Raises:
            ConfigurationError: E101 no name. E110 an option that is missing, unknown or invalid, or that holds a
                secret.
        """
        _check_keys(said)
        for name in OURS:
            _check_secret(name, said.get(name, ""))
        checkpoint = said.get("checkpointlocation")
        if not checkpoint:
            raise _wrong(
                'format("onceonly") is not told where the checkpoint is.',
                "it was set for the whole session (spark.sql.streaming.checkpointLocation), or not at all",
                'add .option("checkpointLocation", "/a/lasting/path") to the writeStream',
            )
        pipeline = said.get("pipeline", said.get("queryname")) or None
        check_name(pipeline)
        if not pipeline:
            raise refuse("E101")
        truth = _TRUTH.get(said.get("deterministic", "false").lower())
        if truth is None:
            raise _meaningless("deterministic", said["deterministic"], '"true" or "false"')
        refresh = ON_REFRESH.get(said.get("on_refresh", "stop").lower())
        if refresh is None:
            raise _meaningless("on_refresh", said["on_refresh"], '"stop" or "replace"')
        return cls(
            to=_addresses(said.get("to", "")),
            pipeline=pipeline,
            checkpoint=checkpoint,
            key=_names("key", said.get("key", "")),
            ledger=said.get("ledger"),
            staging=said.get("staging") or beside(checkpoint, "onceonly.staging"),
            deterministic=truth,
            dsn_env=said.get("dsn_env"),
            on_refresh=refresh,
        )

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
            if not sink.capabilities.transactional:
                raise refuse(
                    "E150",
                    problem=f"{sink.id} takes rows one by one, without a transaction",
                    cause="such a sink must see the plan, whose rows are put again after a crash",
                    next="use foreachBatch: exactly_once(sink)",
                )
        if self.on_refresh == "replace":
            refresh.demand(sinks, self.pipeline)
        return Arguments(sinks, self.pipeline, self.ledger, staging=Staging(self.staging), on_refresh=self.on_refresh)

    def _sinks(self) -> tuple[Sink, ...]:
        dsn = self._dsn()
        if self.key and len(self.to) > 1:
            raise _wrong(
                f'.option("key", {", ".join(self.key)!r}) does not say which of {len(self.to)} sinks has that key.',
                "key= is for a single sink",
                "write it into the address of each that has one; addresses are shown by: onceonly queries list",
            )
        addresses = [keyed(one, self.key) if self.key else one for one in self.to]
        return tuple(sink_from_address(_completed(address, dsn), dsn) for address in addresses)

    def _dsn(self) -> str | None:
        if self.dsn_env is None:
            if bare := [address for address in self.to if _lacks_place(address)]:
                raise _wrong(
                    f"{bare[0]!r} says no place.",
                    "the place was to come from the environment, and dsn_env= was not given",
                    'name the variable that holds it: .option("dsn_env", "ORDERS_DSN")',
                )
            return None
        found = os.environ.get(self.dsn_env)
        if not found:
            raise _wrong(
                f"The environment variable {self.dsn_env}, which dsn_env= names, is not set here.",
                "the process that commits has the environment of Spark's driver, on Spark Connect of the server",
                f"set it where that is started: export {self.dsn_env}=postgresql://...",
            )
        return found


def _check_keys(said: Mapping[str, str]) -> None:
    unknown = sorted(set(said) - {*OURS, *_OF_SPARK})
    if unknown:
        raise _wrong(
            f'format("onceonly") has no option {unknown[0]}{nearest(unknown[:1], OURS)}.',
            f"its options are: {', '.join(OURS)}",
            "correct the name, or leave the option out",
        )


def _check_secret(name: str, value: str) -> None:
    if mask(value) == value and not _SECRET.search(value):
        return
    ways = {
        "ledger": "leave ledger= out: the sink's own database is the ledger; or have the password in PGPASSWORD there",
        "to": "put the whole connection string into an environment variable of the driver and name that: "
        '.option("to", "postgres:#TABLE").option("dsn_env", "ORDERS_DSN")',
    }
    raise _wrong(
        f"Option {name} holds a secret.",
        "Spark shows the options of a query in plans, logs and its UI",
        ways.get(name, "take it out: no option needs one"),
    )


def _addresses(value: str) -> tuple[str, ...]:
    example = '.option("to", "delta:/lake/orders"), or several as a JSON list of addresses'
    try:
        found: object = json.loads(value)
    except ValueError:  # an address by itself
        found = value
    addresses = [found] if isinstance(found, str) else found
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise _meaningless("to", value, "an address, or a JSON list of addresses")
    if not addresses or not all(str(address).strip() for address in addresses):
        raise _wrong('format("onceonly") has no sink.', "option to is missing or empty", f"name one: {example}")
    return tuple(str(address).strip() for address in addresses)


def _names(option: str, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",")) if value.strip() else ()
    if "" in names:
        raise _meaningless(option, value, "column names with commas between them")
    return names


def _lacks_place(address: str) -> bool:
    place, mark, _ = address.partition(":")[2].partition("#")
    return bool(mark) and not place


def _completed(address: str, dsn: str | None) -> str:
    """Insert the connection string from the environment into an address without a place."""
    kind, _, rest = address.partition(":")
    return f"{kind}:{dsn}{rest}" if dsn and _lacks_place(address) else address


def need_xxhash() -> None:
    """Demand the package with which tasks hash rows.

    Raises:
        ConfigurationError: E108.
    """
    if find_spec("xxhash") is None:
        raise refuse("E108", what='format("onceonly")', package="xxhash", distribution="onceonly", extra="spark,delta")


def _wrong(problem: str, cause: str, next_: str) -> OnceOnlyError:
    return refuse("E110", problem=problem, cause=cause, next=next_)


def _meaningless(option: str, value: str, wanted: str) -> OnceOnlyError:
    return _wrong(
        f'.option("{option}", {value!r}) is not understood.',
        f"{option} takes {wanted}",
        f"give {wanted}, or leave {option} out",
    )
