"""A program tells errors apart by their class: each code has one, and it survives the text that Spark makes of it."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from onceonly import errors, refusal
from onceonly.errors import (
    CheckpointError,
    ConfigurationError,
    DestinationError,
    DestinationUnavailable,
    FencedOut,
    IdentityError,
    OnceOnlyError,
    RowsRefused,
    SupersededRun,
    UnresolvedOutcome,
    class_of,
    refuse,
    repeat,
)
from onceonly.errors.codes import CATALOGUE, Family

FAMILIES = {
    Family.CONFIGURATION: ConfigurationError,
    Family.IDENTITY: IdentityError,
    Family.OUTCOME: UnresolvedOutcome,
    Family.FENCED: FencedOut,
    Family.DESTINATION: DestinationError,
    Family.CHECKPOINT: CheckpointError,
}


def public_classes(module: ModuleType) -> dict[str, type[OnceOnlyError]]:
    found = inspect.getmembers(module, inspect.isclass)
    return {name: one for name, one in found if issubclass(one, OnceOnlyError) and one.__module__ == module.__name__}


def test_every_code_has_a_class_of_its_family() -> None:
    codes = [code for code in CATALOGUE if Family.of(code) is not Family.WARNINGS]
    assert [code for code in codes if not issubclass(class_of(code), FAMILIES[Family.of(code)])] == []


def test_what_is_no_error_has_no_class() -> None:
    for code in ("W701", "X101", ""):
        with pytest.raises(KeyError):
            class_of(code)


def test_every_class_is_that_of_some_code_and_says_for_itself_what_it_means() -> None:
    used = {class_of(code) for code in CATALOGUE if Family.of(code) is not Family.WARNINGS}
    for name, one in public_classes(errors).items():
        assert one in used or one is OnceOnlyError, name
        assert one.__doc__, name


def test_the_table_of_single_codes_names_codes_that_there_are() -> None:
    assert errors.CLASSES.keys() <= CATALOGUE.keys()


def test_what_can_pass_by_itself_is_told_by_the_error() -> None:
    assert refuse("E501", sink="s", reason="r", address="a").retryable
    assert not refuse("E502", sink="s", reason="r", next="n").retryable
    assert issubclass(class_of("E511"), DestinationUnavailable)
    assert not class_of("E506").retryable
    assert issubclass(class_of("E506"), RowsRefused)


def test_an_error_out_of_sparks_text_has_its_class_again() -> None:
    error = refuse("E401", sink="s", by="a newer driver", theirs=2, ours=1)
    found = refusal(RuntimeError(f"[STREAM_FAILED] An error\nonceonly.errors.SupersededRun: {error}\n\n\tat py4j"))
    assert found is not None
    assert type(found.error) is SupersededRun
    assert (str(found.error), found.error.code, found.error.remedy) == (str(error), "E401", error.remedy)


def test_a_warning_or_a_code_of_another_version_is_no_error() -> None:
    for code in ("W701", "E999"):
        found = refusal(ValueError(f"[ONCE-{code}] Something is so.\n  It matters.\n  Likely cause: c\n  Next: n"))
        assert found is not None
        assert found.error is None
    with pytest.raises(KeyError):
        repeat("W701", "what", "remedy", "message")
