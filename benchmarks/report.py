"""The results as JSON and as a Markdown table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.model import Result, Rule, Run

SCHEMA_VERSION = 1

_UNITS = {
    Rule.RATE: "rows/s",
    Rule.TIME: "ms",
    Rule.ADDED_MS: "ms",
    Rule.ADDED_MB: "MB",
    Rule.GROWTH: "ms",
    Rule.SECONDS: "s",
    Rule.SHARE: "us",
}

_NOTES = """\
- All variants of a job ran in turns in one run, in rotating order, after a warm-up round that is not counted. A value
  is the median over the rounds of the quotient (or difference) of the two sides *in the same round*; the spread is its
  smallest and greatest value.
- rows/s: rows over the time from `start()` to the end of the query, opening included. Time per epoch: median of
  Spark's own `durationMs.triggerExecution` over the epochs after the first {settling}, on both sides.
- The input is a file source with one Parquet file per epoch ({tasks}); `trigger(availableNow=True)`; every run has a
  checkpoint and a target of its own, and rows and a checksum are compared with the input after each run.
- CPU: seconds of driver, JVM and Python workers, and of the servers. A round in which others used more than half a
  processor is repeated, thrice at most. *Others* is the most that they used in a round that counts.
- Of several peers the fastest counts, by default or tuned. Spark's Delta runs with `snapshotPartitions` 2, with which
  it is much faster on small tables than with its default of 50. Only the sinks measured here and Spark's Delta promise
  exactly once.
- Three sinks: a batch is staged once and committed to each in turn, against the three writers one after another in
  one `foreachBatch`. Two DeltaSinks take the same staged files over, against one that writes its own.
- Memory: peak resident size of the Python process in a fresh process each; the JVM is not counted.
"""

_RECOVERY_NOTES = """\
- Recovery, cold Spark, medians of {rounds}: noticing that the driver is gone {detect:.2f} s, starting Spark and the
  query {restart:.2f} s, resolving {resolve:.2f} s, the next epoch {replay:.2f} s. The session comes from
  `onceonly_lab.session.start`, after one `onceonly_lab.session.prepare` on this machine; its jars lie on the
  class path, and Spark's own page is off. The same with `getOrCreate()`: {plain_total:.2f} s, {plain_restart:.2f} s
  of it starting.
"""

_LONG_NOTES = """\
- Without Spark: coordinator, runner, sink and ledger with {rows} rows per epoch. An old and a young pipeline take
  turns, epoch by epoch; {window} epochs around epoch {age} against as many around epoch {young}.
- Delta: kept handle; a checkpoint every {checkpoint} commits, written by the sink between commits. The sink compacts
  files every {compact} commits. The table that is tended has `delta.logRetentionDuration` of `{log}`, the other
  one no `delta.autoOptimize.autoCompact`. Times are medians, and what is done between commits is in few of them;
  means with it, ms: {means}.
"""

_POINTS_NOTES = """\
- Fault points, none armed: {ns:g} ns each, call included; passed in an empty epoch: {passed}. Without Spark, so the
  epoch that they are compared with is the shortest there is.
"""


def as_json(
    machine: dict[str, Any], settings: dict[str, Any], results: Sequence[Result], runs: Sequence[Run]
) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": machine,
        "settings": settings,
        "bars": [_bar(result) for result in results],
        "runs": [_run(run) for run in runs],
    }


def _bar(result: Result) -> dict[str, Any]:
    each = result.each
    return {
        "name": result.bar.name,
        "job": result.bar.job,
        "ours": result.bar.ours,
        "peer": result.peer,
        "unit": _UNITS[result.bar.rule],
        "ours_median": round(result.ours, 2),
        "peer_median": round(result.theirs, 2),
        "compared": result.bar.rule.value,
        "value": round(result.value, 3),
        "lowest": round(min(each), 3),
        "highest": round(max(each), 3),
        "rounds": len(each),
        "limit": result.bar.limit,
        "met": result.met,
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "shape": run.shape,
        "variant": run.variant,
        "round": run.number,
        "rows": run.rows,
        "seconds": round(run.seconds, 3),
        "epochs_ms": [round(duration, 1) for duration in run.epochs_ms],
        "cpu": [round(seconds, 2) for seconds in run.cpu],
        "others": round(run.others, 2),
    }


def as_markdown(found: dict[str, Any]) -> str:
    """The table with everything that is needed to read it."""
    lines = [
        "# Benchmarks",
        "",
        place(found["machine"]),
        "",
        *_table(found["bars"]),
        "",
        _notes(found["settings"]),
    ]
    if table := _variants(found["runs"]):
        lines += ["All variants, medians over the rounds:", "", *table, ""]
    return "\n".join(lines)


_SAID_APART = frozenset({"date", "cpu", "cores", "memory_gb", "system", "load_before"})


def put(page: Path, part: str) -> None:
    """Write one part of a page, which begins with its heading, and leave the others as they are."""
    heading = part.partition("\n")[0]
    known = re.split(r"(?m)^(?=# )", page.read_text()) if page.exists() else []
    parts = [each.rstrip("\n") for each in known if each.strip()]
    at = next((at for at, each in enumerate(parts) if each.partition("\n")[0] == heading), len(parts))
    parts[at : at + 1] = [part.rstrip("\n")]
    page.write_text("\n\n".join(parts) + "\n")


def place(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in machine.items() if value and name not in _SAID_APART)
    hardware = f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, {machine['system']}"
    return f"{machine['date']}; {hardware}; {versions}. Load before: {machine['load_before'][0]}."


def _notes(settings: dict[str, Any]) -> str:
    parts: list[str] = []
    if "tasks" in settings:
        tasks = f"{settings['tasks']} row group{'s' if settings['tasks'] > 1 else ''} each; two at least in Kafka's"
        parts.append(_NOTES.format(settling=settings["settling"], tasks=tasks))
    if "long_age" in settings:
        values = {name.removeprefix("long_"): value for name, value in settings.items() if name.startswith("long_")}
        means = "; ".join(f"{name} {old:g} and {young:g}" for name, (old, young) in values.pop("means").items())
        parts.append(_LONG_NOTES.format(means=means, **values))
    if "points_ns" in settings:
        passed = ", ".join(f"{times} ({name})" for name, times in settings["points_passed"].items())
        parts.append(_POINTS_NOTES.format(ns=settings["points_ns"], passed=passed))
    if "recovery_detect" in settings:
        each = {name.removeprefix("recovery_"): value for name, value in settings.items() if "recovery_" in name}
        medians = {name: median(values) for name, values in each.items()}
        parts.append(_RECOVERY_NOTES.format(rounds=len(each["detect"]), **medians))
    return "".join(parts)


def _table(bars: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| job | ours | peer | ours | peer | value (spread) | bar | |",
        "|---|---|---|--:|--:|--:|--:|---|",
    ]
    for bar in bars:
        at_least = bar["compared"] == Rule.RATE.value
        theirs = _amount(bar["peer_median"], bar["unit"]) if bar["peer"] else ""
        lines.append(
            f"| {bar['job']} | {bar['ours']} | {bar['peer']} | {_amount(bar['ours_median'], bar['unit'])} "
            f"| {theirs} | **{_short(bar['value'])}** {bar['compared']} "
            f"({_short(bar['lowest'])}..{_short(bar['highest'])}) "
            f"| {'>=' if at_least else '<='} {bar['limit']:g} | {'met' if bar['met'] else '**missed**'} |"
        )
    return lines


def _variants(runs: Sequence[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys((run["shape"], run["variant"]) for run in runs)
    lines = [
        "| input | variant | seconds | rows/s | epoch p50 ms | CPU s per 1M rows | of servers | others |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for shape, variant in keys:
        own = [run for run in runs if (run["shape"], run["variant"]) == (shape, variant)]
        seconds = median(run["seconds"] for run in own)
        epoch = median(median(run["epochs_ms"]) for run in own)
        cpu, servers = (median(run.get("cpu", (0, 0))[side] / run["rows"] * 1e6 for run in own) for side in (0, 1))
        others = max(run.get("others", 0) for run in own)
        used = f"{cpu:.2f} | {servers:.2f} | {others:.1f}" if cpu else "| | "
        lines.append(
            f"| {shape} | {variant} | {seconds:.2f} | {own[0]['rows'] / seconds:,.0f} | {epoch:.0f} | {used} |"
        )
    return lines if keys else []


def _amount(value: float, unit: str) -> str:
    return f"{value / 1000:,.0f}k {unit}" if unit == "rows/s" else f"{value:,.1f} {unit}"


def _short(value: float) -> str:
    return f"{value:.3f}" if 0 < abs(value) < 0.1 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
