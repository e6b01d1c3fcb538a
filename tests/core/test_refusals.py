"""A refusal is read back from whatever text it ended up in."""

from __future__ import annotations

import pytest
from tests.refusal_length import MOST, lines_of

from onceonly.errors import OnceOnlyError, fields, fill, refusal, refuse
from onceonly.errors.codes import CATALOGUE


class _Anything(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def error_of(code: str) -> OnceOnlyError:
    entry, details = CATALOGUE[code], _Anything()
    names: dict[str, object] = {}
    for text in (entry.what, entry.matter, entry.cause, entry.remedy):
        while True:
            try:
                fill(text, names)
                break
            except KeyError as missing:
                names[missing.args[0]] = details[missing.args[0]]
    return refuse(code, **names)


def test_every_message_comes_back_from_a_java_traceback() -> None:
    differing = {}
    for code in (code for code in CATALOGUE if code.startswith("E")):
        error = error_of(code)
        traceback = f"{type(error).__name__}: {error}\n\n\tat py4j.Protocol\n\tat x.y"
        found = refusal(RuntimeError(f"[STREAM_FAILED] Query terminated: An error\n{traceback}"))
        read = found and (found.code, found.what, found.next, str(found))
        if read != (code, error.what, error.remedy, str(error)) or found != refusal(error):
            differing[code] = found
    assert differing == {}


def test_a_refusal_is_found_behind_another_error() -> None:
    outer = ValueError("mine")
    outer.__cause__ = error_of("E217")
    found = refusal(outer)
    assert found is not None
    assert found.code == "E217"


def test_what_is_no_refusal_is_none() -> None:
    assert refusal(ValueError("[ONCE-] no code")) is None
    assert refusal(KeyboardInterrupt()) is None


def test_a_reason_of_several_lines_does_not_hide_what_comes_after_it() -> None:
    error = refuse("E508", sink="a", reason='syntax error\n    at "x"\n\n    ^', cause="c", next="mend it")
    found = refusal(RuntimeError(f"An error\n{error}\n\n\tat py4j.Protocol"))
    assert found is not None
    assert found.next == "mend it"


@pytest.mark.parametrize("reason", ["\n".join(map(str, range(1000))), "x" * 9000], ids=["lines", "characters"])
def test_a_long_reason_leaves_a_short_refusal_with_its_beginning_and_end(reason: str) -> None:
    error = refuse("E508", sink="a", reason=f"no room {reason} on the disk", cause=reason, next="mend it")
    assert "no room" in error.what
    assert "on the disk" in error.what
    assert lines_of(str(error)) <= MOST
    assert lines_of(f"{error}{reason}") > MOST


def test_one_long_detail_never_makes_a_refusal_too_long() -> None:
    too_long: list[str] = []
    for code, entry in CATALOGUE.items():
        known = error_of(code).details if not code.startswith("W") else {}
        for name in known.keys() - fields(entry.remedy):
            error = refuse(code, **{**known, name: "x\n" * 1000 + "y" * 9000})
            too_long += [f"{code} {name}"] * (lines_of(str(error)) > MOST)
    assert too_long == []


def test_half_a_secret_is_not_shown_where_a_reason_is_cut() -> None:
    error = refuse("E508", sink="a", reason=f"{'x' * 400} password={'s' * 400}", cause="c", next="n")
    assert "sss" not in str(error)
