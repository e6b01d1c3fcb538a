"""The reference page of errors: its table of classes, and its supervisor, which tells them apart."""

from __future__ import annotations

import re

import pytest
from tests.core.test_error_classes import FAMILIES, public_classes
from tests.test_docs import ROOT, run, runnable

from onceonly import errors
from onceonly.errors import refuse

pytestmark = pytest.mark.docs

PAGE = ROOT / "docs" / "reference" / "api.md"


def test_the_reference_lists_every_class_with_its_codes_and_whether_it_may_pass() -> None:
    lines = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \| (\w*) ?\|$", PAGE.read_text(), re.MULTILINE)
    said = {name: (codes, retry) for name, codes, retry in lines}
    expected = {}
    for name, one in public_classes(errors).items():
        codes = ", ".join(code for code, found in errors.CLASSES.items() if found is one)
        family = next((number for number, found in enumerate(FAMILIES.values(), start=1) if found is one), None)
        expected[name] = (codes or (f"E{family}xx" if family else "all"), "yes" if one.retry else "no")
    expected["OnceOnlyError"] = ("all", "")
    assert said == expected
    assert all(f"        - {name}\n" in PAGE.read_text() for name in expected)


class _Stopped:
    """A query that ended as Spark ends it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def awaitTermination(self) -> None:
        raise RuntimeError(f"[STREAM_FAILED] Query [id] terminated with exception: {self._error}\n\n\tat x.y")


def test_the_supervisor_of_the_reference_page_tells_them_apart() -> None:
    advice = {
        refuse("E401", sink="s", by="a newer driver", theirs=2, ours=1): "leave it: a newer driver goes on",
        refuse("E217", pipeline="p", sink="s", start="3"): "mend it first: E217",
        refuse("E501", sink="s", reason="r", address="a"): "start it again later",
    }
    supervise = run(PAGE, runnable(PAGE))["supervise"]
    assert {error: supervise(_Stopped(error)) for error in advice} == advice


def test_the_supervisor_of_the_reference_page_leaves_other_errors_alone() -> None:
    supervise = run(PAGE, runnable(PAGE))["supervise"]
    with pytest.raises(RuntimeError, match="boom"):
        supervise(_Stopped(ValueError("boom")))
