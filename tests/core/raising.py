"""Every call of the packages that raises a code, and what it says: found in the source, by its syntax alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "checkpoints/onceonly_checkpoints",
    "src/onceonly",
    "sinks/onceonly_sinks",
    "src/onceonly_lab",
    "src/pyspark_onceonly",
)

CODE = re.compile(r"[EW]\d{3}")

MAKERS = frozenset({"refuse", "caution", "Refusal.of"})
"""What makes a message of a code and keyword details."""


@dataclass(frozen=True)
class Details:
    """Names of the details that an expression gives.

    Attributes:
        always: those that it gives in any case.
        perhaps: those that it may give, ``always`` among them.
        known: whether these are all; where not, some come from where the syntax does not tell.
    """

    always: frozenset[str] = frozenset()
    perhaps: frozenset[str] = frozenset()
    known: bool = True

    def __or__(self, other: Details) -> Details:
        """Both of them, one after the other."""
        return Details(self.always | other.always, self.perhaps | other.perhaps, self.known and other.known)

    def either(self, other: Details) -> Details:
        """One of the two."""
        return Details(self.always & other.always, self.perhaps | other.perhaps, self.known and other.known)


UNKNOWN = Details(known=False)


@dataclass(frozen=True)
class Raising:
    """One call that makes a message.

    Attributes:
        place: ``src/onceonly/runtime/runs.py::_raise``: the file, and the function around the call.
        line: where in the file.
        codes: all that it may be called with; empty where the syntax does not tell.
        details: what it is given.
        forwards: name of the refusal whose code and details are handed on; empty for none.
    """

    place: str
    line: int
    codes: frozenset[str]
    details: Details
    forwards: str = ""


@dataclass(frozen=True)
class Maker:
    """What makes a message.

    Attributes:
        at: which of its arguments is the code.
        adds: names of details that it gives of itself.
    """

    at: int
    adds: frozenset[str] = frozenset()


def raising() -> Iterator[Raising]:
    """Every call of a maker, or of a function that hands its own code and details on to one."""
    for path, text in mentioning():
        yield from raising_in(path, text)


@cache
def mentioning() -> tuple[tuple[str, str], ...]:
    """Modules with the name of a maker anywhere in their text, and the text: no other can call one."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    texts = ((str(path.relative_to(ROOT)), path.read_text()) for path in paths)
    return tuple((name, text) for name, text in texts if re.search(r"refuse|caution|Refusal", text))


def raising_in(name: str, text: str) -> Iterator[Raising]:
    """The same of one module."""
    tree = ast.parse(text)
    functions = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
    makers = _makers(functions)
    for function, call in _calls(tree):
        maker = makers.get(ast.unparse(call.func))
        if maker and len(call.args) > maker.at and not _handed_on(call, function, makers):
            code, within = call.args[maker.at], _Within(function, functions)
            forwards = ast.unparse(code).removesuffix(".code") if isinstance(code, ast.Attribute) else ""
            said = Details(maker.adds, maker.adds) | within.details(call, forwards)
            place = f"{name}::{function.name if function else '<module>'}"
            yield Raising(place, call.lineno, within.codes(code), said, forwards)


def _calls(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
    """Calls, each with the innermost function around it, in the order of the text."""
    around: list[tuple[ast.AST, ast.FunctionDef | None]] = [(tree, None)]
    found: list[tuple[ast.FunctionDef | None, ast.Call]] = []
    while around:
        node, function = around.pop()
        if isinstance(node, ast.Call):
            found.append((function, node))
        within = node if isinstance(node, ast.FunctionDef) else function
        around += [(child, within) for child in ast.iter_child_nodes(node)]
    return iter(sorted(found, key=lambda pair: (pair[1].lineno, pair[1].col_offset)))


def _makers(functions: Mapping[str, ast.FunctionDef]) -> dict[str, Maker]:
    """What makes a message in a module: functions that hand a code and ``**details`` of theirs on do, too."""
    makers = {name: Maker(0) for name in MAKERS}
    while True:
        found = {
            name: handed
            for name, function in functions.items()
            for call in ast.walk(function)
            if isinstance(call, ast.Call) and (handed := _handed_on(call, function, makers))
        }
        if found.keys() <= makers.keys():
            return makers
        makers |= found


def _handed_on(call: ast.Call, function: ast.FunctionDef | None, makers: Mapping[str, Maker]) -> Maker | None:
    """What the function around a call is by it: its own code and ``**details`` go to a maker, with what it adds."""
    maker = makers.get(ast.unparse(call.func))
    if function is None or function.args.kwarg is None or maker is None or len(call.args) <= maker.at:
        return None
    code = call.args[maker.at]
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    spread = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None]
    if not isinstance(code, ast.Name) or code.id not in parameters or spread != [function.args.kwarg.arg]:
        return None
    return Maker(parameters.index(code.id), maker.adds | {keyword.arg for keyword in call.keywords if keyword.arg})


@cache
def _statements(function: ast.FunctionDef) -> tuple[ast.stmt, ...]:
    return tuple(node for node in ast.walk(function) if isinstance(node, ast.stmt))


@dataclass(frozen=True)
class _Within:
    """What expressions within a function stand for.

    Attributes:
        function: the innermost one around them; ``None`` for none.
        functions: of the module, by their bare names.
    """

    function: ast.FunctionDef | None
    functions: Mapping[str, ast.FunctionDef]

    def codes(self, said: ast.expr) -> frozenset[str]:
        """All codes that an expression may be."""
        match said:
            case ast.Constant(str() as text) if CODE.fullmatch(text):
                return frozenset({text})
            case ast.IfExp(body=one, orelse=other):
                return self.codes(one) | self.codes(other)
            case ast.Name(id=name):
                return frozenset(code for value in self._assigned(name, said.lineno) for code in self.codes(value))
            case _:
                return frozenset()

    def details(self, call: ast.Call, forwards: str) -> Details:
        """What a call is given, beside the details of the refusal that it forwards."""
        said = Details()
        for keyword in call.keywords:
            said |= _named(keyword.arg) if keyword.arg else self._mapping(keyword.value, forwards)
        return said

    def _mapping(self, value: ast.expr, forwards: str = "") -> Details:
        """Keys of a mapping: one that is written out, or a name or a function that stands for one."""
        if forwards and ast.unparse(value) == f"dict({forwards}.details)":
            return Details()
        match value:
            case ast.Dict(keys=keys, values=values):
                return self._written(keys, values, forwards)
            case ast.IfExp(body=one, orelse=other):
                return self._mapping(one, forwards).either(self._mapping(other, forwards))
            case ast.Name(id=name):
                return self._variable(name, value.lineno, forwards)
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                there = _Within(self.functions[name], self.functions)
                returned = [
                    statement.value
                    for statement in _statements(self.functions[name])
                    if isinstance(statement, ast.Return)
                ]
                return there._mapping(returned[0]) if len(returned) == 1 and returned[0] else UNKNOWN
            case _:
                return UNKNOWN

    def _written(self, keys: list[ast.expr | None], values: list[ast.expr], forwards: str) -> Details:
        said = Details()
        for key, value in zip(keys, values, strict=True):
            if key is None:
                said |= self._mapping(value, forwards)
            else:
                said |= _named(str(key.value)) if isinstance(key, ast.Constant) else UNKNOWN
        return said

    def _variable(self, name: str, line: int, forwards: str) -> Details:
        """A mapping by its name; what is stored into it in a branch, it may have."""
        values = self._assigned(name, line)
        said = self._mapping(values[0], forwards) if len(values) == 1 else UNKNOWN
        for node in _statements(self.function) if self.function else ():
            match node:
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=stored), slice=ast.Constant(value=key))]):
                    given = _named(str(key))
                case ast.AugAssign(target=ast.Name(id=stored), value=value):
                    given = self._mapping(value)
                case _:
                    continue
            if stored == name and node.lineno < line:
                said |= given if self.function and node in self.function.body else Details().either(given)
        return said

    def _assigned(self, name: str, before: int) -> list[ast.expr]:
        """What the function assigns to a name of its own above a line."""
        found: list[ast.expr] = []
        for node in _statements(self.function) if self.function else ():
            match node:
                case ast.Assign(targets=[target], value=value) if node.lineno < before:
                    found += _parts(target, value, name)
                case ast.AnnAssign(target=target, value=ast.expr() as value) if node.lineno < before:
                    found += _parts(target, value, name)
                case _:
                    pass
        return found


def _parts(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr]:
    """What an assignment gives to a name."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=True)
        return [part for one, value in pairs for part in _parts(one, value, name)]
    return [value] if isinstance(target, ast.Name) and target.id == name else []


def _named(name: str) -> Details:
    given = frozenset({name})
    return Details(given, given)
