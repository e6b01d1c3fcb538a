"""Which PySpark this is is asked in one place; one that is not known is refused with what to do."""

from __future__ import annotations

import pytest

from onceonly.errors import ConfigurationError
from onceonly.spark.choose import line_of
from onceonly.spark.lines import LINES


@pytest.mark.parametrize(
    ("version", "minor"), [("3.5.9", "3.5"), ("4.2.0", "4.2"), ("4.3.0.dev1", "4.3"), ("3.5.2+amzn-1", "3.5")]
)
def test_a_version_belongs_to_the_line_of_its_minor(version: str, minor: str) -> None:
    assert line_of(version) is LINES[minor]
    assert LINES[minor].minor == minor


def test_a_newer_minor_is_refused_with_an_upgrade_or_the_newest_runtime_that_is_known() -> None:
    with pytest.raises(ConfigurationError) as refused:
        line_of("4.4.1")
    assert refused.value.code == "E113"
    assert "PySpark 4.4.1 is newer than this onceonly knows (3.5 to 4.3)" in str(refused.value)
    assert "Nothing was written." in str(refused.value)
    assert "Next: upgrade onceonly, or use a runtime with Spark 4.3" in str(refused.value)
    assert "pip install" not in str(refused.value)


@pytest.mark.parametrize("version", ["3.4.3", "2.4.8"])
def test_an_older_minor_is_refused_with_the_runtimes_that_are_known(version: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        line_of(version)
    assert f"PySpark {version} is older than this onceonly knows (3.5 to 4.3)" in str(refused.value)
    assert "Next: use a runtime with Spark 3.5 to 4.3" in str(refused.value)


def test_a_minor_of_two_digits_is_newer_than_one_of_one() -> None:
    with pytest.raises(ConfigurationError, match="newer"):
        line_of("4.10.0")
