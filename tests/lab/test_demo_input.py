"""The demo's input: all flights, the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from onceonly_lab.demo import input


def test_every_flight_of_2013_is_in_the_input_once(tmp_path: Path) -> None:
    input.write(tmp_path / "input", input.AVAILABLE, 16)
    table = input.read(tmp_path / "input")
    assert table.num_rows == 336_776
    assert table.column_names == input.arrow_schema().names
    # Known totals of the published data set.
    assert pc.sum(table["distance"]).as_py() == 350_217_607
    assert table["dep_time"].null_count == 8_255
    assert table["tailnum"].null_count == 2_512


def test_the_same_arguments_give_the_same_bytes_and_times(tmp_path: Path) -> None:
    for name in ("a", "b"):
        input.write(tmp_path / name, 500, 9)
    one, other = (sorted((tmp_path / name).iterdir()) for name in ("a", "b"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert [path.stat().st_mtime for path in one] == [path.stat().st_mtime for path in other]


def test_files_are_of_nearly_equal_length_and_rise_in_time(tmp_path: Path) -> None:
    input.write(tmp_path / "input", 100, 16)
    files = sorted((tmp_path / "input").iterdir())
    assert {len(path.read_text().splitlines()) - 1 for path in files} == {6, 7}
    times = [path.stat().st_mtime for path in files]
    assert times == sorted(set(times))


@pytest.mark.parametrize(("rows", "files"), [(5, 6), (input.AVAILABLE + 1, 2)])
def test_an_impossible_cut_is_refused(tmp_path: Path, rows: int, files: int) -> None:
    with pytest.raises(ValueError, match="cannot cut"):
        input.write(tmp_path / "input", rows, files)
    assert not (tmp_path / "input").exists()
