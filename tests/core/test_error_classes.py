"""A program tells errors apart by their class: each code has one, and it survives the text that Spark makes of it."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from onceonly import errors
from onceonly.cli.explain import page_of
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
    refusal,
    refuse,
    repeat,
)
from onceonly.errors.codes import CATALOGUE, Family
from onceonly.errors.read_refusal import read

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


def test_error_refusal_and_page_agree_whether_a_restart_alone_can_help() -> None:
    wrong, helps = [], {"E301", "E302", "E501", "E510", "E511", "E514", "E516", "E526", "E529"}
    for code in CATALOGUE:
        refused = read(f"[ONCE-{code}] what\n  matter\n  Likely cause: c\n  Next: n")
        page = {True: "can help", False: "does not help"}[code in helps] if code[0] == "E" else None
        if refused is None or (refused.retry, page_of(code).get("a restart alone")) != (code in helps, page):
            wrong.append(code)
    assert wrong == []
    assert issubclass(class_of("E511"), DestinationUnavailable)
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
