"""Which Python a first hour takes, which blocks of a page it runs, and when a page shows what a command printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.first_hour_page import alike
from scripts.first_hour_plan import PYTHONS, Plan, candidates, drawn, names, pages, plan, printed_installs, with_wheel
from tests.test_docs import ROOT

DESK, CLONE = Path("/desk"), Path("/clone")
RUNNER = ROOT / "scripts" / "first_hour_page.py"


def planned(*found: tuple[str, str]) -> Plan:
    """The plan of a page with these blocks, by label and text, on a machine with pip alone."""
    text = "".join(f"```{info}\n{code}\n```\n" for info, code in found)
    return plan(text, DESK, CLONE, lambda program: program in ("pip", "onceonly"))


# ---- which Python


def test_a_named_python_comes_before_those_of_pyenv_and_of_the_path(tmp_path: Path) -> None:
    for version in ("3.12.1", "3.12.9", "3.13.0"):
        (tmp_path / "versions" / version / "bin").mkdir(parents=True)
        (tmp_path / "versions" / version / "bin" / "python").touch()
    of_pyenv = [str(tmp_path / "versions" / version / "bin" / "python") for version in ("3.12.9", "3.12.1")]
    assert candidates("3.12", {"ONCEONLY_PYTHON_3_12": "/opt/python"}, tmp_path) == [
        "/opt/python",
        *of_pyenv,
        "python3.12",
    ]
    assert candidates("3.10", {}, tmp_path) == ["python3.10"]


def test_a_commit_draws_the_same_python_again_and_others_draw_others() -> None:
    assert drawn(PYTHONS, "19950687ab4d") == drawn(PYTHONS, "19950687ab4d")
    assert {drawn(PYTHONS, f"{number:x}") for number in range(8)} == set(PYTHONS)
    assert drawn(PYTHONS, "") == PYTHONS[0]


# ---- which blocks


def test_blocks_run_in_order_and_an_install_runs_in_the_clone() -> None:
    made = planned(
        ("bash", "pip install '.[cli]'      # in a clone"),
        ('python title="jobs.py"', "job = 1"),
        ("python spark", "import os\npath = os.sep\ndef there(): return path"),
        ("python", "assert there() == path"),
        ("console", "$ onceonly --version\n..."),
        ("text", "not run"),
        ("diff", "- not\n+ run"),
    )
    assert made.left_out == []
    assert [(step["kind"], step["folder"]) for step in made.steps] == [
        ("shell", "/clone"),
        ("file", "/desk"),
        ("python", "/desk"),
        ("python", "/desk"),
        ("console", "/desk"),
    ]


def test_a_block_that_needs_what_no_page_brings_is_left_out_with_its_reason() -> None:
    made = planned(
        ("bash", "make demo"),
        ("python", "fine = 1"),
        ("python spark", "sink = connect(dsn)\ndef connect(place): return place + servers"),
        ("python", "print(sink, fine)"),
        ("console", "$ onceonly audit\n..."),
        ("sql postgres", "SELECT 1"),
        ("bash", "kafka-topics.sh --create"),
        ("python untried", "import confluent_kafka.schema_registry"),
        ("python chaos", "def test(chaos): ..."),
        ("python", "assert fine"),
    )
    assert [reason for _, reason in made.left_out] == [
        "make: targets of the repository",
        "needs dsn, needs servers",
        "builds on a block that was left out",
        "shows what a block that was left out wrote",
        "needs a Postgres server",
        "needs kafka-topics.sh",
        "labelled as not tried",
        "minutes of kills, which make test runs",
    ]
    assert [step["code"] for step in made.steps] == ["fine = 1", "assert fine"]


def test_a_module_of_the_reader_sees_no_names_of_the_page() -> None:
    made = planned(("python", "shared = 1"), ('python title="jobs.py"', "job = shared"))
    assert made.left_out == [(4, "needs shared")]


def test_names_are_those_of_the_whole_program_as_python_sees_them() -> None:
    reads, binds = names(
        "from a import b as c\nclass D:\n    e = f\ndef g(h):\n    i = h\n    return i + j\n[k for k in c]"
    )
    assert {"c", "f", "j"} <= reads
    assert not reads & {"h", "i"}
    assert {"c", "D", "g"} <= binds
    assert not binds & {"e", "h", "i", "j"}


def test_the_pages_are_the_tutorial_and_the_group_write_of_the_site() -> None:
    listed = {page.name for page in pages()}
    assert {"tutorial.md", "write-to-delta.md", "write-to-postgres.md"} <= listed
    assert [page for page in pages() if not page.is_file()] == []


def test_most_blocks_of_the_readme_and_the_tutorial_run() -> None:
    """A page that needs a server runs in tests; the first two pages of a newcomer need none."""
    for page, least in ((ROOT / "README.md", 3), (ROOT / "docs/tutorial.md", 8)):
        made = plan(page.read_text(), DESK, CLONE, lambda program: program in ("pip", "onceonly"))
        assert len(made.steps) >= least, made.left_out


def test_each_printed_install_is_resolved_once_and_without_its_comment() -> None:
    page = "Call `pip install '.[report]'` in your\nclone.\n```bash\npip install '.[spark]'      # in a clone\n```\n"
    assert printed_installs([page, page]) == ["pip install '.[report]'", "pip install '.[spark]'"]


def test_a_wheel_in_a_folder_of_the_readers_is_the_one_that_was_built() -> None:
    wheel = Path("/built/onceonly-1-py3-none-any.whl")
    command = "pip install /Volumes/main/libs/onceonly-1-py3-none-any.whl deltalake"
    assert with_wheel(command, wheel) == f"pip install {wheel} deltalake"
    assert with_wheel("pip install '.[cli]'", wheel) == "pip install '.[cli]'"


# ---- running them


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("epoch  1\n...", "epoch 1\nrows 2\nfindings 0\n", True),
        ("", "", True),
        ("", "a warning", False),
        ("2 rows", "3 rows", False),
    ],
)
def test_output_is_compared_as_the_pages_are(expected: str, printed: str, same: bool) -> None:
    assert alike(expected, printed) is same


def test_steps_of_a_page_share_names_and_modules(tmp_path: Path) -> None:
    done = follow(
        tmp_path,
        {"kind": "file", "line": 1, "path": "jobs.py", "code": "price = 3"},
        {"kind": "python", "line": 4, "code": "from jobs import price\nimport pathlib\ndef run(): return price"},
        {"kind": "python", "line": 8, "code": "pathlib.Path('total').write_text(str(run() * 2))"},
        {"kind": "shell", "line": 12, "code": "test -f total", "folder": str(tmp_path)},
        {"kind": "console", "line": 15, "code": "$ cat total\n6\n$ echo a b\na ...", "folder": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"kind": "python", "code": "1 / 0"}, "ZeroDivisionError"),
        ({"kind": "shell", "code": "exit 3"}, "exit code 3"),
        ({"kind": "console", "code": "$ echo 7\n6"}, "echo 7 printed\n7"),
    ],
    ids=["python", "shell", "console"],
)
def test_a_step_that_fails_ends_the_page_at_its_line(tmp_path: Path, step: dict[str, str], words: str) -> None:
    after = {"kind": "file", "line": 99, "path": "after", "code": ""}
    done = follow(tmp_path, {**step, "line": 41, "folder": str(tmp_path)}, after)
    assert (done.returncode, "page.md:41: this block failed" in done.stderr) == (1, True)
    assert words in done.stderr
    assert not (tmp_path / "after").exists()


def follow(folder: Path, *steps: dict[str, object]) -> subprocess.CompletedProcess[str]:
    file = folder / "steps.json"
    file.write_text(json.dumps({"name": "page.md", "steps": steps}))
    return subprocess.run([sys.executable, RUNNER, file], cwd=folder, capture_output=True, text=True, check=False)
