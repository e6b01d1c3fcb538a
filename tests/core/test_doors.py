"""Checks before epoch 1, door by door: each door reaches each check in the code, or the table says why it cannot.

What a check says on a real query: ``integration/test_admission.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "onceonly"
WALKED = ("api/*.py", "event_time/*.py", "quality/*.py", "windows/*.py", "replay/*.py", "runtime/runner.py")
"""Where the ways from a door to a check lie."""

CHECKS = {
    "names of columns": "admission.check_columns",
    "names of columns of outputs": "admission.check_outputs",
    "two sinks on one target": "admission.check_apart",
    "a target that is read": "admission.check_loop",
    "output mode": "check_output",
    "what a route is over": "expression_check.check_route",
}
"""The call that is the check."""

OTHERWISE = {
    ("publish", "names of columns"): "admission.check_names",
    ("publish", "two sinks on one target"): "of.source.place",
}
"""Doors with one sink and no query call the rule itself."""

CALLBACK = ("wrapper", "__call__")
DOORS = {
    "foreachBatch": (CALLBACK,),
    "start()": (("start", "start"), CALLBACK),
    'format("onceonly")': (("datasource", "stream_writer"), ("datasource", "commit")),
    "replay run": (("rerun", "rerun"),),
    "publish": (("publication", "publish"), ("publication", "plan")),
}
"""Functions that are called from outside. Spark Connect sends the first one to its server (``_arrived`` makes a wrapper
there); pipelines come in by ``foreachBatch`` or ``format("onceonly")``."""

_NO_OUTPUTS = "its options name whole sinks: no output, no route"
_NO_QUERY = "no query runs: the rows are those of the rerun, which was asked"
CANNOT = {
    ('format("onceonly")', "names of columns of outputs"): _NO_OUTPUTS,
    ('format("onceonly")', "what a route is over"): _NO_OUTPUTS,
    ("publish", "names of columns of outputs"): _NO_QUERY,
    ("publish", "a target that is read"): _NO_QUERY,
    ("publish", "output mode"): _NO_QUERY,
    ("publish", "what a route is over"): _NO_QUERY,
}

Function = tuple[str, str]
Sources = Mapping[str, str]


@cache
def sources() -> Sources:
    """Text by module."""
    paths = [path for one in WALKED for path in SOURCE.glob(one)]
    return {f"{path.parent.name}.{path.stem}": path.read_text() for path in paths}


def calls(node: ast.AST) -> Iterator[str]:
    """What a function calls, and what it hands on to be called, as it is written."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            yield ast.unparse(one.func)
            yield from (ast.unparse(given.value) for given in one.keywords if isinstance(given.value, ast.Name))


def graph(of: Sources) -> dict[Function, set[str]]:
    found: dict[Function, set[str]] = {}
    for module, text in of.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                found.setdefault((module.rpartition(".")[2], node.name), set()).update(calls(node))
    return found


_OBJECTS = {
    "self": (None, "__call__"),
    "once.replay": ("wrapper", "replay"),
    "call.write": ("datasource", "write"),
    "self._epochs.openings.of": ("run_state", "of"),
    "self.epochs.openings.of": ("run_state", "of"),
    # The runner asks it once it has opened the sinks.
    "Admission": ("admission", "__call__"),
}
"""Calls whose words do not name a module, with what they are of."""


def led_to(functions: Mapping[Function, set[str]], module: str, call: str) -> Function | None:
    """The function that a call in a module is of, where its words tell: one of its module, or of the one it names."""
    if call in _OBJECTS:
        of, name = _OBJECTS[call]
        return of or module, name
    owner, _, name = call.rpartition(".")
    places = (module,) if owner in ("", "self", "cls") else (owner.rpartition(".")[2].strip("_"),)
    return next(((place, name) for place in places if (place, name) in functions), None)


def reached(functions: Mapping[Function, set[str]], doors: tuple[Function, ...]) -> set[str]:
    """Every call on the ways from a door, as it is written."""
    seen, ways, found = set[Function](), list(doors), set[str]()
    while ways:
        at = ways.pop()
        if at not in seen:
            seen.add(at)
            found |= functions[at]
            ways += [one for call in functions[at] if (one := led_to(functions, at[0], call))]
    return found


def empty_cells(of: Sources) -> set[tuple[str, str]]:
    """Doors by the check that they do not reach."""
    functions = graph(of)
    cells = set[tuple[str, str]]()
    for door, roots in DOORS.items():
        found = reached(functions, roots)
        cells |= {(door, check) for check, call in CHECKS.items() if OTHERWISE.get((door, check), call) not in found}
    return cells


def test_every_door_reaches_every_check_or_the_table_says_why_it_cannot() -> None:
    assert empty_cells(sources()) == CANNOT.keys()


@pytest.mark.parametrize(
    ("module", "call", "doors"),
    [
        ("api.wrapper", "admission.check_columns(", {"foreachBatch", "start()", "replay run"}),
        ("api.datasource", "admission.check_columns(", {'format("onceonly")'}),
        ("replay.publication", "admission.check_names(", {"publish"}),
        ("api.run_state", "check_output(", {"foreachBatch", 'format("onceonly")', "replay run"}),
        ("api.run_state", "Admission(", {"foreachBatch", "start()", 'format("onceonly")', "replay run"}),
        ("quality.division", "expression_check.check_route(", {"foreachBatch", "start()", "replay run"}),
    ],
)
def test_a_door_without_a_check_is_called_by_its_name(module: str, call: str, doors: set[str]) -> None:
    assert call in sources()[module]
    broken = {**sources(), module: sources()[module].replace(call, "print(")}
    assert {door for door, _ in empty_cells(broken) - CANNOT.keys()} == doors
