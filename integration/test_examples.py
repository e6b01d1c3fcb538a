"""The examples do what they say: each is run, and one as a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.docs]

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.name != "local.py")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_ends_as_it_says(
    script: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    spec = importlib.util.spec_from_file_location(f"example_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(spark, tmp_path)


def test_an_example_runs_with_one_command(tmp_path: Path) -> None:
    script = FOLDER / "single_sink.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "EXACTLY ONCE  orders" in done.stdout


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(FOLDER / "in_a_notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = str([cell.get("outputs", ()) for cell in notebook.cells])
    assert "<th>because</th>" in shown
    assert "recorded" in shown
    assert "[ONCE-E211]" in str(notebook.cells[-1].outputs)


def test_the_list_of_examples_is_whole() -> None:
    listed = (FOLDER / "index.md").read_text()
    for path in (*SCRIPTS, *FOLDER.glob("*.ipynb")):
        assert f"({path.name})" in listed
