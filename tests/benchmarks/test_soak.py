"""The page of the soak: what grows is named, and so is a sink that is not exact."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest
from benchmarks.plot import picture
from benchmarks.soak import KILLED, LIVES, SHOWN, Sample, growth, main, page

ONE = Sample(0, 1, 200.0, 700.0, 300, 90, 3, 5, 40.0, 500.0, 20)
RUN = [replace(ONE, second=10 * number, epochs=number, handles=300 + number) for number in range(60)]
FOUND = {
    **dict.fromkeys(("date", "cpu", "line"), "some"),
    **dict.fromkeys(("cores", "memory_gb", "minutes", "seed", "rows", "kills"), 7),
    "wrong": {KILLED: {"kafka": "1 of 7 rows missing, 0 too many"}, LIVES: {}},
}


def test_growth_compares_the_last_sixth_of_a_run_with_the_third() -> None:
    assert growth(RUN, "python_mb") == 1.0
    assert growth(RUN, "epochs") == 54.5 / 24.5
    assert growth([replace(one, staged=0) for one in RUN], "staged") is None
    assert growth([replace(one, staged=one.second // 300) for one in RUN], "staged") == math.inf


def test_a_run_too_short_to_compare_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["soak", "--minutes", "0.5"])
    with pytest.raises(SystemExit):
        main()
    assert "--minutes: at least 1" in capsys.readouterr().err


def test_the_page_names_what_grows_and_which_sink_is_wrong() -> None:
    leaking = [replace(one, threads=90 + one.second) for one in RUN]
    text = page(FOUND, {KILLED: RUN, LIVES: leaking})
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert rows["threads"].endswith("| 1.90 | **grows** |")
    assert rows["handles"].endswith("| 1.09 | flat |")
    assert rows["epochs"].endswith("| 2.22 |  |")
    assert rows[KILLED].endswith("| exact | exact | 1 of 7 rows missing, 0 too many |")
    assert rows[LIVES].endswith("| exact | exact | exact |")


def test_the_picture_has_a_line_for_each_figure() -> None:
    drawn = picture(RUN, SHOWN, "a run <of> ten minutes")
    assert drawn.count("<polyline") == 10
    assert "a run &lt;of&gt; ten minutes" in drawn
