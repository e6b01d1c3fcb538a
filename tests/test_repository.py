"""Targets, workflows, forms, changelog and metadata of the repository agree with each other."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml
from scripts import release_check
from scripts.package_metadata import relative_links
from trove_classifiers import classifiers

from onceonly_lab.hatch_build import absolute_links, project_urls

ROOT = Path(__file__).parent.parent
HOST = ROOT / ".github"
MAKEFILE = (ROOT / "Makefile").read_text()
LAB = "src/onceonly_lab"
PROJECTS = {folder: tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", LAB)}
TEXTS = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", ".pre-commit-config.yaml", ".ci/run")),
    *(path for folder in (HOST, ROOT / ".devcontainer") for path in sorted(folder.rglob("*.*")) if path.is_file()),
    *(ROOT / folder / name for folder in PROJECTS for name in ("pyproject.toml", "README.md")),
]


# ---- targets


def test_each_phony_target_has_a_sentence_in_the_help() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    lines = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    sentences = dict(line.split(maxsplit=1) if " " in line else (line, "") for line in lines)
    assert {name for name, sentence in sentences.items() if not re.fullmatch(r"[A-Z].*\.", sentence)} == set()
    assert set(phony.split()) == set(sentences)


def test_each_target_that_a_text_names_exists() -> None:
    named = {(path.name, target) for path in TEXTS for target in re.findall(r"\bmake ([a-z][\w-]*)", path.read_text())}
    assert [pair for pair in named if f"\n{pair[1]}:" not in MAKEFILE] == []
    assert {name for name, _ in named} >= {"CONTRIBUTING.md", "nightly.yml", "pull_request_template.md", "run"}


@pytest.mark.parametrize("workflow", sorted(HOST.glob("workflows/*.yml")), ids=lambda path: path.stem)
def test_a_workflow_runs_targets_and_nothing_else(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    commands = [step["run"].strip() for step in steps if "run" in step]
    assert commands
    target = r"\.ci/run|make [\w-]+( [A-Z_]+=(\w+|\"[^\"$]*\"))*"
    setup = r"actions/(checkout|setup-python|setup-java|upload-artifact)@v\d+"
    assert [line for line in commands if not re.fullmatch(target, line)] == []
    assert [step["uses"] for step in steps if "uses" in step and not re.fullmatch(setup, step["uses"])] == []


def test_the_hooks_before_a_commit_are_targets() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    assert [hook["entry"] for hook in local["hooks"]] == ["make lint", "make mypy"]


def test_the_container_is_called_untried_and_runs_a_target() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert "untried" in container["name"]
    assert container["postCreateCommand"] == "make fast"


def test_programs_read_delta_tables_by_arrows_own_file_system() -> None:
    folders = ("src", "sinks", "checkpoints", "scripts", "benchmarks", "docs/examples")
    programs = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    # A file that Python opened, as deltalake does, may abort the exit of a program that reads and ends.
    opened_by_python = re.compile(r"\.to_pyarrow_table\(|\.to_pyarrow_dataset\((?!filesystem=)")
    assert [path.name for path in programs if opened_by_python.search(path.read_text())] == []
    assert len(programs) > 300


# ---- texts


@pytest.mark.parametrize("form", sorted(HOST.glob("ISSUE_TEMPLATE/[0-9]*.yml")), ids=lambda path: path.stem)
def test_a_form_asks_for_facts(form: Path) -> None:
    loaded = yaml.safe_load(form.read_text())
    fields = [field for field in loaded["body"] if field["type"] != "markdown"]
    assert loaded["name"]
    assert loaded["description"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_links_of_the_texts_lead_somewhere() -> None:
    pages = [path for path in TEXTS if path.suffix == ".md"]
    links = [(page, link) for page in pages for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
    assert len(links) > 10


def test_the_texts_name_no_host() -> None:
    named = {(path.name, host) for path in TEXTS for host in re.findall(r"https?://([\w.-]+)", path.read_text())}
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["onceonly"]["repository"]
    assert {pair for pair in named if f"//{pair[1]}" not in repository} == set()


def test_the_newest_release_has_at_most_forty_short_entries() -> None:
    release = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    entries = re.findall(r"^- (.*(?:\n  .*)*)", release, re.MULTILINE)
    assert re.split(r"[,\s]", release)[0] == PROJECTS["."]["version"]
    assert 0 < len(entries) <= 40
    assert [entry for entry in entries if len(entry.split()) > 20] == []


def test_contributing_begins_with_a_first_change_and_is_short() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    assert sections[1].startswith("Your first change\n")
    assert len(re.findall(r"^\d+\. ", sections[1], re.MULTILINE)) <= 10
    assert len(text.split()) <= 1500


# ---- metadata


@pytest.mark.parametrize("project", PROJECTS.values(), ids=lambda project: project["name"])
def test_classifiers_name_the_pythons_that_ran(project: dict[str, Any]) -> None:
    outcomes = json.loads((ROOT / "docs/lines.json").read_text())
    ran, red = ({one["python"].rpartition(".")[0] for one in outcomes if one[key]} for key in ("passed", "failed"))
    named = {name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r"Python :: 3\.\d+$", name)}
    assert named == ran - red
    assert set(project["classifiers"]) <= classifiers
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]


def test_the_lab_brings_pytest_and_the_library_does_not() -> None:
    assert "pytest>=8" in PROJECTS[LAB]["dependencies"]
    extras = PROJECTS["."]["optional-dependencies"].values()
    assert "pytest" not in str([*PROJECTS["."]["dependencies"], *extras])


PAGE = """[Install](docs/install.md#java), ![steps](docs/e.svg), [b](https://example.com/b), [top](#top)
```text
[as](it.is)
```
"""


def test_links_lead_into_the_repository_once_it_has_an_address() -> None:
    address = {"repository": "https://example.invalid/o", "tag": "v1"}
    assert absolute_links(PAGE, **address, folder=".") == (
        "[Install](https://example.invalid/o/blob/v1/docs/install.md#java),"
        " ![steps](https://example.invalid/o/raw/v1/docs/e.svg), [b](https://example.com/b), [top](#top)\n"
        "```text\n[as](it.is)\n```\n"
    )
    assert (
        absolute_links("[x](../../README.md)", **address, folder="src/lab")
        == "[x](https://example.invalid/o/blob/v1/README.md)"
    )
    urls = project_urls(**address)
    assert set(urls) == {"Homepage", "Documentation", "Issues", "Changelog", "Source"}
    assert all(url.startswith("https://example.invalid/o") for url in urls.values())


def test_without_an_address_a_link_becomes_its_label() -> None:
    page = absolute_links(PAGE, repository="", tag="v1", folder=".")
    assert page.startswith("Install, steps, [b](https://example.com/b), [top](#top)\n```text\n[as](it.is)\n")
    assert project_urls("", "v1") == {}


@pytest.mark.parametrize("folder", PROJECTS)
@pytest.mark.parametrize("repository", ["", "https://example.invalid/o"])
def test_an_index_shows_no_relative_link(folder: str, repository: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    assert relative_links(absolute_links(text, repository=repository, tag="v1", folder=folder)) == []


def test_every_kind_of_relative_link_is_noticed() -> None:
    assert relative_links("[a](b.md) ![c](d.svg) [e][f] [top](#top)\n\n[f]: g.md\n") == ["b.md", "d.svg", "g.md"]


# ---- a release


class Index(BaseHTTPRequestHandler):
    """An index that knows two projects."""

    def do_GET(self) -> None:
        urls = {"/ours": {"Homepage": "https://example.invalid/o"}, "/theirs": {"Homepage": ""}, "/bare": None}
        self.send_response(503 if self.path == "/broken" else 200 if self.path in urls else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"info": {"project_urls": urls.get(self.path)}}).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def index() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{{}}"
        server.shutdown()
        thread.join()


def test_a_name_is_free_or_ours_or_taken_or_unknown(index: str) -> None:
    ours = "https://example.invalid/o"
    states = {name: release_check.name_state(name, ours, index) for name in ("ours", "theirs", "bare", "new", "broken")}
    assert states == {"ours": "ours", "theirs": "taken", "bare": "taken", "new": "free", "broken": "unknown"}
    assert release_check.name_state("theirs", "", index) == "taken"
    assert release_check.name_state("ours", "", "http://127.0.0.1:1/{}") == "unknown"
    assert release_check.name_state("ours", "", "").startswith("unknown: add INDEX=")


def test_pages_name_the_wheel_of_this_version_and_files_that_are_there() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    pages = "".join(page.read_text() for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/*.md")])
    assert set(re.findall(r"onceonly-([^\s-]+)-py3-none-any.whl", pages)) == {version}
    named = re.findall(r"`((?:src|sinks|checkpoints|scripts)/[\w./]+\.\w+)`", pages)
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_a_version_without_its_release_notes_or_with_a_tag_is_refused() -> None:
    notes = "# Changelog\n\n## 0.2.0, not released yet\n"
    assert list(release_check.version_problems("0.2.0", notes, "v0.1.0\n")) == []
    (other,) = release_check.version_problems("0.3.0", notes, "")
    assert "begins with 0.2.0" in other
    (tagged,) = release_check.version_problems("0.2.0", notes, "v0.1.0\nv0.2.0\n")
    assert "v0.2.0 is tagged" in tagged
