"""What ``docker compose --profile metrics up`` brings fits together: files, ports, commands. No engine is asked."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.audit.world import World

from onceonly.cli.options import LedgerOption

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
PROFILE = ["metrics"]


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(read(COMPOSE)["services"])


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """File or folder of the repository by its place in the container; nobody there may write to it."""
    found = {}
    for mount in service["volumes"]:
        source, target, mode = mount.split(":")
        assert mode == "ro", mount
        found[target] = ROOT / source
    return found


def test_servers_for_tests_come_without_a_profile_and_everything_else_with_it(services: dict[str, Any]) -> None:
    plain = {name for name, service in services.items() if "profiles" not in service}
    assert plain == {"postgres", "kafka"}
    assert {name for name, service in services.items() if service.get("profiles") == PROFILE} == set(services) - plain
    assert set(services) - plain == {"exporter", "prometheus", "grafana"}


def test_every_port_is_one_of_this_machine_alone_and_can_be_chosen(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    chosen = [re.fullmatch(r"127\.0\.0\.1:\$\{(ONCEONLY_\w+_PORT):-(\d+)\}:\d+", port) for port in ports]
    assert all(chosen), ports
    assert len({match[2] for match in chosen if match}) == len(ports)


def test_every_file_that_is_mounted_is_there(services: dict[str, Any]) -> None:
    for name in ("prometheus", "grafana"):
        found = mounts(services[name])
        assert found
        assert [path for path in found.values() if not path.exists()] == []


def test_prometheus_asks_the_exporter_and_reads_the_rules_that_are_shipped(services: dict[str, Any]) -> None:
    found = mounts(services["prometheus"])
    settings = read(found["/etc/prometheus/prometheus.yml"])
    assert [found[file] for file in settings["rule_files"]] == [ROOT / "src/onceonly/metrics/alerts.yml"]
    [job] = settings["scrape_configs"]
    [[target]] = [one["targets"] for one in job["static_configs"]]
    host, _, port = target.partition(":")
    command = services[host]["command"]
    assert command[command.index("--port") + 1] == port
    assert (port, command[command.index("--address") + 1]) == ("9464", "0.0.0.0")
    assert services["prometheus"]["depends_on"] == [host]


def test_grafana_finds_prometheus_and_the_dashboard_that_is_shipped(services: dict[str, Any]) -> None:
    found = mounts(services["grafana"])
    provisioning = found["/etc/grafana/provisioning"]
    [source] = read(provisioning / "datasources" / "prometheus.yml")["datasources"]
    host, _, port = source["url"].removeprefix("http://").partition(":")
    assert services[host]["ports"][0].endswith(f":{port}")
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    [provider] = read(provisioning / "dashboards" / "onceonly.yml")["providers"]
    folder = provider["options"]["path"]
    [dashboard] = [place for place in found if place.startswith(f"{folder}/")]
    assert found[dashboard] == ROOT / "src/onceonly/metrics/dashboard.json"
    assert services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard


def test_the_exporter_runs_as_it_is_told(services: dict[str, Any], tmp_path: Path) -> None:
    world = World(tmp_path).write_all()
    exporter = services["exporter"]
    [(variable, _)] = exporter["environment"].items()
    option = LedgerOption.__metadata__[0]  # type: ignore[attr-defined]
    assert variable == option.envvar
    told = list(exporter["command"])
    told[told.index("--port") + 1] = "0"
    told[told.index("--address") + 1] = "127.0.0.1"
    command = [sys.executable, "-m", "onceonly", *told]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={variable: str(world.path)}) as server:
        assert server.stderr is not None
        url = server.stderr.readline().strip()
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert 'onceonly_epoch{pipeline="orders"} 4.0' in answer.read().decode()
        finally:
            server.kill()


def test_the_image_of_the_exporter_is_made_of_what_a_wheel_needs(services: dict[str, Any]) -> None:
    build = services["exporter"]["build"]
    assert build["context"] == "."
    text = (ROOT / build["dockerfile"]).read_text()
    [copied] = re.findall(r"^COPY (.*) /src/$", text, re.MULTILINE)
    sources = copied.split()
    assert [name for name in sources if not (ROOT / name).exists()] == []
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    folders = re.findall(r"^COPY (\w+) /src/\w+$", text, re.MULTILINE)
    assert kept == {*sources, *folders}
    project = (ROOT / "pyproject.toml").read_text()
    hook = re.findall(r'^path = "([^"]+)"', project, re.MULTILINE)
    needed = re.findall(r'Path\(self.root, "([^"]+)"\)', "".join((ROOT / path).read_text() for path in hook))
    needed += re.findall(r'^license-files = \["([^"]+)"', project, re.MULTILINE)
    needed += [path.partition("/")[0] for path in re.findall(r'^  "(\w+/onceonly\w*)",$', project, re.MULTILINE)]
    assert len(needed) == 5
    assert set(needed) <= kept
    [extras] = re.findall(r"/src\[([\w,]+)\]", text)
    assert {extra for extra in extras.split(",") if f"\n{extra} = [" not in project} == set()
