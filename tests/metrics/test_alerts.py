"""Alert rules ask for what the exporter tells, and fire for what it told of real ledgers.

Prometheus' own ``promtool`` judges the latter, where one is on the path or named by ``ONCEONLY_TEST_PROMTOOL``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from tests.audit.histories import slice_
from tests.audit.world import World
from typer.testing import CliRunner

from onceonly.cli.app import app
from onceonly.metrics import Exporter
from onceonly.metrics.listener import Listener
from onceonly_checkpoints.digests import BAD, Digest, OutputDigest
from onceonly_checkpoints.epoch import EpochRecord, Lineage
from onceonly_checkpoints.epoch_time import EpochTime, EpochWindows
from onceonly_checkpoints.ledger import Event, EventKind, Intent, Pipeline

ROOT = Path(__file__).parents[2]
MINUTE = 60_000
WANTED = {
    "OnceonlyInDoubt",
    "OnceonlyLag",
    "OnceonlyNoCommit",
    "OnceonlyRefused",
    "OnceonlyLedgerUnreadable",
    "OnceonlyMetricsMissing",
    "OnceonlyQueryEnded",
    "OnceonlyBadRows",
    "OnceonlyNotComplete",
}
DURATION = re.compile(r"[1-9]\d*[smh]")


def printed() -> str:
    result = CliRunner().invoke(app, ["metrics", "--alerts"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    """Every rule that is printed."""
    document = yaml.safe_load(printed())
    assert set(document) == {"groups"}
    [group] = document["groups"]
    assert set(group) == {"name", "rules"}
    return list(group["rules"])


def recorded(folder: Path) -> World:
    """A pipeline whose newest epoch has event time: what every command of an alert can answer."""
    world = World(folder).write_all()
    world.write(1, time=EpochTime("ms", 1, 1, 1))
    return world


@pytest.fixture
def told(tmp_path: Path) -> str:
    """What Prometheus reads of an exporter, and of a listener in a driver."""
    world = World(tmp_path).write_all()
    exporter = Exporter(world.ledger)
    exporter.look(0)
    listener = CollectorRegistry()
    Listener(world.ledger, listener)
    world.write(1, time=EpochTime("ms", 1, 1, 1), panes=EpochWindows("a", "b", Digest(3), 1, 0, 1))
    exporter.look(0)
    return (generate_latest(exporter.registry) + generate_latest(listener)).decode()


# ---- what is written


def test_every_rule_has_what_prometheus_and_a_reader_need(rules: list[dict[str, Any]]) -> None:
    assert {rule["alert"] for rule in rules} == WANTED
    assert len(rules) == len(WANTED)
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert isinstance(rule["expr"], str)
        assert DURATION.fullmatch(rule.get("for", "1m"))
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert "—" not in rule["annotations"]["summary"]


def test_every_metric_of_the_rules_and_of_the_dashboard_is_one_that_is_told(
    rules: list[dict[str, Any]], told: str
) -> None:
    samples = {line.partition("{")[0].partition(" ")[0] for line in told.splitlines() if not line.startswith("#")}
    # Of a query that this process started; there is none here, so that its metric has no sample.
    samples |= set(re.findall(r"^# TYPE (onceonly_query_running) gauge", told, re.MULTILINE))
    dashboard = json.loads(CliRunner().invoke(app, ["metrics", "--dashboard"]).stdout)
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [one["query"] for one in dashboard["templating"]["list"]]
    names = {name for text in asked for name in re.findall(r"\bonceonly_\w+", text)}
    assert len(names) >= 9
    assert names - samples == set()


def test_every_outcome_of_the_rules_is_one_that_is_told(rules: list[dict[str, Any]], told: str) -> None:
    outcomes = set(re.findall(r'outcome="(\w+)"', told))
    asked = [re.findall(r'outcome=~?"([\w|]+)"', rule["expr"]) for rule in rules]
    named = {one for found in asked for text in found for one in text.split("|")}
    assert named
    assert named <= outcomes


def test_the_commands_of_the_rules_work_as_they_stand(rules: list[dict[str, Any]], tmp_path: Path) -> None:
    world = recorded(tmp_path)
    said = [rule["annotations"]["description"].replace("{{ $labels.pipeline }}", "orders") for rule in rules]
    commands = [shlex.split(found) for text in said for found in re.findall(r"`onceonly ([^`]*)`", text)]
    assert len(commands) >= len(WANTED) - 1
    for command in commands:
        result = CliRunner().invoke(app, command, env={"ONCEONLY_LEDGER": str(world.path)})
        assert result.exit_code in (0, 1), (command, result.output)


# ---- what they say of ledgers that were really written

Minute = Callable[["Hour", int], None]


class Hour:
    """An hour of a pipeline, minute by minute, as an exporter sees its ledger."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.exporter = Exporter(self.world.ledger)
        self.series: dict[str, list[float | None]] = {}

    def commits(self, minute: int, *, late_s: float = 5, bad: int = 0, behind_s: float | None = None) -> None:
        """An epoch is recorded at the start of a minute, so long after Spark had planned it."""
        now, world = minute * MINUTE, self.world
        planned = Lineage("q-1", "r-1", "file:/ck", minute, now - int(late_s * 1000), 0)
        changed: dict[str, object] = (
            {"outputs": (OutputDigest(BAD, (), "schema", Digest(bad, bad, bad), filtered=3),)} if bad else {}
        )
        if behind_s is not None:
            complete = now - int(behind_s * 1000)
            changed["time"] = EpochTime("ms", complete, complete, now, batch_timestamp_ms=now)
        epoch = world.next_epoch(3, lineage=planned, **changed)
        receipt = world.commit(epoch)
        world.ledger.record(EpochRecord("orders", world.fence, epoch, (receipt,), recorded_ms=now))

    def begins(self, minute: int) -> None:
        """An epoch is begun, and its driver is not heard of again."""
        number = len(self.world.line) + 1
        self.world.ledger.intend(Intent("orders", number, self.world.fence, slice_(0, 1), minute * MINUTE))

    def refuses(self, minute: int, pipeline: str = "orders") -> None:
        self.world.ledger.note(Event(pipeline, EventKind.FAILED, "E203: overlap", 1, 1, minute * MINUTE))

    def appears(self, minute: int, pipeline: str) -> None:
        self.world.ledger.enter(Pipeline(pipeline, (), "q-9", "file:/ck9", 1, minute * MINUTE))

    def plays(self, script: Minute, minutes: int = 60) -> None:
        for minute in range(1, minutes):
            script(self, minute)
            self.exporter.look(minute * MINUTE)
            self._scrape(minute)

    def _scrape(self, minute: int) -> None:
        for line in generate_latest(self.exporter.registry).decode().splitlines():
            if not line.startswith("#") and "_bucket" not in line and "_created" not in line:
                name, _, value = line.rpartition(" ")
                self.series.setdefault(name, [None] * minute).append(float(value))
        for values in self.series.values():
            values += [None] * (minute + 1 - len(values))


def healthy(hour: Hour, minute: int) -> None:
    hour.commits(minute)


def in_doubt(hour: Hour, minute: int) -> None:
    if minute < 10:
        hour.commits(minute)
    if minute == 10:
        hour.begins(minute)


def lags(hour: Hour, minute: int) -> None:
    hour.commits(minute, late_s=400 if 10 <= minute < 30 else 5)


def lags_and_stops(hour: Hour, minute: int) -> None:
    if minute < 10:
        hour.commits(minute, late_s=400)


def stops(hour: Hour, minute: int) -> None:
    if minute < 5:
        hour.commits(minute)


def is_refused(hour: Hour, minute: int) -> None:
    hour.commits(minute)
    if minute == 20:
        hour.refuses(minute)


def is_refused_at_its_first_batch(hour: Hour, minute: int) -> None:
    hour.commits(minute)
    if minute == 20:
        hour.appears(minute, "returns")
        hour.refuses(minute, "returns")


def loses_its_ledger(hour: Hour, minute: int) -> None:
    if minute < 20:
        hour.commits(minute)
    if minute == 20:
        hour.world.delete_ledger()


def has_bad_rows(hour: Hour, minute: int) -> None:
    hour.commits(minute, bad=7 if minute == 20 else 0)


def waits_for_a_writer(hour: Hour, minute: int) -> None:
    hour.commits(minute, behind_s=7200 if minute >= 10 else 60)


STORIES: list[tuple[Minute, dict[int, set[tuple[str, str]]]]] = [
    (healthy, {5: set(), 30: set(), 58: set()}),
    (in_doubt, {14: set(), 18: {("OnceonlyInDoubt", "orders")}}),
    (lags, {12: set(), 20: {("OnceonlyLag", "orders")}, 50: set()}),
    (lags_and_stops, {8: {("OnceonlyLag", "orders")}, 30: set(), 50: {("OnceonlyNoCommit", "orders")}}),
    (stops, {30: set(), 45: {("OnceonlyNoCommit", "orders")}}),
    (is_refused, {19: set(), 22: {("OnceonlyRefused", "orders")}, 50: set()}),
    (is_refused_at_its_first_batch, {19: set(), 22: {("OnceonlyRefused", "returns")}, 50: set()}),
    (has_bad_rows, {19: set(), 22: {("OnceonlyBadRows", "orders")}, 50: set()}),
    (waits_for_a_writer, {12: set(), 20: {("OnceonlyNotComplete", "orders")}}),
    (loses_its_ledger, {19: set(), 28: {("OnceonlyLedgerUnreadable", "")}}),
]


def promtool() -> str:
    found = os.environ.get("ONCEONLY_TEST_PROMTOOL") or shutil.which("promtool")
    if not found:
        pytest.skip("there is no promtool: the rules were not tried on what the exporter told")
    return found


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    file = tmp_path / "alerts.yml"
    file.write_text(printed())
    return file


def test_prometheus_takes_the_rules(rules_file: Path) -> None:
    done = subprocess.run([promtool(), "check", "rules", rules_file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(WANTED)} rules found" in done.stdout


@pytest.mark.parametrize(("script", "expected"), [pytest.param(*story, id=story[0].__name__) for story in STORIES])
def test_an_alert_fires_for_what_it_is_about_and_for_nothing_else(
    script: Minute, expected: dict[int, set[tuple[str, str]]], rules: list[dict[str, Any]], rules_file: Path
) -> None:
    folder = rules_file.parent
    hour = Hour(folder)
    hour.plays(script)
    severity = {rule["alert"]: rule["labels"]["severity"] for rule in rules}
    asked = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": sample(alert, pipeline, severity[alert]), "value": 1} for alert, pipeline in sorted(firing)
            ],
        }
        for minute, firing in expected.items()
    ]
    series = [{"series": name, "values": spelled(values)} for name, values in hour.series.items()]
    test = {
        "rule_files": [str(rules_file)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}],
    }
    (folder / "test.yml").write_text(json.dumps(test))
    command = [promtool(), "test", "rules", folder / "test.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def sample(alert: str, pipeline: str, severity: str) -> str:
    labels = {"alertname": alert, "alertstate": "firing", "pipeline": pipeline, "severity": severity}
    return f"ALERTS{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels.items() if value)}}}"


def spelled(values: list[float | None]) -> str:
    return " ".join("_" if value is None else f"{value:.15g}" for value in values)


RUNNING = 'onceonly_query_running{pipeline="orders"}'
OUTSIDE = {
    "OnceonlyMetricsMissing": ("", [{"series": "up", "values": "1x30"}]),
    "OnceonlyQueryEnded": (
        "orders",
        [{"series": RUNNING, "values": "1x10 0x20"}, {"series": "onceonly_ledger_up", "values": "1x30"}],
    ),
}
"""Alerts about series that no exporter has: none at all, and that of a driver's listener."""


@pytest.mark.parametrize("alert", OUTSIDE)
def test_an_alert_fires_for_series_that_no_exporter_has(
    alert: str, rules_file: Path, rules: list[dict[str, Any]]
) -> None:
    [severity] = [rule["labels"]["severity"] for rule in rules if rule["alert"] == alert]
    pipeline, series = OUTSIDE[alert]
    expected = [{"labels": sample(alert, pipeline, severity), "value": 1}]
    asked = [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": "20m", "exp_samples": expected}]
    test = {
        "rule_files": [str(rules_file)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}],
    }
    (rules_file.parent / "test.yml").write_text(json.dumps(test))
    command = [promtool(), "test", "rules", rules_file.parent / "test.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- the page


def test_the_page_lists_every_metric_with_its_type(tmp_path: Path, told: str) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    listed = re.findall(r"^\| `(onceonly_\w+)` \| (\w+) \|", page, re.MULTILINE)
    types = re.findall(r"^# TYPE (onceonly_\w+) (\w+)$", told, re.MULTILINE)
    kinds = {name: kind for name, kind in types if not name.endswith("_created")}
    assert dict(listed) == kinds
    assert len(listed) == len(kinds)


def test_the_page_names_every_outcome(told: str) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    [row] = re.findall(r"^\| `onceonly_epochs_total` .*$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) - {"onceonly_epochs_total", "outcome"} == set(
        re.findall(r'outcome="(\w+)"', told)
    )


def test_the_page_lists_every_alert_the_critical_ones_first() -> None:
    """First by severity, then once more by what to do."""
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text()
    rules = (ROOT / "src" / "onceonly" / "metrics" / "alerts.yml").read_text()
    severities = dict(re.findall(r"- alert: (\w+)\n.*?severity: (\w+)", rules, re.DOTALL))
    sections = {
        part.partition("\n")[0]: re.findall(r"^\| (Onceonly\w+)", part, re.MULTILINE) for part in page.split("## ")
    }
    for section, severity in (("Page a person", "critical"), ("Warn", "warning")):
        assert sorted(sections[section]) == sorted(name for name, given in severities.items() if given == severity)
    assert set(sections["What to do"]) == set(severities)


def test_the_commands_of_the_page_on_alerts_work(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text().partition("## Adjust")[0]
    world = recorded(tmp_path)
    commands = {
        found
        for row in re.findall(r"^\| Onceonly.*$", page, re.MULTILINE)
        for found in re.findall(r"`onceonly ([^`]*)`", row)
    }
    assert len(commands) >= 5
    for command in sorted(commands - {"metrics", "doctor"}):
        words = shlex.split(command.replace("NAME", "orders"))
        result = CliRunner().invoke(app, words, env={"ONCEONLY_LEDGER": str(world.path)})
        assert result.exit_code in (0, 1) or "To do it:" in result.output, (command, result.output)
