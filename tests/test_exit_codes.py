"""The module of the page on platforms ends a program with the code that a scheduler needs."""

from __future__ import annotations

import pytest
from tests.test_docs import FILE, ROOT, blocks, run

from onceonly.errors import SupersededRun, class_of
from onceonly.errors.codes import CATALOGUE

pytestmark = pytest.mark.docs

PAGE = ROOT / "docs" / "platforms.md"
MESSAGE = "[ONCE-{}] It stopped.\n  Nothing was written.\n  Likely cause: one of many\n  Next: onceonly status"


def test_each_code_of_an_error_ends_with_a_retry_a_call_or_a_success(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    [block] = [block for block in blocks(PAGE.read_text()) if FILE.fullmatch(block.info)]
    names = run(PAGE, [block, type(block)("python", 1, "from supervised import exit_code")])
    codes = {code: names["exit_code"](RuntimeError(MESSAGE.format(code))) for code in CATALOGUE if code[0] == "E"}
    expected = {
        code: 0 if issubclass(class_of(code), SupersededRun) else 75 if class_of(code).retry else 78 for code in codes
    }
    assert codes == expected
    assert (codes["E401"], codes["E501"], codes["E211"]) == (0, 75, 78)
    assert names["exit_code"](ValueError("not ours")) == 1
