"""Sinks out of flat options, as tests combine them: those of ``Keep`` and of a tuning by their own names."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from onceonly_checkpoints.epoch_time import milliseconds
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.kafka import KafkaSink, KafkaTuning
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning


def _packed(options: dict[str, Any], **objects: Any) -> dict[str, Any]:
    """Put options into argument objects, each of which may be given as well. Without an option there is no object."""
    for name, default in objects.items():
        flat = {field.name: options.pop(field.name) for field in fields(default) if field.name in options}
        if flat or name in options:
            options[name] = replace(options.get(name, default), **flat)
    return options


def postgres_sink(dsn: str, table: str, made: type[PostgresSink] = PostgresSink, **options: Any) -> PostgresSink:
    """With ``keeps=`` a table of seen ids, with ``holds="state"`` one of window state."""
    keeps, holds = options.pop("keeps", None), options.pop("holds", "rows")
    sink = made(dsn, table, **_packed(options, keep=Keep(), tuning=PostgresTuning()))
    if keeps:
        return sink.seen_ids_store((milliseconds(keeps) or 0) // 1000)
    return sink.window_store(separate=False) if holds == "state" else sink


def delta_sink(table: Any, made: type[DeltaSink] = DeltaSink, **options: Any) -> DeltaSink:
    return made(table, **_packed(options, tuning=DeltaTuning()))


def kafka_sink(servers: str, topic: str | None, made: type[KafkaSink] = KafkaSink, **options: Any) -> KafkaSink:
    return made(servers, topic, **_packed(options, tuning=KafkaTuning()))
