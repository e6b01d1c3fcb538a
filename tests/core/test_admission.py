"""What a query must be before its first epoch: rules over names, without a destination."""

from __future__ import annotations

import re

import pytest

from onceonly.errors import ConfigurationError
from onceonly.machine.admission import check_names, renamed
from onceonly.protocol import Names

PLAIN, CUTS, FOLDS = Names(), Names(most=8), Names(folds=True)


def refused(names: Names, *columns: str) -> dict[str, object]:
    try:
        check_names("orders", "sink", names, columns)
    except ConfigurationError as error:
        return {**error.details, "code": error.code}
    return {"problem": "", "next": "", "code": ""}


@pytest.mark.parametrize(
    ("names", "columns", "said"),
    [
        (PLAIN, ("id", "v", "id"), "two columns are called id"),
        (PLAIN, ("id", ""), "column 2 has no name"),
        (PLAIN, ("id", "ID", "a.b", "a b", "x" * 400), ""),
        (FOLDS, ("id", "ID"), "id and ID are one name there"),
        (CUTS, ("exactly8",), ""),
        (CUTS, ("exactly8_",), "column exactly8_ has 9 bytes, of which 8 are kept: exactly8"),
        (CUTS, ("größeren",), "column größeren has 10 bytes, of which 8 are kept: größer"),
    ],
)
def test_names_that_a_destination_cannot_tell_apart_are_refused(
    names: Names, columns: tuple[str, ...], said: str
) -> None:
    found = refused(names, *columns)
    assert (found["problem"], found["code"]) == (said, "E138" if said else "")


def test_the_printed_names_fit_and_the_call_gives_them() -> None:
    wrong = {
        PLAIN: [("id", "v", "id"), ("id", "id_2", "id", "id"), ("", "a", "column_1"), ('say "a"', 'say "a"', "\\")],
        CUTS: [("exactly8", "exactly8_1", "exactly8_2"), ("größeren", "größerer"), ("", "column_1", "a" * 9)],
        FOLDS: [("id", "ID", "Id_2"), ("A", "a", "b", "B")],
    }
    for names, cases in wrong.items():
        for columns in cases:
            wanted = renamed(names, columns)
            assert len(wanted) == len(columns)
            assert refused(names, *wanted)["problem"] == "", columns
            call = re.search(r"df\.toDF\((.*)\)", str(refused(names, *columns)["next"]))
            assert call
            assert eval(f"({call[1]},)") == wanted  # as the user pastes it


def test_a_name_that_fits_stays() -> None:
    assert renamed(PLAIN, ("id", "v", "id")) == ("id", "v", "id_2")
    assert renamed(PLAIN, ("", "a", "column_1")) == ("column_1_2", "a", "column_1")
    assert renamed(CUTS, ("a", "exactly8_1", "exactly8")) == ("a", "exactl_2", "exactly8")
