"""The Python blocks of the documentation that need Spark run as they stand, with the names they take for granted."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.secure_kafka import PASSWORD, SecureKafka
from tests.test_docs import CONSOLE, FILE, KNOWN, PAGES, README, SQL, blocks, name, run

from onceonly.spark.detect import line as spark_line
from onceonly.spark.jars import Artifact, fetched
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.docs]

TOPIC = re.compile(r"^kafka-topics\.sh .*--create --topic ([\w.-]+)$", re.MULTILINE)
"""A topic that a page creates before its Python, which then calls the brokers ``servers``."""


def spark_blocks(page: Path) -> list[Any]:
    return [block for block in blocks(page.read_text()) if block.info == "python spark"]


@pytest.mark.parametrize("page", [page for page in PAGES if spark_blocks(page) and page != README], ids=name)
def test_a_page_with_spark_can_be_followed_to_its_end(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [
        block
        for block in blocks(page.read_text())
        if block.info in {*KNOWN, CONSOLE, SQL} or FILE.fullmatch(block.info)
    ]
    given: dict[str, object] = {}
    if any(block.info == SQL for block in found):
        # Roles belong to a whole server, so it is one that goes with the tests.
        server: EmbeddedPostgres = request.getfixturevalue("postgres")
        given["dsn"] = server.database(f"docs_{page.stem.replace('-', '_')}")
        monkeypatch.setenv("ONCEONLY_LEDGER", str(given["dsn"]))
    topics = TOPIC.findall(page.read_text())
    if topics:
        broker: EmbeddedKafka = request.getfixturevalue("kafka")
        if "secure_servers" in page.read_text():
            secure: SecureKafka = request.getfixturevalue("secure_kafka")
            monkeypatch.setenv("ORDERS_PASSWORD", PASSWORD)
            monkeypatch.setenv("ORDERS_CA", str(secure.authority))
            given["secure_servers"], broker = secure.servers, secure.broker
        for topic in topics:
            broker.topic(topic)
        given["servers"] = broker.servers
    if "from_avro" in page.read_text():
        spark.sql(f"ADD JAR '{avro_jar()}'")
    run(page, found, given)


def avro_jar() -> Path:
    """Spark's Avro functions, which the shared session has no package for."""
    line = spark_line()
    [jar] = fetched([Artifact("org.apache.spark", f"spark-avro_{line.scala}", pyspark.__version__)], None)
    return jar


def test_the_readme_can_be_followed_in_an_empty_folder(tmp_path: Path) -> None:
    """Its program and its commands as they are, in a shell; then its refusal, but for ids of queries and the folder."""
    found = list(blocks(README.read_text()))
    [(path, program)] = [(file["path"], block.code) for block in found if (file := FILE.fullmatch(block.info))]
    [console] = [block.code for block in found if block.info == CONSOLE]
    (tmp_path / path).write_text(program)
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        printed = in_a_shell(command, tmp_path)
        assert printed.returncode == 0, f"{command}\n{printed.stderr}"
        alike = doctest.OutputChecker().check_output(
            expected.strip() + "\n", printed.stdout.strip() + "\n", doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert alike, f"{command}\n{printed.stdout}"
    [lost] = re.findall(r"^`(rm -r [^`]+)`", README.read_text(), re.MULTILINE)
    assert in_a_shell(lost, tmp_path).returncode == 0
    stopped = in_a_shell(f"python {path}", tmp_path)
    [shown] = [block.code for block in found if block.code.startswith("[ONCE-E211]")]
    assert stopped.returncode == 1
    assert _anywhere(shown.rstrip(), Path("/data")) in _anywhere(stopped.stderr, tmp_path)


def in_a_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the page with the programs of this environment, as after ``source .venv/bin/activate``."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    left_out = ("PYTHON", "PYTEST", "PYSPARK", "ONCEONLY", "SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)} | {"PATH": path}
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def _anywhere(text: str, folder: Path) -> str:
    return re.sub(r"(query id|before) [0-9a-f]{8}\b", r"\1 ID", text.replace(str(folder), "FOLDER"))
