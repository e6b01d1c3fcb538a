"""What a database says becomes one of our errors by its SQLSTATE, whatever its words; secrets stay out."""

import pytest

from onceonly.errors import OnceOnlyError
from onceonly_sinks.postgres.errors import Context, Failure, refusal

CONTEXT = Context("postgres:target", "postgres:host=db#target", {"amount": "decimal(12,2)"})


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("", "E501"),
        ("08006", "E501"),
        ("08P01", "E501"),
        ("57P01", "E501"),
        ("57P03", "E501"),
        ("53300", "E501"),
        ("25P03", "E501"),
        ("28000", "E502"),
        ("28P01", "E502"),
        ("42501", "E502"),
        ("22001", "E503"),
        ("22003", "E503"),
        ("22021", "E503"),
        ("22P02", "E503"),
        ("22P05", "E503"),
        ("23502", "E503"),
        ("23503", "E503"),
        ("23505", "E503"),
        ("23514", "E503"),
        ("42703", "E506"),
        ("42P01", "E506"),
        ("42P07", "E506"),
        ("42804", "E506"),
        ("53100", "E507"),
        ("53200", "E507"),
        ("25006", "E507"),
        ("58030", "E507"),
        ("55P03", "E529"),
        ("57014", "E508"),
        ("40001", "E508"),
        ("40P01", "E508"),
        ("0A000", "E508"),
        ("XX000", "E508"),
    ],
)
def test_a_sqlstate_has_one_meaning(state: str, code: str) -> None:
    error = refusal(Failure(state, "ERROR", "what the server said"), CONTEXT)
    assert isinstance(error, OnceOnlyError)
    assert error.code == code
    assert "what the server said" in str(error)


def test_expectations_are_advised_only_for_what_one_row_alone_tells() -> None:
    def advised(state: str) -> bool:
        return "quality=" in refusal(Failure(state, "ERROR", constraint="c", table=("s", "t")), CONTEXT).remedy

    assert [state for state in ("22001", "22003", "22P02", "23502", "23514") if not advised(state)] == []
    assert [state for state in ("23001", "23503", "23505", "23P01") if advised(state)] == []


def test_what_hangs_on_other_rows_is_not_blamed_on_the_columns_type() -> None:
    said = str(refusal(Failure("23503", "ERROR", constraint="a c", table=("s", "t")), CONTEXT))
    assert "takes less than" not in said
    assert 'ALTER TABLE "s"."t" ALTER CONSTRAINT "a c" DEFERRABLE INITIALLY DEFERRED' in said
    assert "exactly_once(parents, children)" in said


def test_a_refused_password_is_a_login_even_without_a_sqlstate() -> None:
    assert refusal(Failure("", reason="no", password=True), CONTEXT).code == "E502"


def test_a_column_is_named_with_its_type() -> None:
    error = refusal(Failure("22003", "ERROR", "numeric field overflow", column="amount"), CONTEXT)
    assert "amount (decimal(12,2))" in error.what


def test_a_password_in_the_servers_words_is_masked() -> None:
    error = refusal(Failure("", reason="cannot reach postgresql://me:secret@host password=secret"), CONTEXT)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("state", "severity", "over"),
    [
        ("23505", "ERROR", True),
        ("40001", "ERROR", True),
        ("57014", "ERROR", True),
        ("40003", "ERROR", False),
        ("08007", "ERROR", False),
        ("57P01", "FATAL", False),
        ("53100", "PANIC", False),
        ("", "", False),
    ],
)
def test_only_an_error_of_the_server_says_that_a_commit_failed(state: str, severity: str, over: bool) -> None:
    assert Failure(state, severity).transaction_is_over is over
