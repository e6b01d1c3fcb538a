"""The page's text: everything that was found is in it, nothing in the data can become markup, and it stays small."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.audit.histories import PIPELINE, true_facts, with_rows, with_sink
from tests.audit.pages import BEGAN_MS, SINKS, TAKEN, damaged, judged, line_of, story

from onceonly.audit import RULES, Facts, Verdict
from onceonly.audit.finding import Finding
from onceonly.audit.page import LabRun, commands_in, render, write
from onceonly.page import Undrawable, svg
from onceonly_checkpoints.ledger import Event, EventKind

EVIL = """</script><script>alert(1)</script><img src=x onerror=alert(1)>'"&{{ 7*7 }}]]>"""


class Reader(HTMLParser):
    """Elements with their attributes, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data
        self.text += data

    @property
    def facts(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.scripts[0])
        return found


def page(*facts: Facts) -> Reader:
    return Reader(render(judged(*facts), TAKEN))


def hostile() -> Facts:
    """Every text that comes from data is an attack."""
    line = line_of(6, sinks=(EVIL,), topic=EVIL)
    facts = story(6, sinks=(EVIL,), name=EVIL)
    (sink,) = facts.sinks
    history = tuple(
        (
            replace(marker, epoch=replace(epoch, written=one.written)),
            replace(receipt, identity=EVIL, position=((EVIL, EVIL),)),
        )
        for (marker, receipt), epoch, one in zip(sink.history, sink.epochs, line, strict=True)
    )
    assert facts.ledger is not None
    assert facts.ledger.pipeline is not None
    records = tuple(replace(record, phases=((EVIL, 0.1),)) for record in facts.ledger.records)
    at = BEGAN_MS + 9_000
    events = (
        *facts.ledger.events,
        Event(EVIL, EventKind.OPENED, EVIL, 2, 2, at),
        Event(EVIL, EventKind.DIVERGED, EVIL, 2, 2, at),
    )
    pipeline = replace(facts.ledger.pipeline, name=EVIL, query_id=EVIL, checkpoint=EVIL)
    ledger = replace(facts.ledger, address=EVIL, records=records, events=events, pipeline=pipeline)
    evil = replace(sink, address=EVIL, history=history, rows={**(sink.rows or {}), 3: 1})
    gone = replace(sink, id=f"gone{EVIL}", address=EVIL, unreadable=EVIL)
    return Facts(EVIL, (evil, gone), ledger)


@pytest.mark.parametrize(("phases", "said"), [(("prepare",), True), (("prepare", "commit", "record"), False)])
def test_the_commit_that_writes_the_ledger_is_said_to_be_missing_from_its_times(
    phases: tuple[str, ...], said: bool
) -> None:
    facts = true_facts()
    assert facts.ledger is not None
    records = tuple(replace(record, phases=tuple((name, 0.1) for name in phases)) for record in facts.ledger.records)
    found = page(replace(facts, ledger=replace(facts.ledger, records=records)))
    assert ("Without the commit" in found.text) == said


def test_texts_from_data_cannot_become_markup() -> None:
    found = Reader(render(judged(hostile()), TAKEN, [LabRun(EVIL, Verdict.GAPS, EVIL, (EVIL,))]))
    assert len(found.scripts) == 2
    assert not [tag for tag, _ in found.elements if tag in {"img", "iframe", "object", "base", "form"}]
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    assert "alert(1)" not in found.scripts[1]
    assert found.text.count(EVIL) > 10
    (pipeline,) = found.facts["pipelines"]  # type: ignore[misc]
    assert pipeline["pipeline"] == EVIL


def test_the_same_texts_cannot_become_commands() -> None:
    for name in ("orders; rm -rf ~", "it's; reboot", "$(reboot)", EVIL):
        facts = replace(with_rows(true_facts(), e3=2), pipeline=name)
        sink = replace(facts.sinks[0], address=f"memory:{name}")
        for _, result in judged(replace(facts, sinks=(sink,), ledger=None)):
            for finding in result.findings:
                for command in commands_in(finding.remedy):
                    words = shlex.split(command)
                    assert words[0] == "onceonly"
                    assert not {";", "rm", "reboot", "reboot;"} & set(words)
                    assert name in words or f"memory:{name}" in words


def test_every_command_in_a_remedy_gets_a_copy_button() -> None:
    facts, wrong = true_facts(), {}
    for code in RULES:
        remedy = Finding(code, PIPELINE, "memory:orders", 3, "seen").advised(facts).remedy
        commands = list(commands_in(remedy))
        whole = [command for command in commands if shlex.split(command)[0] == "onceonly"]
        cut = [command for command in commands if command.endswith(("then", "or", ",", "."))]
        if len(whole) != remedy.count("onceonly ") or whole != commands or cut:
            wrong[code] = (remedy, commands)
    assert wrong == {}


def test_verdict_first_disagreement_evidence_and_command_come_before_any_picture() -> None:
    facts = damaged()
    text = render(judged(facts), TAKEN)
    verdict, disagreement = text.index("GAPS</h1>"), text.index("First disagreement: epoch 12 in delta:orders")
    command = text.index('data-copy="onceonly epochs show 12 --query orders')
    assert verdict < disagreement < command < text.index('class="chart"')


def test_nothing_is_fetched_and_only_our_script_may_run() -> None:
    text = render(judged(story(), damaged()), TAKEN)
    outside = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#|data:)[^"')\s]+""", text.split('id="facts"')[0])
    assert outside == []
    assert "@import" not in text
    (policy,) = [one["content"] for tag, one in Reader(text).elements if one.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_the_facts_are_in_the_page() -> None:
    facts = damaged()
    found = page(facts).facts
    (pipeline,) = found["pipelines"]  # type: ignore[misc]
    assert (found["schema_version"], found["verdict"], pipeline["verdict"]) == (1, "GAPS", "GAPS")
    columns = pipeline["epoch_columns"]
    assert {len(columns[name]) for name in ("number", "rows", "up_to", "chain", "ended_ms")} == {47}
    assert columns["surplus"]["delta:orders"][12] < 0 < columns["surplus"]["postgres:orders"][20]
    assert {"A113", "A121", "A122"} <= {one["code"] for one in pipeline["findings"]}


def test_several_pipelines_share_a_page_and_the_worst_is_its_title() -> None:
    found = page(story(), replace(damaged(), pipeline="payments"))
    assert found.text.count("EXACTLY ONCE") >= 2
    assert "payments" in found.text
    assert found.facts["verdict"] == "GAPS"


@pytest.mark.parametrize(
    "facts",
    [
        Facts("orders", ()),
        with_sink(true_facts(), unreadable="connection refused"),
        with_sink(replace(true_facts(), ledger=None), history=(), rows={}),
        with_sink(true_facts(), rows=None),
        story(1),
        story(2, partitions=30),
    ],
)
def test_there_is_a_page_for_every_state(facts: Facts) -> None:
    assert str(judged(facts)[0][1].verdict) in page(facts).text


@pytest.mark.slow
def test_ten_thousand_epochs_take_seconds_and_less_than_six_megabytes() -> None:
    facts = story(10_000)
    began = time.process_time()
    text = render(judged(facts), TAKEN)
    seconds = time.process_time() - began
    assert len(text.encode()) < 6_000_000
    assert seconds < 10, f"{seconds:.1f} s of CPU"


@pytest.mark.slow
def test_hundreds_of_partitions_and_findings_leave_the_page_small() -> None:
    facts = story(2_000, sinks=SINKS[:1], partitions=200)
    facts = with_sink(facts, rows=dict.fromkeys(facts.sinks[0].rows or {}, 1))
    text = render(judged(facts), TAKEN)
    assert len(text.encode()) < 6_000_000
    assert "1,700 more findings of these kinds are not shown" in text
    assert "192 more partitions are not drawn" in text


def test_a_drawing_that_could_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import vl_convert

    evil = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    monkeypatch.setattr(vl_convert, "vegalite_to_svg", lambda *_, **__: evil)
    with pytest.raises(Undrawable, match="<script>"):
        svg({}, "x")


def test_a_page_is_there_completely_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write(target, judged(story(3)), TAKEN)
    assert target.read_text().rstrip().endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_an_audit_without_a_page_loads_no_chart_library() -> None:
    code = "import onceonly.audit, sys; assert not {'jinja2', 'vl_convert'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
