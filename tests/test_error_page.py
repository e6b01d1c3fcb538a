"""The reference page of errors: its supervisor tells classes apart."""

from __future__ import annotations

import pytest
from tests.test_docs import ROOT, run, runnable

from onceonly.errors import refuse

pytestmark = pytest.mark.docs

PAGE = ROOT / "docs" / "reference" / "python" / "errors.md"


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
