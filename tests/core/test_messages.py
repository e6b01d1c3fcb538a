"""The catalogue of codes: its files can be read, wherever they lie, and no message changes unnoticed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from onceonly.errors import UNTOLD, OnceOnlyError, caution, codes, refuse
from onceonly.errors.codes import CATALOGUE, FAMILIES, Family, parse, text_of
from onceonly_checkpoints.install import hint

ROOT = Path(__file__).parents[2]
KNOWN = Path(__file__).parent / "messages.txt"


def message(code: str) -> str:
    """The whole message of a code, with the name of each detail in its place."""
    entry = CATALOGUE[code]
    names = set(re.findall(r"\{(\w+)", f"{entry.what} {entry.matter} {entry.cause} {entry.remedy}"))
    details = {name: f"<{name}>" for name in names if UNTOLD.get(name, "") is not None}
    text = str(refuse(code, **details) if code.startswith("E") else caution(code, **details))
    return text.replace(hint("<extra>"), "<install command>")  # it names the folder of this checkout


def test_no_message_changes_unnoticed() -> None:
    """ONCEONLY_NEW_MESSAGES=1 writes them down as they are now."""
    now = "\n\n".join(map(message, CATALOGUE)) + "\n"
    if os.environ.get("ONCEONLY_NEW_MESSAGES"):
        KNOWN.write_text(now)
    assert now == KNOWN.read_text()


def test_codes_stand_in_the_files_of_their_families_in_order() -> None:
    for number, family in enumerate(FAMILIES, start=1):
        found = [code for code, _ in parse(text_of(family))]
        assert found == sorted(set(found))
        assert {code[1] for code in found} == {str(number)}


@pytest.mark.parametrize(
    "body",
    ["What.\n\nLikely cause: x\n\nWhy it matters: x\n\nNext: x", "What.\n\nWhy it matters: x", "What."],
)
def test_an_entry_that_lacks_a_part_is_noticed(body: str) -> None:
    with pytest.raises(ValueError, match="E101"):
        list(parse(f"# E1xx: title\n\n## E101\n\n{body}\n"))


def test_the_texts_are_read_when_the_first_one_is_needed() -> None:
    script = "import onceonly; from onceonly.errors.codes import CATALOGUE as c; print([*vars(c)], len(c), [*vars(c)])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == f"['_read'] {len(CATALOGUE)} ['_read', '_entries']\n"


def test_the_texts_are_found_in_a_zip_as_executors_get_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "onceonly.zip", "w") as archive:
        for root in ("src", "checkpoints"):
            for path in (ROOT / root).rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(ROOT / root))
    script = "from onceonly.errors import refuse; import onceonly; print(onceonly.__file__); print(refuse('E101'))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "onceonly.zip")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    place, said = done.stdout.split("\n", 1)
    assert "onceonly.zip" in place
    assert said.startswith("[ONCE-E101] The query has no name")


def test_an_error_knows_its_code_and_keeps_its_details() -> None:
    error = refuse("E501", sink="s", reason="r", address="a")
    assert isinstance(error, OnceOnlyError)
    assert (error.code, error.what) == ("E501", "s cannot be reached: r.")
    assert isinstance(codes.CATALOGUE, codes.Catalogue)


def test_a_code_is_of_the_family_whose_file_it_stands_in() -> None:
    for family in FAMILIES:
        assert {Family.of(code) for code, _ in parse(text_of(family))} == {family}
    assert [Family.of(code) for code in ("", "A101", "E901", "X-1")] == [None] * 4
