"""Every call that raises a code gives the details that its texts ask for, and every code is raised somewhere."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from tests.core.raising import PACKAGES, ROOT, Raising, mentioning, raising, raising_in

from onceonly.errors import OF_THE_LEDGER, UNTOLD, fields
from onceonly.errors.codes import CATALOGUE
from onceonly.machine.facts import Refusal
from onceonly.runtime import remedies
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.ledger.sql import SqlLedger

RULES = frozenset(f"src/onceonly/machine/{module}.py" for module in ("opening", "comparison", "refresh", "transitions"))
"""Where an opening's refusals are made: the runner adds what the ledger knows before it raises them."""

FORWARDING = {
    "src/onceonly/cli/records.py::history": "raises what not_ours() says",
    "src/onceonly/machine/opening.py::_for_all": "the refusal of one sink, naming all that have the like of it",
    "src/onceonly/runtime/remedies.py::error_of": "raises what the rules say, with what the ledger adds",
    "src/onceonly/runtime/remedies.py::_still_staged": "the same refusal, where staged bytes cannot be read any more",
    "src/onceonly/replay/publication.py::_decided": "raises what the rules of a publication say",
    "src/onceonly/runtime/sink_refusals.py::proposing_output": "a sink's refusal, with the remedy for this query",
    "src/onceonly/runtime/runner.py::_naming_ledger": "raises what the keeper of state says, with where the ledger is",
    "src/onceonly/runtime/runs.py::_raise": "raises what the rules of calls say",
    "src/onceonly_lab/fuzzer/world.py::_enter_beside": "raises what the rules of calls say",
    "src/onceonly_lab/play/driver.py::admits": "raises what the rules of calls say",
}
"""Calls that hand on the code and the details of a refusal, which are checked where it is made."""

DECIDES: Mapping[str, frozenset[str]] = {
    "E203": frozenset({"hole", "state_lost"}),
    "E204": frozenset({"state_lost"}),
    "E206": frozenset({"after"}),
    "E207": frozenset({"level", "staged", "first", "last"}),
    "E208": frozenset({"holds", "content"}),
    "E209": frozenset({"versions"}),
    "E211": frozenset({"state_lost"}),
    "E213": frozenset({"epoch"}),
    "E215": frozenset({"first", "last"}),
    "E219": frozenset({"lacking"}),
    "E246": frozenset({"begins"}),
    "E506": frozenset({"absent"}),
}
"""Details of a refusal that no text shows: by them the ways out are chosen, or what an acceptance must name."""

CHOOSING = (
    "runtime/remedies.py",
    "runtime/runner.py",
    "runtime/sink_refusals.py",
    *(f"machine/{name}.py" for name in ("acceptance", "opening", "precheck")),
)
"""Modules that ask for them."""

LOCATED = frozenset({"ledger", "where"})
"""What the runner says of itself in every refusal."""


def shown(code: str) -> frozenset[str]:
    """Details that a code's texts have a place for; a warning is what happened and why it matters."""
    entry = CATALOGUE[code]
    said = fields(entry.what) | fields(entry.matter)
    return said | fields(entry.cause) | fields(entry.remedy) if code[0] == "E" else said


def needed(code: str, given: frozenset[str]) -> frozenset[str]:
    """Details without which the message cannot be made; whoever lacks the ledger's gets another remedy."""
    entry = CATALOGUE[code]
    elsewhere = fields(entry.remedy) - fields(entry.what) - fields(entry.matter) - fields(entry.cause)
    replaced = bool(fields(entry.remedy) & OF_THE_LEDGER - given)
    return shown(code) - (elsewhere if replaced else frozenset()) - UNTOLD.keys()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    made = SqlLedger(str(tmp_path_factory.mktemp("ledger") / "ledger.db"))
    made.open()
    return made


def supplied(code: str, place: str, ledger: Ledger) -> frozenset[str]:
    """What a refusal of the rules is given on its way out."""
    if place.partition("::")[0] not in RULES:
        return frozenset()
    if code[:2] != "E2":
        return LOCATED
    told = remedies.explain_refusal(Refusal.of(code, sink="s"), ledger, CommandContext("p", "", ""), None, None)
    return LOCATED | told.details.keys()


@cache
def calls() -> tuple[Raising, ...]:
    return tuple(raising())


def complaints(call: Raising, ledger: Ledger) -> list[str]:
    """What is wrong with the details of a call, by code."""
    found = []
    for code in sorted(call.codes):
        given = call.details.always | supplied(code, call.place, ledger)
        missing = needed(code, given) - given
        unused = call.details.perhaps - shown(code) - DECIDES.get(code, frozenset())
        found += [f"{call.place}:{call.line}: {code} lacks {one}" for one in sorted(missing)]
        found += [f"{call.place}:{call.line}: {code} has no use for {one}" for one in sorted(unused)]
    return found


def test_every_call_gives_exactly_what_the_texts_of_its_code_ask_for(ledger: Ledger) -> None:
    assert len(calls()) > 250
    assert [line for call in calls() for line in complaints(call, ledger)] == []


def test_every_code_is_raised_somewhere() -> None:
    assert {code for call in calls() for code in call.codes} == set(CATALOGUE)


def test_what_a_call_says_is_known_but_where_a_refusal_is_handed_on() -> None:
    assert [f"{call.place}:{call.line}" for call in calls() if not call.details.known and not call.forwards] == []
    assert {call.place for call in calls() if not call.codes} == FORWARDING.keys()
    assert {call.place for call in calls() if call.forwards} == FORWARDING.keys()


def test_what_is_added_to_a_refusal_that_is_handed_on_is_asked_for() -> None:
    asked = LOCATED.union(*DECIDES.values()) | {"gone", "next"}  # by the runner, for the ways out of E207 and E506
    for call in calls():
        assert not call.forwards or call.details.perhaps <= asked, call.place


def test_details_that_no_text_shows_are_asked_for_by_name() -> None:
    asked = set[object]()
    for name in CHOOSING:
        for node in ast.walk(ast.parse((ROOT / "src" / "onceonly" / name).read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=asks), *_]):
                    asked.add(asks)
                case ast.Subscript(slice=ast.Constant(value=asks)):
                    asked.add(asks)
                case _:
                    pass
    assert frozenset[str]().union(*DECIDES.values()) - asked == frozenset()


def test_no_code_is_in_the_table_that_shows_all_it_is_given() -> None:
    used = {code: call.details.perhaps for call in calls() for code in call.codes}
    assert [code for code, names in DECIDES.items() if names & shown(code) or code not in used] == []


def test_details_are_given_by_keyword_in_no_other_way_than_the_reader_knows() -> None:
    """A maker that is imported under another name, or is called through a module, would be overlooked."""
    overlooked = []
    for path, text in mentioning():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.ImportFrom(names=names):
                    renamed = [one.name for one in names if one.name in {"refuse", "caution", "Refusal"} and one.asname]
                    overlooked += [f"{path}:{node.lineno}: {name}" for name in renamed]
                case ast.Attribute(attr="caution"):
                    overlooked.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
                case _:
                    pass
    assert overlooked == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('refuse("E501", sink=s, reason=r, address=a)', []),
        ('refuse("E501", sink=s, reason=r)', ["E501 lacks address"]),
        ('refuse("E501", sink=s, reason=r, address=a, next=n)', ["E501 has no use for next"]),
        ('said = {"sink": s, "reason": r}\n  refuse("E501", **said, address=a)', []),
        (
            'said = {"sink": s}\n  if x:\n    said["reason"] = r\n  refuse("E501", **said, address=a)',
            ["E501 lacks reason"],
        ),
        ('said = {"sink": s}\n  said |= {"reason": r}\n  refuse("E501", **said, address=a)', []),
    ],
)
def test_a_call_that_gives_too_little_or_too_much_is_noticed(text: str, wrong: list[str], ledger: Ledger) -> None:
    [call] = raising_in("made_up.py", f"def f(s, r, a, n, x):\n  {text}\n")
    assert call.details.known
    assert [line.partition(": ")[2] for line in complaints(call, ledger)] == wrong


def test_a_code_that_is_chosen_is_each_of_its_choices() -> None:
    [call] = raising_in("made_up.py", 'def f(x):\n  code = "E301" if x else "E401"\n  refuse(code, sink=1)\n')
    assert call.codes == {"E301", "E401"}


def test_a_function_that_hands_code_and_details_on_is_read_where_it_is_called(ledger: Ledger) -> None:
    text = 'def f(code, **more):\n  return refuse(code, **more, address=1)\ndef g():\n  f("E501", sink=1)\n'
    [call] = raising_in("made_up.py", text)
    assert (call.place, call.codes) == ("made_up.py::g", {"E501"})
    assert [line.partition(": ")[2] for line in complaints(call, ledger)] == ["E501 lacks reason"]


def test_details_that_cannot_be_known_are_noticed() -> None:
    [call] = raising_in("made_up.py", "def f(said):\n  refuse('E501', **said)\n")
    assert not call.details.known


def test_the_folders_that_are_read_exist() -> None:
    assert [name for name in PACKAGES if not Path(ROOT / name).is_dir()] == []
